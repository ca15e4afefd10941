"""Section 3.6 of MQTT 3.1.1 and 5.0: PUBREL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import Wire

Open = Callable[..., Wire]
# Codes alone: such a client is told no reason strings.
TERSE = {"request_problem_information": 0}


@pytest.mark.spec("3.1.1", "MQTT-3.6.1-1")
@pytest.mark.spec("5.0", "MQTT-3.6.1-1")
@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x04, 0x06, 0x0A, 0x0F])
def test_wrong_flags_of_pubrel_end_the_connection(client: Open, topic: str, flags: int) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=7, version=one.version))
    one.expect(mqtt.PUBREC)

    one.send(bytes([0x60 | flags]), b"\x02\x00\x07")

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.6.1-1")
@pytest.mark.spec("5.0", "MQTT-3.6.1-1")
def test_the_brokers_own_pubrel_has_flags_0010(client: Open, topic: str) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = receiver.expect(mqtt.PUBLISH)
    number = (found.packet_id or 0).to_bytes(2, "big")

    receiver.send(b"\x50\x02", number)

    receiver.expect_bytes(b"\x62\x02" + number)


@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
def test_pubrel_says_that_it_does_not_know_the_identifier(client: Open) -> None:
    one = client(props=TERSE)

    one.send(b"\x50\x02\x12\x34")

    one.expect_bytes(b"\x62\x03\x12\x34\x92")


@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
@pytest.mark.parametrize("code", [0x01, 0x10, 0x80, 0x87, 0x91, 0xFF])
def test_a_code_that_pubrel_does_not_have_ends_the_connection(
    client: Open, topic: str, code: int
) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=7))
    one.expect(mqtt.PUBREC)

    one.send(b"\x62\x03\x00\x07", bytes([code]))

    one.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
@pytest.mark.parametrize("code", [0x00, 0x92])
def test_every_code_of_pubrel_is_answered_by_pubcomp(client: Open, topic: str, code: int) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=7))
    one.expect(mqtt.PUBREC)

    one.send(b"\x62\x03\x00\x07", bytes([code]))

    assert one.expect(mqtt.PUBCOMP).packet_id == 7


@pytest.mark.beyond
def test_a_pubrel_of_identifier_0_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\x62\x02\x00\x00")

    one.expect_refusal(0x82)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.6.2-2")
def test_a_reason_string_for_which_there_is_no_room_is_left_out(client: Open) -> None:
    def unknown(one: Wire) -> mqtt.Packet:
        one.send(b"\x50\x02\x12\x34")
        return one.expect(mqtt.PUBREL)

    expect_left_out(client, unknown, what="reason_string")
