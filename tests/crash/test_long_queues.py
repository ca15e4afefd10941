"""Queues of thousands outlive brokers, and take no memory while their clients are away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.process import ServerProcess
from tests.wire import Wire

HOUR = {"session_expiry_interval": 3_600}
READERS = 4
EACH = 350
PAYLOAD_BYTES = 20_000
MIB = 1 << 20
ROOM = 8 * MIB
"""What a process may differ from another one."""


def arrive(server: ServerProcess, name: str) -> Wire:
    """A client whose session outlives its connections."""
    wire = Wire(server.port)
    wire.connect(name, clean=False, props=HOUR)
    return wire


def resident_bytes(server: ServerProcess) -> int:
    """Memory of the broker's process that is its own: files that it reads do not count."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def numbered(number: int) -> bytes:
    """A payload that says which one it is."""
    return b"%d" % number + b"." * PAYLOAD_BYTES


def qos_of(number: int) -> int:
    """Every tenth message is of QoS 2."""
    return 2 if number % 10 == 0 else 1


def fill(server: ServerProcess) -> None:
    """Leaves a queue to every reader, `READERS` x `EACH` messages in all."""
    for index in range(READERS):
        reader = arrive(server, f"reader-{index}")
        reader.subscribe(("fill", 2))
        reader.disconnect()
    with arrive(server, "writer") as writer:
        for number in range(EACH):
            writer.publish("fill", numbered(number), qos=qos_of(number))


def take_all(server: ServerProcess, name: str) -> list[int]:
    """Everything that waits for a reader, acknowledged, in the order in which it came."""
    found: list[int] = []
    with arrive(server, name) as reader:
        while len(found) < EACH:
            packet = reader.receive_publish()
            assert not packet.dup
            found.append(int(packet.payload.split(b".")[0]))
        reader.ping()
    return found


@pytest.mark.parametrize("end", [ServerProcess.kill, ServerProcess.stop], ids=["killed", "stopped"])
def test_long_queues_come_back_in_order_and_not_into_memory(
    tmp_path: Path, end: Callable[[ServerProcess], int]
) -> None:
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    empty = resident_bytes(server)
    fill(server)
    end(server)
    server.start()

    assert READERS * EACH * PAYLOAD_BYTES > 3 * ROOM
    grown = resident_bytes(server) - empty
    assert grown < ROOM, f"{grown / MIB:.1f} MiB for queues that nobody reads"
    for index in range(READERS):
        found = take_all(server, f"reader-{index}")
        for qos in (1, 2):
            of_qos = [number for number in range(EACH) if qos_of(number) == qos]
            assert [number for number in found if qos_of(number) == qos] == of_qos
    server.kill()
