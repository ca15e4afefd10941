"""Abuse row H04 with a process: queues of hundreds of kept sessions within a limit of memory."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.conftest import Bystander
from tests.crash.process import ServerProcess
from tests.tls import Files, open_tls
from tests.websocket import WebSocketWire
from tests.wire import Packet, Wire

MIB = 1 << 20
BUDGET = 64 * MIB
LIMIT = BUDGET * 100 // 60
"""The memory of which the budget is the default share."""
SESSIONS = 334
ROUNDS = 6
A_ROUND = 7
"""Messages of one sender: it is too small a sender to be read slowly."""
PAYLOAD = b"x" * 8_192
KEPT = {"session_expiry_interval": 3_600}
ENVIRONMENT = {
    "MQTTCORE__LIMITS__MEMORY_BYTES": str(BUDGET),
    "MQTTCORE__SYS_INTERVAL_S": "1",
    "MQTTCORE__SHARDS": "2",
}


def status_bytes(server: ServerProcess, name: str) -> int:
    """A figure of the process: `RssAnon` is its own memory, `RLIMIT_DATA` limits `VmData`."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


CACHED = len(os.sched_getaffinity(0)) * (2 << 20)
"""What malloc keeps at the end of the arena of each shard (ADR 0130)."""


class Figures:
    """The newest figures of `$SYS/broker/memory`."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.newest: Counter[str] = Counter()
        wire.subscribe("$SYS/broker/memory/#")

    def wait(self, holds: Callable[[Counter[str]], bool], *, within_s: float = 30) -> None:
        """Reads until `holds` answers yes to the figures that came last."""
        deadline = time.monotonic() + within_s
        self._note(self.wire.drain())
        while not holds(self.newest):
            assert time.monotonic() < deadline, self.newest
            # figures that stay as they are do not come again, while `holds` may ask the process
            with suppress(TimeoutError):
                self._note([self.wire.receive_publish(within_s=1)])

    def _note(self, found: list[Packet]) -> None:
        for each in found:
            assert each.topic is not None
            self.newest[each.topic.removeprefix("$SYS/broker/memory/")] = int(each.payload)


@contextmanager
def limited(server: ServerProcess) -> Iterator[tuple[ServerProcess, Bystander, Figures]]:
    """A broker that ends if it takes more than `LIMIT`, with a bystander and its figures."""
    with ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        assert server.process is not None
        most = status_bytes(server, "VmData") + LIMIT
        resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (most, most))
        beside = stack.enter_context(closing(Bystander(server.port)))
        figures = stack.enter_context(Wire(server.port))
        figures.connect("figures")
        yield server, beside, Figures(figures)
        assert server.stop() == 0


def leave_sessions(server: ServerProcess, beside: Bystander) -> None:
    """Kept sessions whose clients are away, each with a topic of its own."""
    for number in range(SESSIONS):
        with Wire(server.port) as away:
            away.connect(f"away-{number}", props=KEPT)
            away.subscribe((f"queue/{number}", 1))
            away.send(mqtt.disconnect())
    beside.check()


def fill(server: ServerProcess, beside: Bystander) -> int:
    """Publishes to all sessions in turn; returns how many publishes were refused with 0x97."""
    refused = 0
    for number in list(range(SESSIONS)) * ROUNDS:
        with Wire(server.port) as sender:
            sender.connect()
            publish = [
                mqtt.publish(f"queue/{number}", PAYLOAD, qos=1, packet_id=at + 1, version=5)
                for at in range(A_ROUND)
            ]
            sender.send(b"".join(publish))
            reasons = [sender.expect(mqtt.PUBACK).reason for _ in range(A_ROUND)]
        assert set(reasons) <= {0, 0x97}
        refused += reasons.count(0x97)
        if number % 50 == 0:
            beside.check()
    return refused


def end_sessions(server: ServerProcess) -> None:
    """Ends all kept sessions."""
    for number in range(SESSIONS):
        with Wire(server.port) as back:
            back.connect(f"away-{number}")


def made(path: Path, *, is_kept: bool) -> ServerProcess:
    """A broker with a small budget."""
    environment = {
        **os.environ,
        **ENVIRONMENT,
        **({"MQTTCORE__DURABILITY": "os"} if is_kept else {}),
    }
    return ServerProcess(data=path / "data", is_kept=is_kept, environment=environment)


def test_h04_full_queues_of_hundreds_of_sessions_do_not_end_the_process(tmp_path: Path) -> None:
    with limited(made(tmp_path, is_kept=False)) as (server, beside, figures):
        figures.wait(lambda newest: newest["bytes/used"] > 0)
        used, resident = figures.newest["bytes/used"], status_bytes(server, "RssAnon")
        leave_sessions(server, beside)

        refused = fill(server, beside)

        assert refused > 0
        figures.wait(lambda newest: newest["refused/publishes"] == refused)
        grown = status_bytes(server, "RssAnon") - resident
        counted = figures.newest["bytes/used"] - used
        assert BUDGET * 8 // 10 < counted < BUDGET
        assert abs(grown - counted) <= counted // 10
        end_sessions(server)
        figures.wait(lambda newest: newest["bytes/used"] < used + BUDGET // 20)
        leave_sessions(server, beside)
        assert fill(server, beside) > 0
        again = status_bytes(server, "RssAnon") - resident
        assert again < grown + BUDGET // 20, "the memory of the first time is used again"


def test_h04_memory_goes_back_to_the_system_when_the_sessions_have_ended(tmp_path: Path) -> None:
    with limited(made(tmp_path, is_kept=False)) as (server, beside, figures):

        def returns_within(most: int) -> bool:
            return status_bytes(server, "RssAnon") <= most

        def fill_and_end() -> int:
            before = status_bytes(server, "RssAnon")
            leave_sessions(server, beside)
            assert fill(server, beside) > 0
            assert not returns_within(before + BUDGET // 2)
            end_sessions(server)
            return before

        before = fill_and_end()
        # Tables keep the capacity that the sessions needed.
        figures.wait(lambda _: returns_within(before + BUDGET // 20))

        before = fill_and_end()

        figures.wait(lambda _: returns_within(before + before // 20 + CACHED))
        beside.check()


def test_h04_with_a_data_folder_full_queues_go_to_the_disk(tmp_path: Path) -> None:
    with limited(made(tmp_path, is_kept=True)) as (server, beside, figures):
        resident = status_bytes(server, "RssAnon")
        leave_sessions(server, beside)

        refused = fill(server, beside)

        assert refused == 0
        # The budget bounds all shards together: what one of them has freed, the next one may use.
        assert status_bytes(server, "RssAnon") - resident < BUDGET
        for number in (0, SESSIONS - 1):
            with Wire(server.port) as back:
                back.connect(f"away-{number}", clean=False, props=KEPT)
                queue = [back.receive_publish().payload for _ in range(ROUNDS * A_ROUND)]
                assert queue == [PAYLOAD] * len(queue)
        end_sessions(server)
        figures.wait(lambda newest: 0 < newest["bytes/used"] < BUDGET // 20)
        beside.check()


def two_listeners(path: Path, more: str) -> ServerProcess:
    """A broker with a plain listener, and one with `more` in its table."""
    config = path / "mqttcore.toml"
    listener = '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n'
    config.write_text(f"shards = 1\nsys_interval_s = 1.0\n{listener}{listener}{more}\n")
    return ServerProcess(data=path / "data", is_kept=False, config=config)


@pytest.mark.parametrize(
    ("kind", "most_bytes"), [("plain", 4_000), ("websocket", 8_000), ("tls", 24_000)]
)
def test_h04_idle_connections_are_counted(tmp_path: Path, kind: str, most_bytes: int) -> None:
    files = Files.make(tmp_path / "files")
    context = files.context()
    certificate, key = files.path("server.pem"), files.path("server.key")
    tables = {
        "plain": "",
        "websocket": 'transport = "websocket"',
        "tls": f'tls = {{ certificate = "{certificate}", key = "{key}" }}',
    }
    opens: dict[str, Callable[[int], Wire]] = {
        "plain": Wire,
        "websocket": WebSocketWire,
        "tls": lambda port: open_tls(port, context),
    }
    server = two_listeners(tmp_path, tables[kind])
    server.start()
    with ExitStack() as stack:
        stack.callback(server.kill)
        watcher = stack.enter_context(Wire(server.port))
        watcher.connect("figures")
        figures = Figures(watcher)

        def connect(count: int) -> None:
            for _ in range(count):
                stack.enter_context(opens[kind](server.ports[1])).connect()

        connect(20)
        figures.wait(lambda newest: newest["bytes/sessions"] > 20 * 1_024)
        used, resident = figures.newest["bytes/used"], status_bytes(server, "RssAnon")

        connect(500)

        def is_counted(newest: Counter[str]) -> bool:
            grown = status_bytes(server, "RssAnon") - resident
            # tables that grow by doubling, and pages that are not full, beside what is counted
            return abs(newest["bytes/used"] - used - grown) <= grown // 5 + 256 * 1_024

        figures.wait(is_counted)
        assert status_bytes(server, "RssAnon") - resident <= 500 * most_bytes
