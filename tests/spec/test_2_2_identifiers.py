"""Section 2.2 of MQTT 5.0 and 2.3 of 3.1.1: packet identifiers, and properties that are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire

Open = Callable[..., Wire]

WITHOUT_IDENTIFIER = {
    "PUBLISH of QoS 1": lambda version: mqtt.publish("a", qos=1, packet_id=0, version=version),
    "PUBLISH of QoS 2": lambda version: mqtt.publish("a", qos=2, packet_id=0, version=version),
    "SUBSCRIBE": lambda version: mqtt.subscribe("a", packet_id=0, version=version),
    "UNSUBSCRIBE": lambda version: mqtt.unsubscribe("a", packet_id=0, version=version),
}


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-1")
@pytest.mark.spec("5.0", "MQTT-2.2.1-3")
@pytest.mark.parametrize("build", WITHOUT_IDENTIFIER.values(), ids=WITHOUT_IDENTIFIER.keys())
def test_packet_identifier_0_ends_the_connection(
    client: Open, version: int, build: Callable[[int], bytes]
) -> None:
    one = client()

    one.send(build(version))

    one.expect_refusal(0x82)


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-4")
@pytest.mark.spec("5.0", "MQTT-2.2.1-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_takes_identifiers_that_are_not_in_use(
    client: Open, topic: str, qos: int
) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, qos))

    for _ in range(20):
        sender.publish(topic, qos=qos)

    open_ids = [receiver.expect(mqtt.PUBLISH).packet_id for _ in range(20)]
    assert len(set(open_ids)) == 20
    assert 0 not in open_ids


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-4")
@pytest.mark.spec("5.0", "MQTT-2.2.1-4")
def test_the_broker_spares_an_identifier_until_the_last_acknowledgement(
    client: Open, topic: str
) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, 2))
    sender.publish(topic, b"open", qos=2)
    open_id = receiver.expect(mqtt.PUBLISH).packet_id
    receiver.send(mqtt.ack(mqtt.PUBREC, open_id or 0))
    receiver.expect(mqtt.PUBREL)

    for _ in range(40):
        sender.publish(topic, qos=1)

    assert open_id not in [receiver.receive_publish().packet_id for _ in range(40)]


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-5")
@pytest.mark.spec("5.0", "MQTT-2.2.1-2")
def test_a_publish_of_qos_0_has_no_packet_identifier(
    client: Open, version: int, topic: str
) -> None:
    one = client()
    one.subscribe((topic, 2))

    one.publish(topic, b"\x00\x07")

    body = bytes([0, len(topic)]) + topic.encode() + b"\x00" * (version == 5) + b"\x00\x07"
    one.expect_bytes(bytes([0x30, len(body)]) + body)


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-6")
@pytest.mark.spec("5.0", "MQTT-2.2.1-5")
def test_acknowledgements_repeat_the_identifier_of_the_publish(
    client: Open, version: int, topic: str
) -> None:
    one = client()

    for qos in (1, 2):
        one.send(mqtt.publish(topic, qos=qos, packet_id=0xFEDC, version=version))
        first = one.receive()
        assert first.kind == (mqtt.PUBACK if qos == 1 else mqtt.PUBREC)
        assert first.raw[2:4] == b"\xfe\xdc"
    one.send(mqtt.ack(mqtt.PUBREL, 0xFEDC))
    one.expect_bytes(b"\x70\x02\xfe\xdc")


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-6")
@pytest.mark.spec("5.0", "MQTT-2.2.1-5")
def test_pubrel_repeats_the_identifier_of_the_brokers_publish(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, 2))
    one.publish(topic, qos=2, packet_id=0xFEDC)
    number = one.expect(mqtt.PUBLISH).packet_id or 0

    one.send(mqtt.ack(mqtt.PUBREC, number))

    one.expect_bytes(b"\x62\x02" + number.to_bytes(2, "big"))


@pytest.mark.spec("3.1.1", "MQTT-2.3.1-7")
def test_suback_and_unsuback_of_3_1_1_repeat_the_identifier(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, 1), packet_id=0x0102, version=4))
    one.expect_bytes(bytes.fromhex("90 03 01 02 01"))
    one.send(mqtt.unsubscribe(topic, packet_id=0xFFFF, version=4))

    one.expect_bytes(bytes.fromhex("b0 02 ff ff"))


@pytest.mark.spec("5.0", "MQTT-2.2.1-6")
@pytest.mark.spec("5.0", "MQTT-2.2.2-1")
def test_suback_and_unsuback_of_5_0_repeat_the_identifier(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, 1), packet_id=0x0102))
    one.expect_bytes(bytes.fromhex("90 04 01 02 00 01"))
    one.send(mqtt.unsubscribe(topic, packet_id=0xFFFF))

    one.expect_bytes(bytes.fromhex("b0 04 ff ff 00 00"))


@pytest.mark.spec("5.0", "MQTT-2.2.2-1")
@pytest.mark.parametrize(
    "data",
    [b"\x82\x06\x00\x01\x00\x01a\x00", b"\xa2\x05\x00\x01\x00\x01a", b"\x30\x03\x00\x01a"],
    ids=["SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH"],
)
def test_a_packet_of_3_1_1_without_a_property_length_is_malformed(
    client: Open, data: bytes
) -> None:
    one = client()

    one.send(data)

    one.expect_refusal(0x81)


@pytest.mark.spec("5.0", "MQTT-2.2.2-1")
def test_a_connect_without_a_property_length_is_malformed(wire: Open) -> None:
    one = wire()

    one.send(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x01x")

    one.expect_no_entry(0x81)
