"""The run on a full disk in small, and what is told of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import full
from tests.crash.small_disk import SmallDisk
from tests.wire import Wire


@pytest.mark.parametrize("may_mount", [True, False], ids=["tmpfs", "shim"])
def test_a_full_disk_costs_nothing_that_was_acknowledged(tmp_path: Path, may_mount: bool) -> None:
    outcome = full.run(tmp_path, cycles=2, seed=1, may_mount=may_mount)

    assert outcome.faults == []
    assert outcome.lines()[-1] == (
        "2 cycles: 0 lost, 0 doubled, 0 reordered, 0 sessions lost, 0 unexplained"
    )
    assert outcome.ledger.count(1) > (0, 0)
    # Some were refused, and nobody got them.
    assert outcome.ledger.unacknowledged() >= 4


PROGRAM = """
import sys
from mqttcore import Broker, Settings
from mqttcore.config import ServerLimits, Listener
from mqttcore.errors import OverloadedError

listener = Listener(address="127.0.0.1:0", anonymous=True)
deep = ServerLimits(queue_messages=1_000_000, queue_bytes=4_000_000_000)
with Broker(Settings(listeners=(listener,), data=sys.argv[1], limits=deep)) as broker:
    print(broker.port, flush=True)
    sys.stdin.readline()
    try:
        while True:
            broker.publish("t", bytes(200_000), qos=1)
    except OverloadedError as error:
        print(error, flush=True)
    for retain in (False, True):
        try:
            broker.publish("r", b"!", retain=retain)
            print("taken", flush=True)
        except OverloadedError as error:
            print(error, flush=True)
    print(broker.publish("near", b"!", qos=1), broker.publish("r", b"", qos=1, retain=True))
"""


def test_a_program_is_told_that_the_disk_is_nearly_full(tmp_path: Path) -> None:
    with SmallDisk(tmp_path, full.SIZE_BYTES, may_mount=False) as disk:
        server = disk.server()
        command = [sys.executable, "-c", PROGRAM, str(server.data)]
        with subprocess.Popen(  # noqa: S603 -- our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=server.environment,
        ) as process:
            assert process.stdout is not None
            with Wire(int(process.stdout.readline())) as reader:
                reader.connect("reader", clean=False, props={"session_expiry_interval": 60})
                reader.subscribe(("t", 1))
            told, _ = process.communicate("go on\n", timeout=60)

    said = "the disk is nearly full"
    assert told.splitlines() == [said, "taken", said, "0 0"]


@pytest.mark.parametrize("may_mount", [True, False], ids=["tmpfs", "shim"])
def test_a_small_disk_is_one(tmp_path: Path, may_mount: bool) -> None:
    with SmallDisk(tmp_path, 8 << 20, may_mount=may_mount) as disk:
        before = disk.free_bytes()
        disk.fill(leave_bytes=1 << 20)
        assert disk.free_bytes() == 1 << 20
        disk.empty()

        assert before == disk.free_bytes()
        assert 7 << 20 <= before <= 8 << 20
