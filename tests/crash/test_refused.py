"""`queue_policy = "refuse"`: nothing that was acknowledged is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.crash.test_durability_by_topic import arrive, living, subscribe, waiting_for
from tests.wire import Wire

LAX, STRICT = range(2)
FULL = 0x97

CONFIG = """
    [[listeners]]
    name = "lax"
    address = "127.0.0.1:0"
    anonymous = true

    [[listeners]]
    name = "strict"
    address = "127.0.0.1:0"
    anonymous = true
    queue_policy = "refuse"

    [[topics]]
    filter = "alarm/#"
    queue_policy = "refuse"

    [[topics]]
    filter = "noise/#"
    queue_policy = "drop"

    [[plugins]]
    use = "tests.crash.plugins:Wishes"

    [limits]
    queue_disk_bytes = 5000
    queue_deadline_s = 0.2
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker whose sessions hold a handful of messages."""
    with living(tmp_path, CONFIG) as server:
        yield server


def fill(server: ServerProcess) -> list[bytes]:
    """Publishes until that is refused; answers with what was acknowledged."""
    with Wire(server.ports[STRICT]) as writer:
        writer.connect("filler")
        for number in range(100):
            payload = b"%d" % number + bytes(1_000)
            if writer.publish("t", payload, qos=1).reason == FULL:
                return [b"%d" % taken + bytes(1_000) for taken in range(number)]
    raise AssertionError("never refused")


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_messages_under_refuse_are_kept_and_the_others_are_refused(
    server: ServerProcess, qos: int
) -> None:
    subscribe(server, LAX, "reader")
    taken = fill(server)
    assert len(taken) >= 4

    server.crash()

    refused = {}
    for name, listener, topic, wish in (
        ("listener", STRICT, "t", None),
        ("topic", LAX, "alarm/1", None),
        ("grant", LAX, "t", "refuse"),
        ("topic first", STRICT, "noise/1", "refuse"),
        ("grant first", STRICT, "t", "drop"),
    ):
        wire, _ = arrive(server, listener, f"writer by {name}", wish)
        refused[name] = wire.publish(topic, b"!", qos=qos).reason == FULL
        wire.close()
    assert refused == {
        "listener": True,
        "topic": True,
        "grant": True,
        "topic first": False,
        "grant first": False,
    }
    assert waiting_for(server, LAX, "reader") == taken


def test_a_publisher_of_3_1_1_waits_and_is_disconnected_without_an_acknowledgement(
    server: ServerProcess,
) -> None:
    subscribe(server, LAX, "reader")
    taken = fill(server)
    with Wire(server.ports[STRICT], version=4) as writer:
        writer.connect("writer")

        writer.send(mqtt.publish("t", b"!", qos=1, packet_id=1, version=4))

        assert writer.receive_until_close() == []
    assert waiting_for(server, LAX, "reader") == taken
    with Wire(server.ports[STRICT], version=4) as writer:
        writer.connect("writer")
        assert writer.publish("t", b"!", qos=1).kind == mqtt.PUBACK
