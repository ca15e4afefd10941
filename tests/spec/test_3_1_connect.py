"""Section 3.1 of MQTT 3.1.1 and 5.0: CONNECT, its place, its header and its flags."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import NAMES, Wire, unique

Open = Callable[..., Wire]

NAME = b"\x00\x04MQTT"
HIGH = b"\x00\x3c"
# Connect flags.
CLEAN, WILL, WILL_RETAIN, PASSWORD, USER = 0x02, 0x04, 0x20, 0x40, 0x80


def connect(version: int, flags: int, payload: bytes, will: bytes = b"") -> bytes:
    """A CONNECT by its parts; each of the payload's may be there, whatever `flags` say."""
    properties = b"\x00" if version == 5 else b""
    will = properties + will if will else b""
    body = NAME + bytes([version, flags]) + b"\x00\x3c" + properties + b"\x00\x01x" + will + payload
    return bytes([0x10, len(body)]) + body


# --- 3.1.0 ---------------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.1.0-1")
@pytest.mark.spec("5.0", "MQTT-3.1.0-1")
@pytest.mark.parametrize("kind", range(2, 16), ids=NAMES.__getitem__)
def test_a_connection_that_begins_with_another_packet_is_closed(wire: Open, kind: int) -> None:
    one = wire()
    flags = 2 if kind in (mqtt.PUBREL, mqtt.SUBSCRIBE, mqtt.UNSUBSCRIBE) else 0

    one.send(bytes([kind << 4 | flags, 0x02, 0x00, 0x01]))

    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.1.0-1")
@pytest.mark.spec("5.0", "MQTT-3.1.0-1")
def test_nothing_that_comes_before_connect_is_done(
    wire: Open, client: Open, version: int, topic: str
) -> None:
    watcher, one = client(), wire()
    watcher.subscribe(topic)

    one.send(
        mqtt.publish(topic, b"too early", version=version),
        mqtt.connect(unique("c"), version=version),
        mqtt.publish(topic, b"too early", version=version),
    )

    one.expect_close()
    watcher.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.0-2")
@pytest.mark.spec("5.0", "MQTT-3.1.0-2")
def test_a_second_connect_ends_the_connection(client: Open, version: int) -> None:
    one = client()

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_refusal(0x82)


# --- 3.1.2: protocol name and level, reserved flag -----------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-1")
@pytest.mark.spec("5.0", "MQTT-3.1.2-1")
@pytest.mark.parametrize("name", [b"", b"mqtt", b"MQTt", b"MQTT ", b"MQTTMQTT", b"HTTP", b"MQIsd"])
def test_another_protocol_name_is_closed(wire: Open, version: int, name: bytes) -> None:
    one = wire()

    one.send(mqtt.connect("x", version=version, name=name))

    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_level_before_3_1_1_is_refused_with_return_code_1(wire: Open, level: int) -> None:
    one = wire()

    one.send(mqtt.connect("x", version=4, level=level))

    one.expect_bytes(bytes.fromhex("20 02 00 01"))
    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [6, 7, 127, 255])
def test_a_version_after_5_0_is_refused_with_reason_0x84(wire: Open, level: int) -> None:
    one = wire()

    one.send(mqtt.connect("x", level=level))

    one.expect_bytes(bytes.fromhex("20 03 00 84 00"))
    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-3")
@pytest.mark.spec("5.0", "MQTT-3.1.2-3")
def test_the_reserved_connect_flag_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | 0x01, b""))

    one.expect_no_entry(0x81)


# --- 3.1.2: will, user name and password flags ---------------------------------------------------

WILL_FIELDS = b"\x00\x01w\x00\x01p"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-9")
@pytest.mark.spec("5.0", "MQTT-3.1.2-9")
@pytest.mark.parametrize("fields", [b"", b"\x00\x01w"], ids=["nothing", "topic only"])
def test_a_will_flag_without_all_fields_of_the_will_is_refused(
    wire: Open, version: int, fields: bytes
) -> None:
    one = wire()

    one.send(connect(version, CLEAN | WILL, b"", will=fields))

    one.expect_no_entry(0x81)


@pytest.mark.spec("5.0", "MQTT-3.1.2-9")
def test_a_will_without_a_property_length_is_refused(wire: Open) -> None:
    one = wire()

    one.send(connect(5, CLEAN | WILL, WILL_FIELDS))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-9")
@pytest.mark.spec("5.0", "MQTT-3.1.2-9")
def test_a_will_flag_with_all_fields_of_the_will_is_accepted(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | WILL, b"", will=WILL_FIELDS))

    assert one.expect(mqtt.CONNACK).reason == 0
    one.disconnect()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-11")
def test_fields_of_a_will_without_its_flag_are_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN, b"", will=WILL_FIELDS))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-11")
@pytest.mark.spec("3.1.1", "MQTT-3.1.2-13")
@pytest.mark.spec("5.0", "MQTT-3.1.2-11")
@pytest.mark.parametrize("will_qos", [1, 2])
def test_a_will_qos_without_a_will_is_refused(wire: Open, version: int, will_qos: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | will_qos << 3, b""))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-11")
@pytest.mark.spec("3.1.1", "MQTT-3.1.2-15")
@pytest.mark.spec("5.0", "MQTT-3.1.2-13")
def test_will_retain_without_a_will_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | WILL_RETAIN, b""))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-14")
@pytest.mark.spec("5.0", "MQTT-3.1.2-12")
def test_will_qos_3_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | WILL | 3 << 3, b"", will=WILL_FIELDS))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-18")
@pytest.mark.spec("5.0", "MQTT-3.1.2-16")
def test_a_user_name_without_its_flag_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN, b"\x00\x04user"))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-19")
@pytest.mark.spec("5.0", "MQTT-3.1.2-17")
def test_a_user_name_flag_without_a_user_name_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | USER, b""))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-20")
@pytest.mark.spec("5.0", "MQTT-3.1.2-18")
def test_a_password_without_its_flag_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | USER, b"\x00\x04user\x00\x04pass"))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-21")
@pytest.mark.spec("5.0", "MQTT-3.1.2-19")
def test_a_password_flag_without_a_password_is_refused(wire: Open, version: int) -> None:
    one = wire()

    one.send(connect(version, CLEAN | USER | PASSWORD, b"\x00\x04user"))

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-22")
def test_a_password_without_a_user_name_is_closed(wire: Open) -> None:
    one = wire()

    one.send(connect(4, CLEAN | PASSWORD, b"\x00\x04pass"))

    one.expect_close()


@pytest.mark.beyond("5.0")
def test_a_password_without_a_user_name_may_come_in_5_0(wire: Open) -> None:
    one = wire()

    one.send(connect(5, CLEAN | PASSWORD, b"\x00\x04pass"))

    assert one.expect(mqtt.CONNACK).reason == 0
