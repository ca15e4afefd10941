"""`python -m tests.operations.list_bench [CLIENTS]`: lists clients by pages beside message traffic.

Makes kept sessions, then measures round trips of QoS 0 messages: first alone, then while another
process reads all pages of the list again and again, by `stored` and by `client_id`. Prints
milliseconds, and how long a shard has worked for a part of a list.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from multiprocessing.synchronize import Event
from typing import NamedTuple, Self

from mqttcore import Broker, Settings
from mqttcore._socket_path import short
from mqttcore.config import HttpListener, Listener, ServerLimits

from tests.operations.api import Api, UnixConnection
from tests.wire import Wire, connect

ROUNDS = 3_000
AT_ONCE = 200


def make_sessions(port: int, count: int) -> None:
    """Connects clients with kept sessions, many at once, and closes them."""
    for start in range(0, count, AT_ONCE):
        wires = []
        for number in range(start, min(start + AT_ONCE, count)):
            wire = socket.create_connection(("127.0.0.1", port))
            wire.sendall(
                connect(f"client-{number:06}", version=5, props={"session_expiry_interval": 86_400})
            )
            wires.append(wire)
        for wire in wires:
            wire.recv(64)
            wire.close()


def pages(api: Api, order: str) -> Iterator[int]:
    """Reads all pages in this order; yields the number of clients on each."""
    after = ""
    while after is not None:
        status, page = api.ask(
            "GET", f"/clients?limit=1000&sort={order}{after and f'&after={after}'}"
        )
        assert (status, page["partial"]) == (200, [])
        yield len(page["items"])
        after = page["next"]


def read_lists(folder: pathlib.Path, order: str, stop: Event) -> None:
    """Reads all pages again and again, and prints how long a list takes."""
    times = []
    while not stop.is_set():
        start = time.perf_counter()
        count = sum(pages(Api(folder), order))
        times.append(time.perf_counter() - start)
    took = statistics.median(times)
    print(f"lists by {order}: {len(times)} of {count} clients, {took:.2f} s each")


class Times(NamedTuple):
    """A summary of times in milliseconds."""

    median_ms: float
    late_ms: float
    """99 % of them take no longer."""
    worst_ms: float

    @classmethod
    def of(cls, times_ms: Iterable[float]) -> Self:
        """Sums up times."""
        times = sorted(times_ms)
        return cls(statistics.median(times), times[int(0.99 * len(times))], times[-1])

    def __str__(self) -> str:
        return (
            f"median {self.median_ms:.3f} ms, 99 % {self.late_ms:.3f} ms,"
            f" worst {self.worst_ms:.3f} ms"
        )


def round_trips(port: int) -> Times:
    """Publishes and waits for the message, one at a time."""
    with Wire(port) as wire:
        wire.connect("traffic")
        wire.subscribe(("t", 0))
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            wire.publish("t", b"x")
            wire.receive_publish()
            times.append((time.perf_counter() - start) * 1e3)
    return Times.of(times)


def print_parts(folder: pathlib.Path) -> None:
    """Prints how long a shard has worked for parts of lists."""
    with short(folder / "http") as place, closing(UnixConnection(place)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    for line in lines:
        if line.startswith("mqttcore_list_part_seconds"):
            print(line)


def main() -> None:
    """Runs it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home) / "data"
        settings = Settings(
            listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
            http=HttpListener(),
            data=str(folder),
            durability="memory",
            limits=ServerLimits(sessions=2 * count, user_sessions=2 * count),
        )
        with Broker(settings) as broker:
            make_sessions(broker.port, count)
            print(f"alone: {round_trips(broker.port)}")
            for order in ("stored", "client_id"):
                stop = multiprocessing.Event()
                reader = multiprocessing.Process(target=read_lists, args=(folder, order, stop))
                reader.start()
                time.sleep(1.0)  # the first list has begun
                print(f"beside lists by {order}: {round_trips(broker.port)}")
                stop.set()
                reader.join()
            print_parts(folder)


if __name__ == "__main__":
    main()
