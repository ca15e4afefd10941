"""The measurements. Each returns one number; what is compared runs in turns within one run."""

from __future__ import annotations

import itertools
import pathlib
import selectors
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mqttcore.plugin import Plugin

from benches.hooks.plugins import HANG_S, Granting, Hanging, Revoking, Watching
from benches.hooks.server import Server, running
from tests.counts.test_instructions import SETTINGS, WHY_NOT, counted_broker
from tests.counts.test_trace import Pair
from tests.wire import DISCONNECT, Wire, connect, publish

PAYLOAD = b"x" * 32
PATIENCE_S = 60.0
CLOSED = SETTINGS.replace("anonymous = true\n", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    messages: int = 50_000
    """Messages in a round."""
    rounds: int = 15
    connects: int = 2_000
    """Clients that connect at once."""
    trips: int = 2_000
    """Round trips in a row."""
    clients: int = 200
    """Clients whose rights are revoked."""
    counted: int = 200
    """Rounds of 16 messages whose instructions are counted."""


QUICK = Scale(messages=2_000, rounds=3, connects=100, trips=100, clients=10, counted=20)


def joe(wire: Wire, name: str = "joe") -> Wire:
    """Connects, with a user name."""
    wire.connect(name, username=name, password=b"pw")
    return wire


def cpu_of_messages(server: Server, wire: Wire, topic: str, count: int) -> float:
    """Seconds of CPU time that the broker needs for ``count`` messages of QoS 0."""
    data = publish(topic, PAYLOAD) * count
    before = server.cpu_s()
    wire.send(data)
    wire.ping()
    return server.cpu_s() - before


def python_calls(scale: Scale) -> float:
    """Calls of Python for one message of a client with a grant."""
    with running(Granting) as server, Wire(server.port) as wire:
        joe(wire)
        before = server.calls()
        cpu_of_messages(server, wire, "free/a", scale.messages)
        return (server.calls() - before) / scale.messages


def publish_hook_us(scale: Scale) -> float:
    """Microseconds of CPU time that a `def` publish hook adds to a message."""
    added = []
    with running(Watching) as server, Wire(server.port) as wire:
        joe(wire)
        for _ in range(scale.rounds):
            free = cpu_of_messages(server, wire, "free/a", scale.messages)
            asked = cpu_of_messages(server, wire, "hook/a", scale.messages)
            added.append((asked - free) / scale.messages * 1e6)
    return statistics.median(added)


def outside_filter_percent(scale: Scale) -> float:
    """Per cent of instructions that messages on other topics take more, if there is a publish hook.

    CPU times of the same build differ by a tenth from round to round; instructions do not.
    """
    if WHY_NOT is not None:
        raise SystemExit(f"benches.hooks: instructions cannot be counted: {WHY_NOT}")
    without, beside = (
        instructions_a_message(plugin, scale.counted) for plugin in (Granting, Watching)
    )
    return (beside / without - 1) * 100


def instructions_a_message(plugin: type[Plugin], rounds: int) -> float:
    """Instructions of the shard for a message in a batch of 16 at QoS 0, to one subscriber."""
    settings = f'{CLOSED}[[plugins]]\nuse = "{plugin.__module__}:{plugin.__name__}"\n'
    with (
        tempfile.TemporaryDirectory() as folder,
        counted_broker(pathlib.Path(folder), settings) as broker,
        ExitStack() as stack,
    ):
        pair = Pair(broker, stack, "free", batch=16)
        # The cache of matches is in use after 256 batches of one topic.
        pair.publish(300)
        return pair.instructions(rounds)


def login_s(port: int, data: bytes) -> float:
    """Seconds from CONNECT to CONNACK."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        client.sendall(data)
        found = client.recv(256)
        spent = time.perf_counter() - began
    admitted(found)
    return spent


def admitted(found: bytes) -> None:
    """Refuses what is no CONNACK without an error."""
    if len(found) < 4 or found[0] != 0x20 or found[3]:
        raise RuntimeError(f"refused: {found[:8].hex()}")


def authenticate_us(scale: Scale) -> float:
    """Microseconds that an `async def` hook adds to a login, at the median."""
    plain, asked = [], []
    with running() as anonymous, running(Granting) as granting:
        for number in range(scale.trips):
            name = f"c{number}"
            plain.append(login_s(anonymous.port, connect(name)))
            asked.append(login_s(granting.port, connect(name, username=name, password=b"pw")))
    return (statistics.median(asked) - statistics.median(plain)) * 1e6


def connects_a_second(scale: Scale) -> float:
    """CONNECT packets a second that an `async def` hook lets in, many clients at once."""
    with running(Granting) as server:
        times = [all_connect_s(server.port, scale.connects) for _ in range(scale.rounds)]
    return scale.connects / statistics.median(times)


AT_ONCE: Final = 500
"""Clients that wait for their CONNACK: the queue of a plugin's logins has room for them."""


def all_connect_s(port: int, count: int) -> float:
    """Seconds from the first CONNECT to the last CONNACK of ``count`` open connections."""
    packets = [connect(f"c{n}", username=f"c{n}", password=b"pw") for n in range(count)]
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in packets]
    selector = selectors.DefaultSelector()
    try:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        began = time.perf_counter()
        unsent = zip(clients, packets, strict=True)
        for client, data in itertools.islice(unsent, AT_ONCE):
            client.sendall(data)
        waiting = count
        while waiting:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise TimeoutError(f"{waiting} clients have no CONNACK")
            for key, _ in ready:
                selector.unregister(key.fileobj)
                admitted(key.fileobj.recv(256))  # type: ignore[union-attr] # all are sockets
                waiting -= 1
                for client, data in itertools.islice(unsent, 1):
                    client.sendall(data)
        return time.perf_counter() - began
    finally:
        selector.close()
        for client in clients:
            client.close()


def late_trip_s(wire: Wire, count: int) -> float:
    """Seconds of the 99th of 100 round trips of a message to its own publisher."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        wire.send(publish("t", PAYLOAD))
        wire.receive_publish()
        times.append(time.perf_counter() - began)
    return sorted(times)[int(0.99 * count)]


def hanging_ratio(scale: Scale) -> float:
    """How much slower others are (p99 of round trips) while a hook blocks its thread."""
    ratios = []
    with running(Hanging) as server, joe(Wire(server.port)) as wire:
        wire.subscribe(("t", 0))
        for _ in range(3):
            alone = late_trip_s(wire, scale.trips)
            hanging = threading.Thread(target=hang, args=(server.port,))
            hanging.start()
            # the start of the client would be among the slowest of the trips
            while not server.running():
                time.sleep(0.01)
            beside = late_trip_s(wire, scale.trips)
            hanging.join()
            ratios.append(beside / alone)
    return statistics.median(ratios)


def hang(port: int) -> None:
    """A client whose login blocks its hook."""
    with Wire(port) as wire:
        wire.send(connect("hang", username="hang", password=b"pw"))
        wire.receive(within_s=HANG_S * 4)


def revocation_s(scale: Scale) -> float:
    """Seconds until the last of many live subscribers without rights is disconnected."""
    with running(Revoking) as server:
        wires = [joe(Wire(server.port), f"c{number}") for number in range(scale.clients)]
        try:
            for wire in wires:
                wire.subscribe(("#", 0))
            began = time.perf_counter()
            server.invalidate()
            for wire in wires:
                wire.expect(DISCONNECT)
            return time.perf_counter() - began
        finally:
            for wire in wires:
                wire.close()


def reload_ms(scale: Scale) -> float:
    """Milliseconds of a reload of a plugin with hooks of both kinds, at the median."""
    with running(Watching) as server:
        return statistics.median(server.reload_s() for _ in range(scale.rounds)) * 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measurement and its goal."""

    name: str
    unit: str
    goal: float
    at_least: bool = False
    measure: Callable[[Scale], float]

    def is_met(self, figure: float) -> bool:
        """Whether the goal is met."""
        return figure >= self.goal if self.at_least else figure <= self.goal


ROWS: Sequence[Row] = (
    Row(name="Python calls a message with grants", unit="", goal=0, measure=python_calls),
    Row(name="publish hook, CPU a message", unit="us", goal=1.5, measure=publish_hook_us),
    Row(
        name="messages outside its filter, instructions",
        unit="%",
        goal=0.5,
        measure=outside_filter_percent,
    ),
    Row(name="async authenticate, added p50", unit="us", goal=100, measure=authenticate_us),
    Row(
        name="logins through an async hook",
        unit="1/s",
        goal=15_000,
        at_least=True,
        measure=connects_a_second,
    ),
    Row(name="p99 of others while a hook hangs", unit="x", goal=1.1, measure=hanging_ratio),
    Row(name="revocation of all subscribers", unit="s", goal=1, measure=revocation_s),
    Row(name="reload of a plugin", unit="ms", goal=50, measure=reload_ms),
)
