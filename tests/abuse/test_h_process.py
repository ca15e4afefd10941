"""Abuse table H: what a broker of its own process logs and counts under attack."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.abuse.beside import Beside, BesideOf
from tests.crash.process import ServerProcess
from tests.named import ROOT
from tests.soak.run import resident_bytes
from tests.wire import PATIENCE_S, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_h02_a_subscriber_that_reads_byte_by_byte_is_disconnected(
    start_broker: Callable[..., Broker], client: Open, topic: str, beside: BesideOf
) -> None:
    running = start_broker(stall_deadline_s=1)
    other, sender = beside(running.port), client(version=4, port=running.port)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    plain.connect(("127.0.0.1", running.port))
    slow = Wire(running.port, version=4, using=plain)
    slow.connect(unique("c"))
    slow.subscribe(topic)
    before = resident_bytes(os.getpid())

    until = time.monotonic() + 3 * PATIENCE_S
    while running.stats()["stalled"] == 0:
        sender.publish(topic, b"x" * 100_000)
        plain.recv(1)
        other.check()
        assert time.monotonic() < until, "it is let go on"
        assert resident_bytes(os.getpid()) - before < 30_000_000

    assert running.stats()["dropped_qos0_backlog"] > 0
    slow.close()


def test_h07_no_map_has_a_hash_that_a_client_could_foresee() -> None:
    own = [path.read_text() for path in ROOT.glob("rust/*/Cargo.toml")]
    sources = {path.name: path.read_text() for path in (ROOT / "rust").rglob("*.rs")}

    assert len(own) > 8
    # those of the standard library are seeded for each process; these are not
    fixed = re.compile(r"\b(fnv|fxhash|rustc-hash|ahash|foldhash|nohash\w*)\b")
    assert [found for text in own for found in fixed.findall(text)] == []
    # its keys are numbers that the broker gave
    numbered = [name for name, text in sources.items() if "BuildHasherDefault" in text]
    assert numbered == ["numbered.rs"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker as a process; its log is a file."""
    # each shard has lines of its own
    environment = {**os.environ, "MQTTCORE__SHARDS": "1"}
    one = ServerProcess(data=tmp_path / "data", environment=environment)
    one.start()
    yield one
    one.stop()


def refused(port: int) -> None:
    """One client of a protocol version that does not exist."""
    with Wire(port) as one:
        one.send(mqtt.connect(unique("c"), level=77))
        one.expect_no_entry(0x84)


def test_h08_a_flood_of_failing_clients_is_some_lines_and_a_count(
    server: ServerProcess, let_time_pass: Callable[..., None]
) -> None:
    began = time.monotonic()

    with Beside(server.port):
        for _ in range(500):
            refused(server.port)
    seconds = time.monotonic() - began
    let_time_pass(server.port)
    refused(server.port)

    server.stop()
    lines = [line for line in server.log.read_text().splitlines() if "refused" in line]
    more = [int(count) for line in lines for count in re.findall(r"\((\d+) similar", line)]
    assert len(lines) <= seconds + 3
    assert len(lines) + sum(more) == 501


def topics_of_sys(port: int) -> set[str]:
    """What the broker tells about itself, by topic: all of them come between two `uptime`."""
    found: Counter[str] = Counter()
    with Wire(port) as one:
        one.connect(unique("c"))
        one.subscribe("$SYS/#")
        while found["$SYS/broker/uptime"] < 3:
            found[one.receive_publish().topic or ""] += 1
    return set(found)


def test_h10_no_figure_is_named_after_what_clients_send(
    start_broker: Callable[..., Broker], client: Open
) -> None:
    running = start_broker(sys_interval_s=0.05)
    figures = set(running.stats())
    before = topics_of_sys(running.port)

    for number in range(100):
        name = f"h10-{number}{{label=x}}"
        one = client(name, username=name, password=b"x", port=running.port)
        one.subscribe(f"$share/{number}/{name}", f"{name}/#")
        one.publish(f"{name}/{number}", b"x", retain=True)

    assert set(running.stats()) == figures
    assert topics_of_sys(running.port) == before
