"""Section 3.7 of MQTT 3.1.1 and 5.0: PUBCOMP."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import Wire

Open = Callable[..., Wire]
# Codes alone: such a client is told no reason strings.
TERSE = {"request_problem_information": 0}


@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
def test_pubcomp_of_a_released_message_is_four_bytes(client: Open, topic: str) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=0x1234))
    one.expect(mqtt.PUBREC)

    one.send(b"\x62\x02\x12\x34")

    one.expect_bytes(b"\x70\x02\x12\x34")


@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
def test_pubcomp_says_that_it_does_not_know_the_identifier(client: Open) -> None:
    one = client(props=TERSE)

    one.send(b"\x62\x02\x12\x34")

    one.expect_bytes(b"\x70\x03\x12\x34\x92")


@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
@pytest.mark.parametrize("code", [0x01, 0x10, 0x80, 0x87, 0x91, 0xFF])
def test_a_code_that_pubcomp_does_not_have_ends_the_connection(
    client: Open, topic: str, code: int
) -> None:
    receiver = client()
    released = release(receiver, client(), topic)

    receiver.send(mqtt.ack(mqtt.PUBCOMP, released, code))

    receiver.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
@pytest.mark.parametrize("code", [0x00, 0x92])
def test_every_code_of_pubcomp_ends_the_exchange(client: Open, topic: str, code: int) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    released = release(receiver, sender, topic)
    sender.publish(topic, b"second", qos=2)

    receiver.send(mqtt.ack(mqtt.PUBCOMP, released, code))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.beyond
def test_a_pubcomp_of_nothing_is_ignored(client: Open) -> None:
    one = client()

    one.send(b"\x70\x02\x12\x34")

    one.ping()


@pytest.mark.beyond
def test_a_pubcomp_ahead_of_pubrec_ends_the_connection(client: Open, topic: str) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBCOMP, found.packet_id or 0))

    receiver.expect_refusal(0x82)


def release(receiver: Wire, sender: Wire, topic: str) -> int:
    """The identifier of a message whose PUBREL has come."""
    receiver.subscribe((topic, 2))
    sender.publish(topic, b"first", qos=2)
    found = receiver.expect(mqtt.PUBLISH)
    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0))
    return receiver.expect(mqtt.PUBREL).packet_id or 0


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.7.2-2")
def test_a_reason_string_for_which_there_is_no_room_is_left_out(client: Open) -> None:
    def unknown(one: Wire) -> mqtt.Packet:
        one.send(b"\x62\x02\x12\x34")
        return one.expect(mqtt.PUBCOMP)

    expect_left_out(client, unknown, what="reason_string")
