"""Levels by listener, topic and client: what a killed broker (SIGKILL) has kept, and what not."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.crash.test_acknowledged import HOUR, waiting
from tests.wire import Wire

BASE, OS, MEMORY = range(3)

LISTENERS = """
    [[listeners]]
    name = "base"
    address = "127.0.0.1:0"
    anonymous = true

    [[listeners]]
    name = "os"
    address = "127.0.0.1:0"
    anonymous = true
    durability = "os"

    [[listeners]]
    name = "memory"
    address = "127.0.0.1:0"
    anonymous = true
    durability = "memory"

    [[topics]]
    filter = "lost/#"
    durability = "memory"

    [[topics]]
    filter = "kept/#"
    durability = "fsync"

    [[plugins]]
    use = "tests.crash.plugins:Wishes"
"""


@contextlib.contextmanager
def living(folder: Path, text: str) -> Iterator[ServerProcess]:
    """A broker with this configuration, over a folder of its own."""
    config = folder / "mqttcore.toml"
    config.write_text(textwrap.dedent(text))
    server = ServerProcess(data=folder / "data", config=config)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker with the durability ``fsync``, with the listeners and the topics above."""
    with living(tmp_path, LISTENERS) as server:
        yield server


def arrive(
    server: ServerProcess, listener: int, name: str, wish: str | None = None
) -> tuple[Wire, bool]:
    """A client whose session is to be kept, and whether it was."""
    wire = Wire(server.ports[listener])
    connack = wire.connect(
        name, clean=False, props=HOUR, username=wish, password=b"" if wish else None
    )
    return wire, connack.session_present


def subscribe(server: ServerProcess, listener: int, name: str, wish: str | None = None) -> None:
    wire, _ = arrive(server, listener, name, wish)
    wire.subscribe(("#", 2))
    wire.disconnect()


def waiting_for(server: ServerProcess, listener: int, name: str) -> list[bytes]:
    """Queued messages of a stored session."""
    wire, is_resumed = arrive(server, listener, name)
    assert is_resumed
    with wire:
        return [one.payload for one in waiting(wire) if one.kind == mqtt.PUBLISH]


def test_os_survives_the_process_and_memory_does_not(server: ServerProcess) -> None:
    for listener, name in ((BASE, "base"), (OS, "os"), (MEMORY, "memory")):
        subscribe(server, listener, name)
    for listener in (BASE, OS, MEMORY):
        with Wire(server.ports[listener]) as writer:
            writer.connect("writer")
            writer.publish("t", b"%d" % listener, qos=1)
            writer.publish(f"r/{listener}", b"%d, retained" % listener, qos=2, retain=True)

    server.crash()

    expected = [b"0", b"0, retained", b"1", b"1, retained"]
    assert waiting_for(server, BASE, "base") == expected
    assert waiting_for(server, OS, "os") == expected
    wire, is_resumed = arrive(server, MEMORY, "memory")
    assert not is_resumed
    wire.subscribe(("r/+", 0))
    found = [one.payload for one in waiting(wire) if one.kind == mqtt.PUBLISH]
    assert sorted(found) == [b"0, retained", b"1, retained"]
    wire.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_topic_says_how_its_messages_are_kept(server: ServerProcess, qos: int) -> None:
    subscribe(server, BASE, "reader")
    for listener in (BASE, MEMORY):
        with Wire(server.ports[listener]) as writer:
            writer.connect("writer")
            writer.publish("lost/t", b"lost", qos=qos, retain=True)
            writer.publish("kept/t", b"kept", qos=qos, retain=True)

    server.crash()

    assert waiting_for(server, BASE, "reader") == [b"kept", b"kept"]
    with Wire(server.ports[BASE]) as late:
        late.connect("late")
        late.subscribe(("#", 0))
        assert [one.topic for one in waiting(late) if one.kind == mqtt.PUBLISH] == ["kept/t"]


def test_a_grant_says_how_its_client_is_kept(server: ServerProcess) -> None:
    for wish in ("memory", "os", "fsync"):
        subscribe(server, BASE, wish, wish)
    with Wire(server.ports[MEMORY]) as writer:
        writer.connect("writer", username="os", password=b"")
        writer.publish("t", b"kept", qos=1)
        writer.disconnect()
    with Wire(server.ports[OS]) as writer:
        writer.connect("writer", username="memory", password=b"")
        writer.publish("t", b"lost", qos=1)

    server.crash()

    for wish in ("os", "fsync"):
        wire, is_resumed = arrive(server, BASE, wish, wish)
        assert is_resumed
        assert [one.payload for one in waiting(wire) if one.kind == mqtt.PUBLISH] == [b"kept"]
        wire.close()
    wire, is_resumed = arrive(server, BASE, "memory", "memory")
    assert not is_resumed
    wire.close()


def test_the_banner_and_sys_name_the_durability(server: ServerProcess) -> None:
    assert server.durability == (
        "fsync; os at os; memory at memory; memory on lost/#; fsync on kept/#"
    )
    with Wire(server.port) as wire:
        wire.connect("restricted", username="memory", password=b"")
        assert wire.subscribe(("$SYS/broker/durability", 0)).reasons == (0x87,)
    with Wire(server.port) as wire:
        wire.connect("reader")
        wire.subscribe(("$SYS/broker/durability", 0))
        assert wire.receive_publish().payload.decode() == server.durability
        wire.subscribe(("$SYS/broker/store/segments", 0))
        assert wire.receive_publish().payload.isdigit()


def test_durability_may_be_memory_but_for_some_topics(tmp_path: Path) -> None:
    text = """
        durability = "memory"

        [[listeners]]
        name = "base"
        address = "127.0.0.1:0"
        anonymous = true

        [[listeners]]
        name = "os"
        address = "127.0.0.1:0"
        anonymous = true
        durability = "os"

        [[topics]]
        filter = "kept/#"
        durability = "os"
    """
    with living(tmp_path, text) as server:
        subscribe(server, BASE, "careless")
        subscribe(server, OS, "reader")
        with Wire(server.ports[BASE]) as writer:
            writer.connect("writer")
            writer.publish("kept/t", b"kept", qos=1)
            writer.publish("t", b"lost", qos=1)

        server.crash()

        assert server.durability == "memory; os at os; os on kept/#"
        assert waiting_for(server, OS, "reader") == [b"kept"]
        wire, is_resumed = arrive(server, BASE, "careless")
        wire.close()
        assert not is_resumed
