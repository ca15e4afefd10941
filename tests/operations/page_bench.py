"""`make bench-page`: what a page and a scrape each second cost a broker with 10,000 clients.

Starts brokers in turn: one that nobody reads, and one with a reader of the page's events and of the
metrics. Each has as many connected clients, which get some messages. Prints the CPU time of the
broker's process, in % of a core, and the difference of neighbours. The page is opened before that:
its first requests are printed on their own. A measurement of 60 s contains one search for risks.
With `--strict`, the exit status is 1 if the median of the differences is above the goal, 1 %.
Needs a file descriptor for each client (`ulimit -n`).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import pathlib
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.operations.http_cost_bench import SECRET, Started, started
from tests.wire import connect, publish, subscribe

GOAL_PERCENT: Final = 1.0
SETTLED_S: Final = 2.0
"""Seconds before a measurement: what the first requests have begun is done."""
AT_ONCE: Final = 200
"""Clients that connect at the same time."""
ANSWERS: Final = 9
"""Bytes of CONNACK and SUBACK of MQTT 3.1.1."""
BATCHES: Final = 10
"""Batches of messages in a second."""
SPARE_FILES: Final = 64
FIGURES: Final = (
    "messages_received,messages_sent,bytes_received,bytes_sent,dropped,clients_connected,sessions,"
    "memory_used_bytes"
)
OPENING: Final = (
    "/",
    "/api/v1/caller",
    f"/api/v1/history?metric={FIGURES}&from=-3600&step=1",
    "/api/v1/overview",
    "/api/v1/clients?sort=queue&limit=5&min_queue=1",
    "/api/v1/clients?sort=rate_in&limit=5&connected=true",
    "/api/v1/clients?sort=inflight&limit=5&min_inflight=1",
)
"""Requests of the page when it is opened (`rust/http/page/overview.js`, `figures.js`)."""
EVENTS: Final = "/api/v1/events"


class Options(NamedTuple):
    """What is measured."""

    clients: int
    rate: int
    """Messages a second, to all clients in turn."""
    seconds: float
    """Length of one measurement."""
    rounds: int


class Read(NamedTuple):
    """What the readers got."""

    events: int
    scrapes: int


class Round(NamedTuple):
    """A broker without readers, and one with them."""

    without_percent: float
    with_percent: float
    opening_ms: float
    """CPU time of the first requests of the page."""
    read: Read

    @property
    def added_percent(self) -> float:
        """What the readers cost."""
        return self.with_percent - self.without_percent


def cpu_s(broker: Started) -> float:
    """CPU time of all threads of a process, ended ones too: its clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~broker.process.pid << 3) | 2)


def percent_of_a_core(broker: Started, seconds: float) -> float:
    """The CPU time that a broker takes within some seconds."""
    begun, used = time.perf_counter(), cpu_s(broker)
    time.sleep(seconds)
    return 100 * (cpu_s(broker) - used) / (time.perf_counter() - begun)


@contextlib.contextmanager
def clients(address: tuple[str, int], count: int) -> Iterator[None]:
    """Connected clients, each with a subscription of its own. Nobody reads what they get."""
    with contextlib.ExitStack() as stack:
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            made = [stack.enter_context(socket.create_connection(address)) for _ in numbers]
            for number, wire in zip(numbers, made, strict=True):
                packets = connect(f"client-{number}", version=4, keep_alive=0)
                wire.sendall(packets + subscribe(f"client/{number}", version=4))
            for wire in made:
                answers = wire.recv(ANSWERS, socket.MSG_WAITALL)
                assert (answers[3], answers[-1]) == (0, 0), answers
        yield


@contextlib.contextmanager
def until_the_end(work: threading.Thread, stop: threading.Event) -> Iterator[None]:
    """Runs a thread, which ends when `stop` is set."""
    work.start()
    try:
        yield
    finally:
        stop.set()
        work.join()


class Publisher(threading.Thread):
    """Sends messages at a rate, to one client after the other."""

    def __init__(self, address: tuple[str, int], options: Options, stop: threading.Event) -> None:
        super().__init__()
        self._address, self._options, self._stop_event = address, options, stop

    def run(self) -> None:
        """Sends batches until it is stopped."""
        count = max(1, self._options.rate // BATCHES)
        topics = itertools.cycle(range(self._options.clients))
        with socket.create_connection(self._address) as wire:
            wire.sendall(connect("publisher", version=4, keep_alive=0))
            while not self._stop_event.wait(count / self._options.rate):
                batch = [f"client/{number}" for number in itertools.islice(topics, count)]
                wire.sendall(b"".join(publish(topic, b"21.5", version=4) for topic in batch))


class Reader(threading.Thread):
    """A thread that reads from the endpoint of a broker until it is stopped."""

    def __init__(self, broker: Started, stop: threading.Event) -> None:
        super().__init__()
        assert broker.http is not None
        self.count = 0
        self._stop_event = stop
        self._connection = http.client.HTTPConnection(*broker.http, timeout=30)

    def _ask(self, path: str) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {SECRET}"}
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, (path, answer.status, answer.read())
        return answer


class Page(Reader):
    """Reads events as the page does."""

    def run(self) -> None:
        """Counts events with figures."""
        with contextlib.closing(self._connection):
            events = self._ask(EVENTS)
            while not self._stop_event.is_set():
                self.count += events.readline() == b"event: stats\n"


class Scraper(Reader):
    """Reads the metrics each second."""

    def run(self) -> None:
        """Counts scrapes."""
        with contextlib.closing(self._connection):
            while not self._stop_event.wait(1.0):
                self._ask("/metrics").read()
                self.count += 1


def open_page(broker: Started) -> float:
    """Sends the first requests of the page; returns milliseconds of CPU time of the broker."""
    used = cpu_s(broker)
    broker.use(OPENING)
    return 1e3 * (cpu_s(broker) - used)


@contextlib.contextmanager
def busy_broker(options: Options) -> Iterator[Started]:
    """A new broker with its clients and their messages."""
    with (
        tempfile.TemporaryDirectory() as home,
        started(pathlib.Path(home), has_http=True) as broker,
    ):
        stop = threading.Event()
        publisher = Publisher(broker.mqtt, options, stop)
        with clients(broker.mqtt, options.clients), until_the_end(publisher, stop):
            yield broker


def without_readers(options: Options) -> float:
    """% of a core that a broker takes which nobody reads."""
    with busy_broker(options) as broker:
        time.sleep(SETTLED_S)
        return percent_of_a_core(broker, options.seconds)


def with_readers(options: Options) -> tuple[float, float, Read]:
    """% of a core with readers, milliseconds of the opening, and what the readers got."""
    with busy_broker(options) as broker:
        opening_ms = open_page(broker)
        stop = threading.Event()
        page, scraper = Page(broker, stop), Scraper(broker, stop)
        with until_the_end(page, stop), until_the_end(scraper, stop):
            time.sleep(SETTLED_S)
            before = Read(page.count, scraper.count)
            percent = percent_of_a_core(broker, options.seconds)
            read = Read(page.count - before.events, scraper.count - before.scrapes)
    assert min(read) > 0, read
    return percent, opening_ms, read


def run(options: Options) -> list[Round]:
    """Measures all rounds."""
    found = []
    for _ in range(options.rounds):
        alone = without_readers(options)
        percent, opening_ms, read = with_readers(options)
        found.append(Round(alone, percent, opening_ms, read))
    return found


def allow_files(count: int) -> None:
    """Raises the limit of files of this process and of those that it starts."""
    needed = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"page_bench: {count} clients need {needed} files, the limit is {hard}: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def spread(name: str, values: Sequence[float]) -> str:
    """Median, least and most."""
    middle = statistics.median(values)
    return f"{name}: {middle:.2f} % of a core ({min(values):.2f} to {max(values):.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit status."""
    made = argparse.ArgumentParser(prog="python -m tests.operations.page_bench")
    made.add_argument("--clients", type=int, default=10_000, help="connected clients (10000)")
    made.add_argument("--rate", type=int, default=100, help="messages a second to them (100)")
    made.add_argument("--seconds", type=float, default=60.0, help="of one measurement (60)")
    made.add_argument("--rounds", type=int, default=3, help="pairs of brokers (3)")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--strict", action="store_true", help="fail if the goal is missed")
    given = made.parse_args(arguments)
    options = Options(given.clients, given.rate, given.seconds, given.rounds)
    allow_files(options.clients)
    found = run(options)
    added = statistics.median(one.added_percent for one in found)
    is_met = added <= GOAL_PERCENT
    if given.json:
        rounds = [
            {**one._asdict(), "read": one.read._asdict(), "added_percent": one.added_percent}
            for one in found
        ]
        figures = {"added_percent": added, "goal_percent": GOAL_PERCENT, "is_met": is_met}
        print(json.dumps({**options._asdict(), **figures, "rounds": rounds}))
    else:
        print(spread("without readers", [one.without_percent for one in found]))
        print(spread("with a page and a scrape a second", [one.with_percent for one in found]))
        print(spread("difference", [one.added_percent for one in found]))
        opening_ms = statistics.median(one.opening_ms for one in found)
        print(f"opening the page: {opening_ms:.0f} ms of CPU; goal: {GOAL_PERCENT:.0f} %")
    return int(given.strict and not is_met)


if __name__ == "__main__":
    sys.exit(main())
