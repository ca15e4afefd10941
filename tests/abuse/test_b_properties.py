"""Abuse table B: strings, properties, payload format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
LONG = b"\x00\x20short"
"""A string that ends behind its packet."""


@pytest.mark.parametrize(
    "data",
    [
        mqtt.packet(0x30, LONG),
        mqtt.packet(0x82, b"\x00\x01", LONG),
        mqtt.packet(0xA2, b"\x00\x01", LONG),
    ],
    ids=["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"],
)
def test_b01_a_string_that_ends_behind_its_packet(client: Open, version: int, data: bytes) -> None:
    one = client(version=version)
    if version == 5 and data[0] != 0x30:
        data = mqtt.packet(data[0], b"\x00\x01", b"\x00", LONG)

    one.send(data, mqtt.pingreq() * 20)

    one.expect_refusal(0x81)


@pytest.mark.parametrize("flags", [0x02, 0x06, 0xC2], ids=["id", "will", "login"])
def test_b01_a_string_of_connect_that_ends_behind_it(wire: Open, version: int, flags: int) -> None:
    one = wire(version=version)
    whole = mqtt.connect("c", version=version, flags=flags)

    one.send(mqtt.packet(0x10, whole[2:-3], LONG))

    one.expect_no_entry(0x81)


@pytest.mark.parametrize(
    "topic",
    [b"\xc0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xff"],
    ids=["overlong", "cut", "beyond", "ff"],
)
def test_b02_a_topic_that_is_not_utf_8(client: Open, version: int, topic: bytes) -> None:
    one = client(version=version)

    one.send(mqtt.publish(b"b02/" + topic, version=version))

    one.expect_refusal(0x81)


def test_b03_a_surrogate_in_a_filter(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe(b"b03/\xed\xa0\x80", version=version))

    one.expect_refusal(0x81)


def test_b04_a_null_in_a_topic(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.publish(b"b04/\x00", version=version))

    one.expect_refusal(0x81)


def test_b04_a_null_in_a_filter(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe(b"b04/\x00", version=version))

    one.expect_refusal(0x81)


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
def test_b04_a_null_in_a_client_identifier_of_3_x(wire: Open, version: int) -> None:
    one = wire(version=version)

    one.send(mqtt.connect(b"b04\x00", version=version))

    one.expect_close()


def test_b04_a_null_in_a_client_identifier_of_5_0(wire: Open) -> None:
    one = wire()

    one.connect(b"b04\x00", reason=0x81)

    one.expect_close()


@pytest.mark.parametrize(
    "text",
    ["a\x01b", "a\x1fb", "a\x7fb", "a\x85b", "a\ufdd0b", "a\ufffeb"],
    ids=lambda text: f"U+{ord(text[1]):04X}",
)
def test_b05_a_control_or_non_character(client: Open, wire: Open, version: int, text: str) -> None:
    publisher, subscriber = client(version=version), client(version=version)
    named, login = wire(version=version), wire(version=version)

    publisher.send(mqtt.publish(text, version=version))
    subscriber.send(mqtt.subscribe(text, version=version))
    named.connect(text, reason=0x85 if version == 5 else 2)
    login.connect(unique("c"), username=text, password=b"x", reason=0x86 if version == 5 else 4)

    publisher.expect_refusal(0x90)
    subscriber.expect_refusal(0x8F)
    named.expect_close()
    login.expect_close()


def test_b06_a_byte_order_mark_is_data(client: Open, version: int) -> None:
    one = client(version=version)
    topic = f"\ufeff{unique()}"
    one.subscribe(topic)

    one.publish(topic.removeprefix("\ufeff"), b"other")
    one.publish(topic, b"x")

    assert one.receive_publish().payload == b"x"


@pytest.mark.parametrize(
    "data",
    [
        mqtt.packet(0x30, mqtt.text("b07"), b"\x7f", b"\x01\x00"),
        mqtt.packet(0x30, mqtt.text("b07"), b"\x03", mqtt.one_property("content_type", "abc")),
        mqtt.packet(0x82, b"\x00\x01", b"\x7f", mqtt.text("b07"), b"\x00"),
        mqtt.packet(0x82, b"\x00\x01", b"\x01\x0b\x01", mqtt.text("b07"), b"\x00"),
        mqtt.packet(0xE0, b"\x00", b"\x20\x1f\x00\x01a"),
    ],
    ids=["publish-beyond", "publish-short", "subscribe-beyond", "subscribe-short", "disconnect"],
)
def test_b07_a_property_length_that_is_not_that_of_its_contents(client: Open, data: bytes) -> None:
    one = client()

    one.send(data, mqtt.pingreq() * 100)

    one.expect_refusal(0x81)


@pytest.mark.parametrize("length", [b"\x7f", b"\x04"], ids=["beyond", "short"])
def test_b07_in_connect(wire: Open, length: bytes) -> None:
    one = wire()
    expiry = mqtt.one_property("session_expiry_interval", 60)

    one.send(mqtt.packet(0x10, mqtt.text("MQTT"), b"\x05\x02\x00\x3c", length, expiry, b"\x00\x00"))

    one.expect_no_entry(0x81)


def test_b08_a_property_length_of_five_bytes(client: Open, wire: Open) -> None:
    one, newcomer = client(), wire()
    five = b"\x80\x80\x80\x80\x01"

    one.send(mqtt.packet(0x30, mqtt.text("b08"), five))
    newcomer.send(mqtt.packet(0x10, mqtt.text("MQTT"), b"\x05\x02\x00\x3c", five, b"\x00\x00"))

    one.expect_refusal(0x81)
    newcomer.expect_no_entry(0x81)


@pytest.mark.parametrize(
    "props",
    [b"\x7f\x00", b"\x12\x00\x01a", b"\x11\x00\x00\x00\x01"],
    ids=["unknown", "of CONNACK", "of CONNECT"],
)
def test_b09_a_property_that_does_not_belong_there(client: Open, topic: str, props: bytes) -> None:
    one = client()

    one.send(mqtt.publish(topic, props=props))

    one.expect_refusal(0x81)


def test_b10_a_single_property_twice(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props=b"\x01\x00\x01\x00"))

    one.expect_refusal(0x82)


def test_b11_a_boolean_of_two(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"payload_format_indicator": 2}))

    one.expect_refusal(0x82)


@pytest.mark.parametrize("name", ["receive_maximum", "maximum_packet_size"])
def test_b12_a_maximum_of_zero(wire: Open, name: str) -> None:
    one = wire()

    one.connect(unique("c"), props={name: 0}, reason=0x82)

    one.expect_close()


def test_b12_a_subscription_identifier_of_zero(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe(topic, props={"subscription_identifier": 0}))

    one.expect_refusal(0x82)


def test_b12_a_subscription_identifier_that_cannot_be_encoded(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe(topic, props=b"\x0b\x80\x80\x80\x80\x01"))

    one.expect_refusal(0x81)


def test_b13_more_user_properties_than_allowed_in_a_publish(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"user_property": [("a", "b")] * 65}))

    assert one.expect(mqtt.DISCONNECT).reason in (0x95, 0x97)
    one.expect_close()


def test_b13_sixty_thousand_user_properties(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"user_property": [("a", "b")] * 60_000}))

    assert one.expect(mqtt.DISCONNECT).reason in (0x95, 0x97)
    one.expect_close()


def test_b13_user_properties_of_too_many_bytes(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"user_property": [("a", "b" * 17_000)]}))

    assert one.expect(mqtt.DISCONNECT).reason in (0x95, 0x97)
    one.expect_close()


def test_b13_as_many_user_properties_as_allowed(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic)
    pairs = [("a", str(number)) for number in range(64)]

    one.publish(topic, props={"user_property": pairs})

    assert one.receive_publish().property("user_property") == pairs


def test_b15_a_payload_that_only_claims_to_be_text_passes(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic)

    one.publish(topic, b"\xff", props={"payload_format_indicator": 1})

    assert one.receive_publish().payload == b"\xff"


def test_b15_a_payload_that_only_claims_to_be_text_is_refused_if_asked_for(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    port = start_broker(payload_format_checked=True).port
    one = client(port=port)
    props = {"payload_format_indicator": 1}

    assert one.publish(topic, "é".encode(), qos=1, props=props).reason in (0x00, 0x10)
    one.send(mqtt.publish(topic, b"\xff", qos=1, packet_id=2, props=props))

    assert one.receive().reason == 0x99


@pytest.mark.parametrize("topic", ["b16/+", "b16/#", "#"])
def test_b16_a_response_topic_with_a_wildcard(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish("b16", props={"response_topic": topic}))

    one.expect_refusal(0x82)


def test_b16_an_empty_response_topic(client: Open) -> None:
    one = client()

    one.send(mqtt.publish("b16", props={"response_topic": ""}))

    one.expect_refusal(0x82)


def test_b16_a_wildcard_in_the_response_topic_of_a_will(wire: Open) -> None:
    one = wire()

    one.connect(
        unique("c"), will=Will(topic="b16", properties={"response_topic": "+"}), reason=0x82
    )

    one.expect_close()


def test_b17_correlation_data_counts_as_bytes_of_the_queue(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    running = start_broker(queue_bytes=300_000)
    session = {"session_expiry_interval": 60}
    away, sender = client("b17", port=running.port, props=session), client(port=running.port)
    away.subscribe((topic, 1))
    away.disconnect()

    large = {"correlation_data": b"x" * 60_000, "response_topic": topic}
    for number in range(1, 21):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number, props=large)

    again = client("b17", port=running.port, clean=False, props=session)
    sender.publish(topic, b"live", qos=1)
    found = []
    while (came := again.receive_publish()).payload != b"live":
        assert came.property("correlation_data") == large["correlation_data"]
        found.append(came.payload)
    assert found == [b"1", b"2", b"3", b"4"]
    assert running.stats()["dropped_queue_full"] == 16


def test_b17_correlation_data_counts_as_bytes_of_the_packet(client: Open, topic: str) -> None:
    one = client()
    large = {"correlation_data": b"x" * 65_535}

    one.send(mqtt.publish(topic, b"x" * 1_048_576, props=large))

    one.expect_refusal(0x95)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_b18_a_message_that_expires_at_once(client: Open, topic: str, qos: int) -> None:
    one, sender = client(), client()
    one.subscribe((topic, qos))

    sender.publish(topic, b"late", qos=qos, props={"message_expiry_interval": 0})
    sender.publish(topic, b"live", qos=qos)

    assert one.receive_publish().payload == b"live"
    one.ping()


def test_b19_a_publish_beyond_the_clients_maximum_is_dropped_whole(
    client: Open, topic: str
) -> None:
    one, other = client(props={"maximum_packet_size": 100}), client()
    one.subscribe((topic, 1))
    props = {"user_property": [("a", "x" * 100)]}

    other.publish(topic, b"large", qos=1, props=props)
    other.publish(topic, b"small", qos=1)

    assert one.receive_publish().payload == b"small"


def test_b19_an_acknowledgement_loses_its_texts_first(client: Open) -> None:
    one = client(props={"maximum_packet_size": 20})

    denied = one.publish("$SYS/x", qos=1)

    assert denied.reason == 0x87
    assert len(denied.raw) <= 20
