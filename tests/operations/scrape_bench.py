"""`python -m tests.operations.scrape_bench [SESSIONS]`: how long a scrape of the metrics takes.

Scrapes a broker without sessions and with 100,000 kept ones, over one connection of another
process. Prints milliseconds; the exit status is 1 if the median is above 5 ms, or if the size of
the answer depends on the number of sessions.
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

from mqttcore import Broker, Settings
from mqttcore.config import HttpListener, Listener, ServerLimits

from tests.operations.list_bench import make_sessions

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
    """Times of scrapes in milliseconds, in order, and the lines of the longest answer."""

    times_ms: list[float]
    lines: int

    @property
    def median_ms(self) -> float:
        """Half of them take no longer."""
        return statistics.median(self.times_ms)


def scrapes(broker: Broker) -> Scrapes:
    """Scrapes from another process."""
    assert broker.http_address is not None
    host, port = broker.http_address
    command = [sys.executable, "-c", SCRAPER, host, str(port), str(SCRAPES)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - own
    rows = [line.split() for line in done.stdout.splitlines()]
    return Scrapes(sorted(float(time) for time, _ in rows), max(int(lines) for _, lines in rows))


def main() -> int:
    """Runs it; returns the exit status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(
            listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
            http=HttpListener(address="127.0.0.1:0"),
            data=str(pathlib.Path(home) / "data"),
            durability="memory",
            limits=ServerLimits(sessions=2 * count, user_sessions=2 * count),
        )
        with Broker(settings) as broker:
            make_sessions(broker.port, 1)
            found = {1: scrapes(broker)}
            make_sessions(broker.port, count)
            found[count] = scrapes(broker)
    for sessions, taken in found.items():
        late = taken.times_ms[int(0.99 * SCRAPES)]
        print(
            f"{sessions} sessions: median {taken.median_ms:.2f} ms, 99 % {late:.2f} ms,"
            f" {taken.lines} lines"
        )
    grows = found[count].lines != found[1].lines
    return int(grows or found[count].median_ms > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
