"""`python -m tests.operations.http_cost_bench [PAIRS]`: what `[http]` costs a broker that starts.

Starts brokers in turn without and with `[http]`. Prints medians: the time to the banner, and the
resident memory after a second, anonymous and of files. The pages of files are code, which is in
memory once for all processes. The third line is the memory after the page, a scrape and requests to
the API. The exit status is 1 if the endpoint takes more than 2 MB of anonymous memory.
"""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

GOAL_KB = 2_000
SETTLED_S = 1.0
"""Seconds from the banner to the first measurement: the regular work of each second has run."""
SECRET = "secret-of-this-bench"  # noqa: S105 -- of a broker that ends at once
LISTENER = '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n'
HTTP = '[http]\naddress = "127.0.0.1:0"\ntoken_file = "token"\n'
PATHS = ("/", "/metrics", "/api/v1/overview", "/api/v1/clients", "/api/v1/history")


class Cost(NamedTuple):
    """What a broker takes: milliseconds to the banner, and resident memory in kB."""

    start_ms: float
    anonymous_kb: int
    file_kb: int


class Started(NamedTuple):
    """A broker in its own process."""

    process: subprocess.Popen[str]
    start_ms: float
    mqtt: tuple[str, int]
    http: tuple[str, int] | None

    def cost(self) -> Cost:
        """What it takes now."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        sizes = dict(re.findall(r"^(Rss\w+):\s+(\d+) kB$", status, re.MULTILINE))
        return Cost(self.start_ms, int(sizes["RssAnon"]), int(sizes["RssFile"]))

    def use(self, paths: Sequence[str] = PATHS) -> None:
        """Reads what a page and a scrape read."""
        assert self.http is not None
        with contextlib.closing(http.client.HTTPConnection(*self.http, timeout=30)) as connection:
            for path in paths:
                connection.request("GET", path, headers={"Authorization": f"Bearer {SECRET}"})
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, (path, answer.status)


@contextlib.contextmanager
def started(folder: pathlib.Path, *, has_http: bool) -> Iterator[Started]:
    """A broker that has printed its banner."""
    token = folder / "token"
    token.write_text(SECRET, encoding="ascii")
    token.chmod(0o600)
    config = folder / "mqttcore.toml"
    config.write_text(LISTENER + (HTTP if has_http else ""), encoding="ascii")
    command = [sys.executable, "-m", "mqttcore.serve", "--config", str(config)]
    begun = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 -- our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        start_ms = 1e3 * (time.perf_counter() - begun)
        while lines[-1] and not lines[-1].startswith("memory:"):  # the last line of the banner
            lines.append(process.stdout.readline())
        try:
            banner = "".join(lines)
            mqtt = address(r"listening on (.+?):(\d+);", banner)
            assert mqtt is not None, banner
            http = address(r"^http: http://(.+):(\d+)$", banner)
            yield Started(process, start_ms, mqtt, http)
        finally:
            process.send_signal(signal.SIGINT)


def address(pattern: str, banner: str) -> tuple[str, int] | None:
    """A host and a port in the banner."""
    found = re.search(pattern, banner, re.MULTILINE)
    return (found[1], int(found[2])) if found else None


def costs(pairs: int, *, settled_s: float = SETTLED_S) -> dict[str, list[Cost]]:
    """What so many pairs of brokers take, without the endpoint, with it, and after it was used."""
    found: dict[str, list[Cost]] = {"without": [], "with": [], "used": []}
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        for _ in range(pairs):
            with started(folder, has_http=False) as broker:
                time.sleep(settled_s)
                found["without"].append(broker.cost())
            with started(folder, has_http=True) as broker:
                time.sleep(settled_s)
                found["with"].append(broker.cost())
                broker.use()
                found["used"].append(broker.cost())
    return found


def added(found: dict[str, list[Cost]], name: str) -> Cost:
    """The medians of the differences to the broker without the endpoint."""
    pairs = list(zip(found["without"], found[name], strict=True))
    return Cost(
        statistics.median(late.start_ms - early.start_ms for early, late in pairs),
        int(statistics.median(late.anonymous_kb - early.anonymous_kb for early, late in pairs)),
        int(statistics.median(late.file_kb - early.file_kb for early, late in pairs)),
    )


def main() -> int:
    """Runs it; returns the exit status."""
    costs(1)  # files come into memory
    found = costs(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    middle = [statistics.median(values) for values in zip(*found["without"], strict=True)]
    print(
        f"without [http]: {middle[0]:.1f} ms, {middle[1]:,.0f} kB anonymous, {middle[2]:,.0f} kB of"
        " files"
    )
    for name, text in (("with", "with [http]"), ("used", "after requests")):
        more = added(found, name)
        start = "" if name == "used" else f"{more.start_ms:+.1f} ms, "
        print(f"{text}: {start}{more.anonymous_kb:+,} kB anonymous, {more.file_kb:+,} kB of files")
    return int(added(found, "used").anonymous_kb > GOAL_KB)


if __name__ == "__main__":
    sys.exit(main())
