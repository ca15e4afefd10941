"""`python -m tests.operations.scrape_bench [SESSIONS]`: how long a scrape of the metrics takes.

Scrapes a broker with one kept session and with 100,000, over one connection of another process.
With `--streams 100` it has as many streams, each with a row. Prints milliseconds; the exit status
is 1 if the median is above 5 ms, or if the size of the answer depends on the number of sessions.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from mqttcore import Broker, Settings
from mqttcore.config import HttpListener, Listener, ServerLimits
from mqttcore.streams.settings import Stream

from tests.operations.list_bench import Times, make_sessions
from tests.wire import Wire

SCRAPES = 200
GOAL_MS = 5.0
SCRAPER = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
for _ in range(int(sys.argv[3])):
    begun = time.perf_counter()
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().count(b"\\n")
    print(1e3 * (time.perf_counter() - begun), lines)
"""


class Scrapes(NamedTuple):
    """Times of scrapes, and the lines of the longest answer."""

    times: Times
    lines: int


def scrapes(broker: Broker) -> Scrapes:
    """Scrapes from another process."""
    assert broker.http_address is not None
    host, port = broker.http_address
    command = [sys.executable, "-c", SCRAPER, host, str(port), str(SCRAPES)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - own
    rows = [line.split() for line in done.stdout.splitlines()]
    return Scrapes(Times.of(float(time) for time, _ in rows), max(int(lines) for _, lines in rows))


def run(sessions: int, streams: int) -> dict[int, Scrapes]:
    """Scrapes with one session and with `sessions`."""
    names = [f"stream-{number}" for number in range(streams)]
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(
            listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
            http=HttpListener(address="127.0.0.1:0"),
            data=str(pathlib.Path(home) / "data"),
            durability="memory",
            limits=ServerLimits(sessions=2 * sessions, user_sessions=2 * sessions),
            streams=tuple(Stream(name=name, filter=(f"{name}/#",)) for name in names),
        )
        with Broker(settings) as broker:
            make_sessions(broker.port, 1)
            with Wire(broker.port) as publisher:
                publisher.connect("publisher")
                for name in names:
                    publisher.publish(f"{name}/temperature", b"21.5", qos=1)
            found = {1: scrapes(broker)}
            make_sessions(broker.port, sessions)
            found[sessions] = scrapes(broker)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit status."""
    made = argparse.ArgumentParser(prog="python -m tests.operations.scrape_bench")
    made.add_argument("sessions", type=int, nargs="?", default=100_000, help="kept sessions")
    made.add_argument("--streams", type=int, default=0, help="streams, each with a row")
    made.add_argument("--json", action="store_true", help="print JSON")
    options = made.parse_args(arguments)
    found = run(options.sessions, options.streams)
    grows = found[options.sessions].lines != found[1].lines
    is_met = not grows and found[options.sessions].times.median_ms <= GOAL_MS
    if options.json:
        scraped = [
            {"sessions": sessions, **taken.times._asdict(), "lines": taken.lines}
            for sessions, taken in found.items()
        ]
        figures = {"streams": options.streams, "goal_ms": GOAL_MS, "is_met": is_met}
        print(json.dumps({**figures, "scrapes": scraped}))
        return int(not is_met)
    for sessions, taken in found.items():
        print(f"{sessions} sessions: {taken.times}, {taken.lines} lines")
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
