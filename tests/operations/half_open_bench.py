"""Half-open HTTP connections beside clients: `python -m tests.operations.half_open_bench`.

Prints the round trips of a QoS 0 message and the times of a reader of the API, alone and beside
10,000 connections of 10,000 addresses, each of which sends half of a request. The reader uses the
Unix socket, as probes should. Needs about 20,000 file descriptors (`ulimit -n`).
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import sys
import tempfile
import time

from mqttcore import Broker, Settings
from mqttcore.config import HttpListener, Listener

from tests.operations.api import Api
from tests.wire import Wire

CONNECTIONS = 10_000
SECONDS = 5.0
HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
TRIPS_A_READ = 10


def main() -> int:
    """Measures; returns the exit status."""
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    http = HttpListener(address="127.0.0.1:0")
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        with Broker(Settings(listeners=(listener,), http=http, data=str(data))) as broker:
            print(f"alone   {measured(broker, data)}")
            held = [half_open(broker, number) for number in range(CONNECTIONS)]
            print(f"beside  {measured(broker, data)}")
            figures = broker.stats()
            for each in held:
                each.close()
    refused = figures["http_connections_refused"]
    print(f"{CONNECTIONS} connections, {refused} of them refused")
    return 0


def half_open(broker: Broker, number: int) -> socket.socket:
    """A connection from an address of its own, with the begin of a request."""
    made = socket.socket()
    made.bind((f"127.{1 + number // 250}.{number % 250}.1", 0))
    assert broker.http_address
    made.connect(broker.http_address)
    with contextlib.suppress(OSError):  # it was refused
        made.send(HALF)
    return made


def measured(broker: Broker, data: pathlib.Path) -> str:
    """Round trips and reads for some seconds."""
    trips: list[float] = []
    reads: list[float] = []
    api = Api(data)
    end = time.monotonic() + SECONDS
    with Wire(broker.port) as wire:
        wire.connect("healthy")
        wire.subscribe(("a", 0))
        while time.monotonic() < end:
            begin = time.perf_counter()
            wire.publish("a", b"x")
            wire.receive_publish()
            trips.append(time.perf_counter() - begin)
            if len(trips) % TRIPS_A_READ == 0:
                begin = time.perf_counter()
                assert api.ask("GET", "/overview")[0] == 200
                reads.append(time.perf_counter() - begin)
    return f"round trip {spread(trips)}; read {spread(reads)}"


def spread(times: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {p50 * 1_000:.2f} ms, p99 {p99 * 1_000:.2f} ms ({len(ordered)})"


if __name__ == "__main__":
    sys.exit(main())
