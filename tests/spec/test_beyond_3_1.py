"""MQTT 3.1 (level 3, `MQIsdp`), which has no numbered statements: its own bytes, over the wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]

HEAD = b"\x00\x06MQIsdp\x03"


def connect(flags: int, payload: bytes, *, keep_alive: bytes = b"\x00\x3c") -> bytes:
    """A CONNECT of 3.1 by its parts."""
    body = HEAD + bytes([flags]) + keep_alive + payload
    return bytes([0x10, len(body)]) + body


@pytest.mark.beyond("3.1")
def test_a_session_of_3_1_byte_by_byte(wire: Open) -> None:
    one = wire()
    for sent, answered in (
        ("10 0f 00 06 4d 51 49 73 64 70 03 02 00 3c 00 01 62", "20 02 00 00"),
        ("82 0f 00 01 00 03 61 2f 62 01 00 04 2b 2f 6e 6f 02", "90 04 00 01 01 02"),
        ("c0 00", "d0 00"),
        ("30 06 00 03 61 2f 62 21", "30 06 00 03 61 2f 62 21"),
        ("32 09 00 04 78 2f 6e 70 00 04 21", "40 02 00 04"),
        ("34 09 00 04 78 2f 6e 70 00 05 21", "50 02 00 05"),
        ("62 02 00 05", "70 02 00 05"),
        ("a2 07 00 02 00 03 61 2f 62", "b0 02 00 02"),
    ):
        one.send(bytes.fromhex(sent))
        one.expect_bytes(bytes.fromhex(answered))

    one.send(bytes.fromhex("e0 00"))

    one.expect_close()


@pytest.mark.beyond("3.1")
def test_connack_of_3_1_does_not_tell_of_a_session(client: Open, wire: Open, topic: str) -> None:
    client(topic, keep=True).subscribe((topic, 1))
    one = wire()

    one.send(mqtt.connect(topic, version=3, clean=False))

    one.expect_bytes(bytes.fromhex("20 02 00 00"))
    client().publish(topic, b"resumed", qos=1)
    assert one.receive_publish().payload == b"resumed"


@pytest.mark.beyond("3.1")
def test_the_reserved_connect_flag_means_nothing_in_3_1(wire: Open) -> None:
    one = wire()

    one.send(connect(0x03, b"\x00\x01x"))

    one.expect_bytes(bytes.fromhex("20 02 00 00"))


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("flags", [0xC2, 0x82], ids=["user and password", "user"])
def test_a_login_of_3_1_that_is_announced_may_be_left_out(wire: Open, flags: int) -> None:
    one = wire()

    one.send(connect(flags, b"\x00\x01x"))

    one.expect_bytes(bytes.fromhex("20 02 00 00"))


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("length", [23, 24, 64])
def test_a_client_identifier_of_3_1_may_be_longer_than_23_bytes(client: Open, length: int) -> None:
    client(unique("c").ljust(length, "x")).ping()


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_client_identifier_of_3_1_is_refused(wire: Open, *, clean: bool) -> None:
    one = wire()

    one.send(connect(0x02 if clean else 0x00, b"\x00\x00"))

    one.expect_bytes(bytes.fromhex("20 02 00 02"))
    one.expect_close()


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("level", [0, 1, 2, 4, 5, 255])
def test_another_level_under_the_name_of_3_1_is_refused(wire: Open, level: int) -> None:
    one = wire()

    one.send(mqtt.connect("x", version=3, level=level))

    one.expect_bytes(bytes.fromhex("20 02 00 01"))
    one.expect_close()


@pytest.mark.beyond("3.1")
def test_requests_of_3_1_may_say_that_they_are_repeated(client: Open, topic: str) -> None:
    one = client()
    one.publish(f"{topic}/x", qos=1)
    one.send(mqtt.publish(f"{topic}/x", qos=2, packet_id=7, version=3))
    one.expect(mqtt.PUBREC)

    repeated = bytes([0, len(topic)]) + topic.encode()
    one.send(bytes([0x8A, 2 + len(repeated) + 1, 0, 1]) + repeated + b"\x01")
    one.expect_bytes(bytes.fromhex("90 03 00 01 01"))
    one.send(bytes.fromhex("6a 02 00 07"))
    one.expect_bytes(bytes.fromhex("70 02 00 07"))
    one.send(bytes([0xAA, 2 + len(repeated), 0, 2]) + repeated)

    one.expect_bytes(bytes.fromhex("b0 02 00 02"))


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("first", [0xF0, 0x00, 0x36, 0x38])
def test_what_3_1_does_not_have_ends_the_connection(client: Open, first: int) -> None:
    one = client()

    one.send(bytes([first, 0x06]) + b"\x00\x01a\x00\x01x")

    one.expect_close()


@pytest.mark.beyond("3.1")
def test_a_will_of_3_1_is_published(client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe((topic, 2))

    client(will=Will(topic=topic, payload=b"gone", qos=2, retain=True)).reset()

    found = watcher.receive_publish()
    assert (found.payload, found.qos, found.retain) == (b"gone", 2, False)
    watcher.publish(topic, b"", retain=True)


@pytest.mark.beyond("3.1")
def test_a_redelivery_of_3_1_has_dup_set(client: Open, topic: str) -> None:
    old = client(topic, keep=True)
    old.subscribe((topic, 1))
    client().publish(topic, b"x", qos=1)
    first = old.expect(mqtt.PUBLISH)
    old.close()

    again = client(topic, keep=True).receive_publish()

    assert (again.dup, again.packet_id) == (True, first.packet_id)


@pytest.mark.beyond("3.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_of_3_1_that_is_not_allowed_is_acknowledged(client: Open, qos: int) -> None:
    watcher, one = client(), client()
    name = unique("$SYS/not-yours")
    watcher.subscribe(name)

    one.publish(name, b"x", qos=qos)

    watcher.ping()
