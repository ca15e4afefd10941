"""Section 1.5 of MQTT 3.1.1 and 5.0: strings, integers and pairs on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]

ILL_FORMED = {
    "surrogate": b"\xed\xa0\x80",
    "pair of surrogates": b"\xed\xa0\x81\xed\xb0\x80",
    "overlong": b"\xc1\xa1",
    "overlong null": b"\xc0\x80",
    "cut": b"\xe2\x82",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "no lead byte": b"\xbf",
    "never a byte": b"\xff",
}
PACKETS = {
    "topic name": lambda text, version: mqtt.publish(text, version=version),
    "topic filter": lambda text, version: mqtt.subscribe(text, version=version),
    "filter to give up": lambda text, version: mqtt.unsubscribe(text, version=version),
}
CONNECTS = {
    "client id": lambda text, version: mqtt.connect(text, version=version),
    "will topic": lambda text, version: mqtt.connect("x", version=version, will=Will(topic=text)),
    "user name": lambda text, version: mqtt.connect("x", version=version, username=text),
}
PROPERTIES = {
    "content type": lambda text: mqtt.publish("t", props={"content_type": text}),
    "response topic": lambda text: mqtt.publish("t", props={"response_topic": text}),
    "reason string": lambda text: mqtt.disconnect(0, props={"reason_string": text}),
}

Build = Callable[[bytes, int], bytes]


def named(table: Mapping[str, object]) -> dict[str, Any]:
    """A table as parametrize takes it, its keys as the names of the runs."""
    return {"argvalues": table.values(), "ids": table.keys()}


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-1")
@pytest.mark.spec("5.0", "MQTT-1.5.4-1")
@pytest.mark.parametrize("text", **named(ILL_FORMED))
@pytest.mark.parametrize("build", **named(PACKETS))
def test_a_string_that_is_not_utf_8_ends_the_connection(
    client: Open, version: int, build: Build, text: bytes
) -> None:
    one = client()

    one.send(build(b"a" + text, version))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-1")
@pytest.mark.spec("3.1.1", "MQTT-3.1.3-4")
@pytest.mark.spec("3.1.1", "MQTT-3.1.3-10")
@pytest.mark.spec("3.1.1", "MQTT-3.1.3-11")
@pytest.mark.spec("5.0", "MQTT-1.5.4-1")
@pytest.mark.spec("5.0", "MQTT-3.1.3-4")
@pytest.mark.spec("5.0", "MQTT-3.1.3-11")
@pytest.mark.spec("5.0", "MQTT-3.1.3-12")
@pytest.mark.parametrize("text", **named(ILL_FORMED))
@pytest.mark.parametrize("build", **named(CONNECTS))
def test_a_connect_with_a_string_that_is_not_utf_8_is_refused(
    wire: Open, version: int, build: Build, text: bytes
) -> None:
    one = wire()

    one.send(build(b"a" + text, version))

    one.expect_no_entry(0x81)


@pytest.mark.spec("5.0", "MQTT-1.5.4-1")
@pytest.mark.parametrize("text", **named(ILL_FORMED))
@pytest.mark.parametrize("build", **named(PROPERTIES))
def test_a_property_that_is_not_utf_8_ends_the_connection(
    client: Open, build: Callable[[bytes], bytes], text: bytes
) -> None:
    one = client()

    one.send(build(text))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-2")
@pytest.mark.spec("5.0", "MQTT-1.5.4-2")
@pytest.mark.parametrize("build", **named(PACKETS))
@pytest.mark.parametrize("text", [b"\x00", b"\x00b", b"a\x00b", b"a\x00"])
def test_a_string_with_a_null_ends_the_connection(
    client: Open, version: int, build: Build, text: bytes
) -> None:
    one = client()

    one.send(build(text, version))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-2")
@pytest.mark.spec("5.0", "MQTT-1.5.4-2")
@pytest.mark.parametrize("build", **named(CONNECTS))
def test_a_connect_with_a_null_in_a_string_is_refused(
    wire: Open, version: int, build: Build
) -> None:
    one = wire()

    one.send(build(b"a\x00b", version))

    one.expect_no_entry(0x81)


@pytest.mark.spec("5.0", "MQTT-1.5.4-2")
@pytest.mark.parametrize("build", **named(PROPERTIES))
def test_a_property_with_a_null_ends_the_connection(
    client: Open, build: Callable[[bytes], bytes]
) -> None:
    one = client()

    one.send(build(b"a\x00b"))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-3")
@pytest.mark.spec("5.0", "MQTT-1.5.4-3")
@pytest.mark.parametrize("sender", mqtt.VERSIONS)
def test_a_byte_order_mark_arrives_as_it_was_sent(
    client: Open, version: int, topic: str, sender: int
) -> None:
    receiver = client()
    marked = b"\xef\xbb\xbf" + topic.encode() + b"\xef\xbb\xbf"
    receiver.subscribe(marked)

    client(version=sender).publish(marked, b"x")

    length = 2 + len(marked) + 1 + (version == 5)
    properties = b"\x00" if version == 5 else b""
    head = bytes([0x30, length, 0, len(marked)])
    receiver.expect_bytes(head + marked + properties + b"x")


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-3")
@pytest.mark.spec("5.0", "MQTT-1.5.4-3")
def test_a_byte_order_mark_makes_another_topic(client: Open, topic: str) -> None:
    marked, plain, sender = client(), client(), client()
    marked.subscribe("\ufeff" + topic)
    plain.subscribe(topic)

    sender.publish(topic, b"plain")
    sender.publish("\ufeff" + topic, b"marked")

    assert plain.receive_publish().payload == b"plain"
    assert marked.receive_publish().payload == b"marked"
    plain.ping()


@pytest.mark.spec("3.1.1", "MQTT-1.5.3-3")
@pytest.mark.spec("5.0", "MQTT-1.5.4-3")
def test_a_byte_order_mark_makes_another_client(client: Open) -> None:
    name = unique("c")
    plain, marked = client(name), client("\ufeff" + name)

    plain.ping()
    marked.ping()


@pytest.mark.spec("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize(
    "data",
    [
        b"\xc0\x80\x00",
        b"\xc0\x80\x80\x80\x00",
        b"\x82\x08\x00\x01\x80\x00\x00\x01a\x00",
        b"\x82\x0a\x00\x01\x03\x0b\x81\x00\x00\x01a\x00",
    ],
    ids=["remaining length", "of four bytes", "property length", "subscription identifier"],
)
def test_an_integer_of_more_bytes_than_it_needs_is_malformed(client: Open, data: bytes) -> None:
    one = client()

    one.send(data)

    one.expect_refusal(0x81)


@pytest.mark.spec("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize(
    ("length", "encoded"),
    [
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
    ],
)
def test_the_broker_spends_no_byte_too_many_on_a_length(
    client: Open, topic: str, length: int, encoded: bytes
) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)
    payload = b"x" * (length - 2 - len(topic) - 1)

    sender.publish(topic, payload)

    head = b"\x30" + encoded + bytes([0, len(topic)])
    receiver.expect_bytes(head + topic.encode() + b"\x00" + payload)


@pytest.mark.spec("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize(
    ("identifier", "encoded"),
    [
        (127, b"\x02\x0b\x7f"),
        (128, b"\x03\x0b\x80\x01"),
        (268_435_455, b"\x05\x0b\xff\xff\xff\x7f"),
    ],
)
def test_the_broker_spends_no_byte_too_many_on_a_subscription_identifier(
    client: Open, topic: str, identifier: int, encoded: bytes
) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": identifier})

    one.publish(topic)

    head = bytes([0x30, 2 + len(topic) + len(encoded), 0, len(topic)])
    one.expect_bytes(head + topic.encode() + encoded)


@pytest.mark.spec("5.0", "MQTT-1.5.7-1")
@pytest.mark.parametrize("text", [*ILL_FORMED.values(), b"a\x00"])
@pytest.mark.parametrize("half", ["name", "value"])
def test_both_halves_of_a_pair_are_strings(
    client: Open, topic: str, half: str, text: bytes
) -> None:
    one = client()
    bad, good = len(text).to_bytes(2, "big") + text, b"\x00\x01a"
    pair = b"\x26" + (bad + good if half == "name" else good + bad)

    one.send(mqtt.publish(topic, props=pair))

    one.expect_refusal(0x81)


@pytest.mark.spec("5.0", "MQTT-1.5.7-1")
def test_a_pair_of_strings_passes_whole(client: Open, topic: str) -> None:
    one, pair = client(), b"\x26\x00\x00\x00\x03\xef\xbb\xbf"
    one.subscribe(topic)

    one.send(mqtt.publish(topic, props=pair))

    assert one.receive_publish().raw.endswith(b"\x08" + pair)
