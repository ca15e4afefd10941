"""Section 2.1 of MQTT 5.0 and 2.2 of 3.1.1: the flags of the first byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import NAMES, Wire

Open = Callable[..., Wire]

# What a client may send behind CONNECT, with the flags that it must have, and a body for it.
BODIES = {
    (mqtt.PUBACK, 0): b"\x02\x00\x07",
    (mqtt.PUBREC, 0): b"\x02\x00\x07",
    (mqtt.PUBREL, 2): b"\x02\x00\x07",
    (mqtt.PUBCOMP, 0): b"\x02\x00\x07",
    (mqtt.SUBSCRIBE, 2): b"\x06\x00\x01\x00\x01a\x00",
    (mqtt.UNSUBSCRIBE, 2): b"\x05\x00\x01\x00\x01a",
    (mqtt.PINGREQ, 0): b"\x00",
    (mqtt.DISCONNECT, 0): b"\x00",
}


def with_wrong_flags() -> list[object]:
    """Each packet with each flag turned over."""
    return [
        pytest.param(bytes([kind << 4 | flags ^ bit]) + body, id=f"{NAMES[kind]}-{flags ^ bit:04b}")
        for (kind, flags), body in BODIES.items()
        for bit in (1, 2, 4, 8)
    ]


@pytest.mark.spec("3.1.1", "MQTT-2.2.2-1")
@pytest.mark.spec("3.1.1", "MQTT-2.2.2-2")
@pytest.mark.spec("5.0", "MQTT-2.1.3-1")
@pytest.mark.parametrize("data", with_wrong_flags())
def test_wrong_flags_end_the_connection(client: Open, data: bytes) -> None:
    one = client()

    one.send(data)

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-2.2.2-2")
@pytest.mark.spec("5.0", "MQTT-2.1.3-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_a_connect_with_wrong_flags_is_refused(wire: Open, version: int, flags: int) -> None:
    one = wire()

    one.send(bytes([0x10 | flags]) + mqtt.connect("x", version=version)[1:])

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-2.2.2-1")
@pytest.mark.spec("5.0", "MQTT-2.1.3-1")
def test_the_brokers_packets_carry_the_fixed_flags(wire: Open, version: int, topic: str) -> None:
    one = wire()
    one.send(mqtt.connect(topic, version=version))
    first_bytes = [one.receive().raw[0]]
    for data in (
        mqtt.subscribe((topic, 2), version=version),
        mqtt.unsubscribe("other", version=version),
        mqtt.publish("other", qos=1, packet_id=1, version=version),
        mqtt.publish("other", qos=2, packet_id=2, version=version),
        mqtt.ack(mqtt.PUBREL, 2),
        mqtt.pingreq(),
        mqtt.ack(mqtt.PUBREC, 9),
    ):
        one.send(data)
        first_bytes.append(one.receive().raw[0])

    assert bytes(first_bytes) == bytes.fromhex("20 90 b0 40 50 70 d0 62")


@pytest.mark.spec("5.0", "MQTT-2.1.3-1")
def test_the_brokers_disconnect_carries_the_fixed_flags(client: Open, version: int) -> None:
    one = client()

    one.send(mqtt.connect("x", version=version))

    assert one.receive().raw[0] == 0xE0
