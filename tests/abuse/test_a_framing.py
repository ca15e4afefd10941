"""Abuse table A: framing and the fixed header."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from mqttcore.config import ServerLimits

from tests import wire as mqtt
from tests.eventually import eventually
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("first", [0x30, 0x82, 0xC0])
def test_a01_a_length_of_five_bytes_ends_at_the_fourth(
    client: Open, version: int, first: int
) -> None:
    one = client(version=version)

    one.send(bytes([first]) + b"\x80\x80\x80\x80")

    one.expect_refusal(0x81)


def test_a01_a_length_of_five_bytes_before_connect(wire: Open) -> None:
    one = wire()

    one.send(b"\x10\x80\x80\x80\x80")

    one.expect_close()


def test_a02_the_largest_length_before_connect_ends_at_the_header(wire: Open) -> None:
    one = wire(version=4)

    one.send(b"\x10\xff\xff\xff\x7f")

    one.expect_close()


def test_a02_a_connect_beyond_the_cap_ends_at_the_header(wire: Open) -> None:
    one = wire(version=4)

    one.send(b"\x10" + mqtt.var_int(8_193))

    one.expect_close()


def test_a03_a_length_beyond_the_maximum_ends_at_the_header(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\x30" + mqtt.var_int(ServerLimits().maximum_packet_size))

    one.expect_refusal(0x95)


def test_a04_a_padded_length_is_refused(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\xc0\x80\x00")

    one.expect_refusal(0x81)


def test_a05_a_packet_that_never_ends_is_not_waited_for(client: Open, version: int) -> None:
    one = client(version=version, keep_alive=1)

    one.send(b"\x30" + mqtt.var_int(4_096) + b"abc")

    one.expect_refusal(0x8D)


def test_a06_what_follows_a_packet_is_the_next_one(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe(topic)
    hidden = mqtt.publish(topic, b"hidden", version=version)

    one.send(mqtt.publish(topic, b"", version=version) + hidden)

    assert [one.receive_publish().payload, one.receive_publish().payload] == [b"", b"hidden"]


def test_a06_a_string_longer_than_its_packet(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\x30\x04\x00\x09ab" + mqtt.pingreq() * 8)

    one.expect_refusal(0x81)


def test_a07_byte_by_byte_is_as_good_as_at_once(wire: Open, topic: str, version: int) -> None:
    one = wire(version=version)

    one.send_slowly(mqtt.connect(unique("c"), version=version))
    one.send_slowly(mqtt.subscribe((topic, 1), version=version))
    one.send_slowly(mqtt.publish(topic, b"slow", qos=1, packet_id=2, version=version))

    assert one.expect(mqtt.CONNACK).reason == 0
    assert one.expect(mqtt.SUBACK).reason == 1
    one.expect_besides_publishes(mqtt.PUBACK, 2)
    assert one.receive_publish().payload == b"slow"


def test_a07_a_thousand_packets_in_one_segment(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe(topic)

    one.send(*(mqtt.publish(topic, b"%d" % each, version=version) for each in range(1_000)))

    found = [one.receive_publish().payload for _ in range(1_000)]
    assert found == [b"%d" % each for each in range(1_000)]


def test_a08_packet_type_zero(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\x00\x00")

    one.expect_refusal(0x81)


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
def test_a08_packet_type_fifteen_in_3_x(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\xf0\x00")

    one.expect_close()


def test_a08_auth_outside_of_an_exchange(client: Open) -> None:
    one = client()

    one.send(mqtt.auth(0x18))

    one.expect_refusal(0x82)


@pytest.mark.parametrize(
    "data",
    [b"\x80\x00", b"\xa0\x00", b"\x60\x02\x00\x01", b"\xc1\x00", b"\xe8\x00", b"\x41\x02\x00\x01"],
    ids=lambda data: data.hex(),
)
def test_a09_wrong_flags_in_the_fixed_header(client: Open, version: int, data: bytes) -> None:
    one = client(version=version)

    one.send(data)

    one.expect_refusal(0x81)


def test_a10_publish_with_quality_three(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.publish(topic, qos=3, packet_id=1, version=version))

    one.expect_refusal(0x81)


@pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])
def test_a11_dup_without_quality(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.publish(topic, dup=True, version=version))

    one.expect_refusal(0x81)


def test_a12_a_ping_with_a_body(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\xc0\x01\x00")

    one.expect_refusal(0x81)


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
def test_a12_a_disconnect_of_3_x_with_a_body_sends_the_will(
    client: Open, topic: str, version: int
) -> None:
    one, watcher = client(version=version, will=Will(topic=topic)), client()
    watcher.subscribe(topic)

    one.send(b"\xe0\x01\x00")

    one.expect_close()
    assert watcher.receive_publish().topic == topic


@pytest.mark.parametrize("first", [0x10, 0x30, 0x82, 0xA2, 0x40])
def test_a13_packets_without_a_body(client: Open, version: int, first: int) -> None:
    one = client(version=version)

    one.send(bytes([first, 0]))

    # An empty second CONNECT is one too many before it is malformed.
    if version == 5:
        assert one.expect(mqtt.DISCONNECT).reason in ((0x81, 0x82) if first == 0x10 else (0x81,))
    one.expect_close()


@pytest.mark.parametrize(
    "data",
    [b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x00", b"\xb0\x02\x00\x01", b"\xd0\x00"],
    ids=["CONNACK", "SUBACK", "UNSUBACK", "PINGRESP"],
)
def test_a14_packets_that_only_a_server_sends(client: Open, version: int, data: bytes) -> None:
    one = client(version=version)
    if version == 5 and data[0] != 0xD0:
        data = bytes([data[0], data[1] + 1]) + data[2:4] + b"\x00" + data[4:]

    one.send(data)

    one.expect_refusal(0x82)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n",
    ],
    ids=["http", "tls", "ssh", "proxy-1", "proxy-2"],
)
def test_a15_other_protocols_are_closed_without_an_answer(wire: Open, data: bytes) -> None:
    one = wire()

    one.send(data)

    one.expect_close()


def test_a15_the_log_says_which_protocol_it_was_and_none_of_its_bytes(
    start_broker: Callable[..., Broker], wire: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    running = start_broker()
    one = wire(port=running.port)

    one.send(b"GET /canary HTTP/1.1\r\nHost: localhost\r\n\r\n")
    one.expect_close()

    eventually(lambda: "HTTP on a listener that is not for it" in caplog.text)
    running.stop()
    assert "canary" not in caplog.text


def test_a16_a_stream_of_pings_starves_nobody(client: Open, topic: str) -> None:
    one, other = client(version=4), client(version=4)
    other.subscribe((topic, 1))

    one.send(mqtt.pingreq() * 20_000)

    other.publish(topic, unique().encode(), qos=1)
    other.receive_publish()
    for _ in range(20_000):
        one.expect(mqtt.PINGRESP)


@pytest.mark.parametrize("version", [4, 5])
def test_a16_a_flood_of_pings_is_read_slowly_and_ends_with_0x96(
    start_broker: Callable[..., Broker], client: Open, version: int
) -> None:
    running = start_broker(exempt_addresses=(), control_packets_per_second=100)
    one = client(version=version, port=running.port)

    one.send(mqtt.pingreq() * 20_000)

    *answers, last = one.receive_until_close()
    if version == 5:
        assert (last.kind, last.reason) == (mqtt.DISCONNECT, 0x96)
    assert {answer.kind for answer in answers} == {mqtt.PINGRESP}
    # the rate, in the 5 seconds of patience and in the one that had begun
    assert len(answers) <= 101 * 6
    assert running.stats()["violations"] == 1
