"""Queues of thousands outlive brokers, and take no memory while their clients are away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.process import Life
from tests.wire import Wire

HOUR = {"session_expiry_interval": 3_600}
READERS = 4
EACH = 350
PAYLOAD_BYTES = 20_000
MIB = 1 << 20
ROOM = 8 * MIB
"""What a process may differ from another one."""


def arrive(life: Life, name: str) -> Wire:
    """A client whose session outlives its connections."""
    wire = Wire(life.port)
    wire.connect(name, clean=False, props=HOUR)
    return wire


def resident_bytes(life: Life) -> int:
    """Memory of the broker's process that is its own: files that it reads do not count."""
    assert life.process is not None
    lines = Path(f"/proc/{life.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def numbered(number: int) -> bytes:
    """A payload that says which one it is."""
    return b"%d" % number + b"." * PAYLOAD_BYTES


def qos_of(number: int) -> int:
    """Every tenth message is of QoS 2."""
    return 2 if number % 10 == 0 else 1


def fill(life: Life) -> None:
    """Leaves a queue to every reader, `READERS` x `EACH` messages in all."""
    for index in range(READERS):
        with arrive(life, f"reader-{index}") as reader:
            reader.subscribe(("fill", 2))
    with arrive(life, "writer") as writer:
        for number in range(EACH):
            writer.publish("fill", numbered(number), qos=qos_of(number))


def take_all(life: Life, name: str) -> list[int]:
    """Everything that waits for a reader, acknowledged, in the order in which it came."""
    found: list[int] = []
    with arrive(life, name) as reader:
        while len(found) < EACH:
            packet = reader.receive_publish()
            assert not packet.dup
            found.append(int(packet.payload.split(b".")[0]))
        reader.ping()
    return found


@pytest.mark.parametrize("end", [Life.kill, Life.stop], ids=["killed", "stopped"])
def test_long_queues_come_back_in_order_and_not_into_memory(
    tmp_path: Path, end: Callable[[Life], int]
) -> None:
    life = Life(data=tmp_path / "data")
    life.start()
    empty = resident_bytes(life)
    fill(life)
    end(life)
    life.start()

    assert READERS * EACH * PAYLOAD_BYTES > 3 * ROOM
    grown = resident_bytes(life) - empty
    assert grown < ROOM, f"{grown / MIB:.1f} MiB for queues that nobody reads"
    for index in range(READERS):
        found = take_all(life, f"reader-{index}")
        for qos in (1, 2):
            of_qos = [number for number in range(EACH) if qos_of(number) == qos]
            assert [number for number in found if qos_of(number) == qos] == of_qos
    life.kill()
