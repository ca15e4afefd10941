"""`python -m mqttcore.store` on the folders of real brokers: running, killed and damaged ones."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crash.process import NotUpError, ServerProcess
from tests.crash.test_acknowledged import arrive, leave_subscribed
from tests.unit.test_store import crc32c
from tests.wire import Wire

SEGMENT = "00000000000000000001.log"
DAMAGED = 3
COUNT = 50


def tool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs it."""
    command = [sys.executable, "-m", "mqttcore.store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 -- our own command


@dataclass
class Writer:
    """Publishes one message after the other, and knows which were acknowledged."""

    server: ServerProcess
    acknowledged: list[bytes] = field(default_factory=list)
    thread: threading.Thread = field(init=False)
    is_over: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def end(self) -> None:
        """Waits until its last message is acknowledged."""
        self.is_over.set()
        self.thread.join()

    def run(self) -> None:
        """Until it is told to end."""
        with Wire(self.server.port) as wire:
            wire.connect("writer")
            while not self.is_over.is_set():
                payload = b"%d" % len(self.acknowledged)
                wire.publish("t", payload, qos=1)
                self.acknowledged.append(payload)
                if len(self.acknowledged) == COUNT:
                    self.has_begun.set()


LONG_QUEUES = """
[limits]
queue_messages = 1_000_000
[[listeners]]
anonymous = true
"""


def broker(folder: Path) -> ServerProcess:
    """A broker on a folder, whose queues take whatever comes."""
    config = folder.with_name("queues.toml")
    config.write_text(LONG_QUEUES)
    server = ServerProcess(data=folder, options=("--config", str(config)))
    server.start()
    return server


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A writer at work on a broker whose one subscriber is away."""
    server = broker(tmp_path / "data")
    leave_subscribed(server, ("t", 1))
    writer = Writer(server)
    assert writer.has_begun.wait(60)
    yield writer
    writer.end()
    server.kill()


def received(folder: Path) -> list[bytes]:
    """What the subscriber of a store gets from a broker that is started on it."""
    server = broker(folder)
    try:
        with arrive(server, "last") as last:
            last.publish("t", b"end", qos=1)
        with arrive(server, "reader", present=True) as reader:
            found = iter(lambda: reader.receive_publish().payload, b"end")
            return list(found)
    finally:
        server.kill()


def test_a_running_broker_is_copied_and_goes_on(writer: Writer, tmp_path: Path) -> None:
    server = writer.server
    copies = []
    for number in range(3):
        before = list(writer.acknowledged)
        made = tool("backup", server.data, tmp_path / f"copy{number}")
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["copied_bytes"] > 0
        copies.append(before)
    writer.end()
    server.kill()

    for number, before in enumerate(copies):
        folder = tmp_path / f"copy{number}"
        assert tool("verify", folder).returncode == 0
        found = received(folder)
        assert found[: len(before)] == before
        assert found == writer.acknowledged[: len(found)]
    found = received(server.data)
    assert found[: len(writer.acknowledged)] == writer.acknowledged


def test_a_copy_is_made_where_nothing_is_in_the_way(server: ServerProcess, tmp_path: Path) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "mine").touch()

    refused = tool("backup", server.data, target)

    assert refused.returncode == 1
    assert "full" in refused.stderr
    assert [each.name for each in target.iterdir()] == ["mine"]
    arrive(server, "still").disconnect()


def test_the_folder_of_a_killed_broker_is_copied(server: ServerProcess, tmp_path: Path) -> None:
    leave_subscribed(server, ("t", 1))
    with arrive(server, "writer") as wire:
        wire.publish("t", b"kept", qos=1)
    server.kill()

    made = tool("backup", server.data, tmp_path / "copy")

    assert made.returncode == 0, made.stderr
    assert received(tmp_path / "copy") == [b"kept"]


@pytest.mark.parametrize(
    "command", [("verify",), ("info",), ("dump",), ("repair", "--accept-loss")]
)
def test_the_folder_of_a_running_broker_is_left_alone(
    server: ServerProcess, command: tuple[str, ...]
) -> None:
    name, *options = command

    refused = tool(name, server.data, *options)

    assert refused.returncode == 1
    assert "belongs to another running broker" in refused.stderr
    arrive(server, "still").disconnect()


def test_a_newer_format_is_named(server: ServerProcess) -> None:
    arrive(server, "somebody").disconnect()
    server.kill()
    log = server.data / SEGMENT
    content = log.read_bytes()
    bare = content[:8] + struct.pack("<I", 2) + content[12:60]
    log.write_bytes(bare + struct.pack("<I", crc32c(bare)) + content[64:])

    with pytest.raises(NotUpError, match="has format 2; this version reads formats up to 1"):
        server.start()

    assert "has format 2" in tool("verify", server.data).stderr
    assert "has format 2" in tool("repair", server.data, "--accept-loss").stderr
    assert log.read_bytes()[64:] == content[64:]


@pytest.fixture
def damaged(server: ServerProcess) -> Path:
    """A killed broker's folder with one bit changed in a message that was safe."""
    leave_subscribed(server, ("t", 1))
    with arrive(server, "writer") as wire:
        for number in range(10):
            wire.publish("t", b"payload %d" % number, qos=1)
    server.kill()
    log = server.data / SEGMENT
    content = bytearray(log.read_bytes())
    content[content.index(b"payload 4")] ^= 1
    log.write_bytes(content)
    return server.data


def test_a_damaged_folder_is_refused_with_a_report(server: ServerProcess, damaged: Path) -> None:
    with pytest.raises(NotUpError, match=rf"{SEGMENT} is damaged at \d+ .* LSN \d+ to \d+"):
        server.start()

    found = tool("verify", damaged)
    assert found.returncode == DAMAGED
    assert SEGMENT in found.stderr
    # Without leave nothing is given up.
    assert tool("repair", damaged).returncode == DAMAGED
    with pytest.raises(NotUpError):
        server.start()


def test_a_damaged_folder_is_repaired_and_the_rest_is_there(
    server: ServerProcess, damaged: Path
) -> None:
    done = tool("repair", damaged, "--accept-loss")

    assert done.returncode == DAMAGED
    report = json.loads(done.stdout)
    assert SEGMENT in report["damage"]
    assert report["lost"]
    assert report["set_aside"] == [f"{SEGMENT}.damaged"]
    assert tool("verify", damaged).returncode == 0
    found = received(damaged)
    assert found == [b"payload %d" % number for number in range(10) if number != 4]


def test_a_store_is_reported_and_dumped(server: ServerProcess) -> None:
    leave_subscribed(server, ("t", 1))
    with arrive(server, "writer") as wire:
        wire.publish("t", b"secret", qos=1)
        wire.publish("kept", b"x", qos=1, retain=True)
    server.kill()

    facts = json.loads(tool("info", server.data).stdout)
    dump = tool("dump", server.data).stdout

    assert (facts["sessions"], facts["queued"], facts["retained"]) == (2, 1, 1)
    assert "payload of 6 bytes" in dump
    assert "secret" not in dump


def test_a_broker_that_cannot_be_reached_any_more_is_no_broker(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.kill()
    assert (server.data / "control").exists()

    assert tool("backup", server.data, tmp_path / "copy").returncode == 0
    server.start()
    server.stop()
    assert not (server.data / "control").exists()


SCRUBBING = """
scrub_interval_s = 0.5
sys_interval_s = 0.2
[limits]
queue_bytes = 1_000_000_000
[[listeners]]
anonymous = true
"""


def test_rot_in_old_messages_is_found_while_nobody_reads_them(tmp_path: Path) -> None:
    config = tmp_path / "scrub.toml"
    config.write_text(SCRUBBING)
    server = ServerProcess(data=tmp_path / "data", options=("--config", str(config)))
    server.start()
    leave_subscribed(server, ("t", 1))
    with arrive(server, "writer") as wire:
        while len(list(server.data.glob("*.log"))) < 2:
            wire.publish("t", bytes(200_000), qos=1)
    segment = server.data / SEGMENT
    with segment.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"x")

    with Wire(server.port) as watcher:
        watcher.connect("watcher")
        watcher.subscribe(("$SYS/broker/store/segments/damaged", 0))
        while watcher.receive(within_s=60).payload in (None, b"0"):
            pass

    assert f"the store is damaged: {SEGMENT} is damaged at" in server.log.read_text()
    # It goes on, for as long as nobody wants that message.
    arrive(server, "still").disconnect()
    server.kill()
