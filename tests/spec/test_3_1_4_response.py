"""Section 3.1.4 of MQTT 3.1.1 and 5.0: what the server does about a CONNECT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.spec.plugins import Doorkeeper
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
HEAD = b"\x00\x04MQTT"


def misshapen(version: int) -> dict[str, bytes]:
    """The bodies of CONNECTs that are none."""
    level = bytes([version])
    rest = b"\x00" if version == 5 else b""
    return {
        "nothing": b"",
        "cut in the name": b"\x00\x04MQ",
        "without flags": HEAD + level,
        "cut in keep alive": HEAD + level + b"\x02\x00",
        "cut in the identifier": HEAD + level + b"\x02\x00\x3c" + rest + b"\x00\x02x",
        "bytes behind the end": HEAD + level + b"\x02\x00\x3c" + rest + b"\x00\x01x\x00",
    }


@pytest.mark.spec("3.1.1", "MQTT-3.1.4-1")
@pytest.mark.spec("5.0", "MQTT-3.1.4-1")
@pytest.mark.parametrize("name", misshapen(4))
def test_a_connect_of_the_wrong_form_is_closed(wire: Open, version: int, name: str) -> None:
    one, body = wire(), misshapen(version)[name]

    one.send(bytes([0x10, len(body)]), body)

    if version == 5 and body[6:7]:
        assert one.expect(mqtt.CONNACK).reason == 0x81
    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.1.4-1")
@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (b"\x21\x00\x00", 0x82),
        (b"\x27\x00\x00\x00\x00", 0x82),
        (b"\x17\x02", 0x82),
        (b"\x19\x02", 0x82),
        (b"\x11\x00\x00\x00\x01\x11\x00\x00\x00\x01", 0x82),
        (b"\x16\x00\x01x", 0x82),
        (b"\x01\x00", 0x81),
        (b"\x7f", 0x81),
        (b"\x11\x00", 0x81),
    ],
    ids=[
        "receive maximum 0",
        "maximum packet size 0",
        "problem information 2",
        "response information 2",
        "session expiry twice",
        "authentication data alone",
        "property of another packet",
        "unknown property",
        "cut property",
    ],
)
def test_a_connect_with_wrong_properties_is_refused(
    wire: Open, properties: bytes, reason: int
) -> None:
    one = wire()

    one.send(mqtt.connect("x", props=properties))

    one.expect_no_entry(reason)


@pytest.mark.spec("5.0", "MQTT-3.1.4-2")
@pytest.mark.spec("5.0", "MQTT-3.2.2-7")
def test_a_client_that_fails_a_further_check_is_told_and_closed(
    start_broker: Callable[..., Broker], wire: Open
) -> None:
    one = wire(port=start_broker(Doorkeeper()).port)

    one.connect("x", username="joe", password=b"wrong", reason=0x87)

    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.1.4-2")
@pytest.mark.parametrize("keep", [True, False])
def test_the_same_identifier_ends_the_older_connection(client: Open, *, keep: bool) -> None:
    name = unique("c")
    old = client(name, keep=keep)

    new = client(name, keep=keep)

    old.expect_close()
    new.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.4-3")
@pytest.mark.parametrize("keep", [True, False])
def test_a_takeover_is_told_to_the_older_connection(client: Open, *, keep: bool) -> None:
    name = unique("c")
    old = client(name, keep=keep)

    new = client(name, keep=keep)

    assert old.expect(mqtt.DISCONNECT).reason == 0x8E
    old.expect_close()
    new.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.4-4")
def test_a_valid_connect_of_3_1_1_gets_return_code_0(wire: Open) -> None:
    one = wire()

    one.send(bytes.fromhex("10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 78"))

    one.expect_bytes(bytes.fromhex("20 02 00 00"))


@pytest.mark.spec("5.0", "MQTT-3.1.4-5")
def test_a_valid_connect_of_5_0_gets_reason_code_0(wire: Open) -> None:
    one = wire()

    one.send(bytes.fromhex("10 0e 00 04 4d 51 54 54 05 02 00 3c 00 00 01 78"))

    found = one.expect(mqtt.CONNACK)
    assert (found.raw[0], found.raw[2:4]) == (0x20, b"\x00\x00")


# --- after a refusal -----------------------------------------------------------------------------

REFUSED = {
    "identifier": lambda version: mqtt.connect("a+b", version=version),
    "right": lambda version: mqtt.connect("x", version=version, will=Will(topic="$SYS/x")),
    "level": lambda version: mqtt.connect("x", version=version, level=3 if version == 4 else 6),
    "protocol name": lambda version: mqtt.connect("x", version=version, name=b"NONE"),
    "flags": lambda version: mqtt.connect("x", version=version, flags=0x03),
    "form": lambda version: mqtt.connect("x", version=version)[:1] + b"\x02\x00\x04",
}


@pytest.mark.spec("3.1.1", "MQTT-3.1.4-5")
@pytest.mark.spec("5.0", "MQTT-3.1.4-6")
@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED.keys())
def test_nothing_behind_a_refused_connect_is_done(
    wire: Open, client: Open, version: int, topic: str, build: Callable[[int], bytes]
) -> None:
    watcher, one = client(), wire()
    watcher.subscribe(f"{topic}/#")

    one.send(
        build(version),
        mqtt.subscribe(topic, version=version),
        mqtt.publish(topic, b"smuggled", retain=True, version=version),
        mqtt.publish(topic, b"smuggled", qos=1, packet_id=1, version=version),
        mqtt.connect(topic, version=version),
        mqtt.publish(topic, b"smuggled", version=version),
    )

    found = one.receive_until_close()
    assert all(each.kind == mqtt.CONNACK and each.reason != 0 for each in found)
    assert len(found) <= 1
    watcher.ping()
    late = client()
    late.subscribe(f"{topic}/#")
    late.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.4-5")
@pytest.mark.spec("5.0", "MQTT-3.1.4-6")
def test_nothing_sent_while_the_login_is_decided_is_done_after_a_refusal(
    start_broker: Callable[..., Broker], wire: Open, version: int
) -> None:
    port = start_broker(Doorkeeper()).port
    watcher, one = wire(port=port), wire(port=port)
    watcher.connect("watcher")
    watcher.subscribe("#")

    one.send(
        mqtt.connect("x", version=version, username="joe", password=b"wrong"),
        mqtt.publish("smuggled", version=version),
        mqtt.subscribe("#", version=version),
    )

    assert one.expect(mqtt.CONNACK).reason in (5, 0x87)
    one.expect_close()
    watcher.ping()
