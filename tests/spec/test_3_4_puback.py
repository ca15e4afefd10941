"""Section 3.4 of MQTT 3.1.1 and 5.0: PUBACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
# Codes alone: such a client is told no reason strings.
TERSE = {"request_problem_information": 0}


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
def test_puback_of_a_message_that_somebody_hears_is_four_bytes(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)

    sender.send(mqtt.publish(topic, qos=1, packet_id=0x1234))

    sender.expect_bytes(b"\x40\x02\x12\x34")


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
def test_puback_says_that_nobody_hears(client: Open, topic: str) -> None:
    sender = client()

    sender.send(mqtt.publish(topic, qos=1, packet_id=0x1234))

    sender.expect_bytes(b"\x40\x03\x12\x34\x10")


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
def test_puback_says_that_a_message_is_not_allowed(client: Open) -> None:
    sender = client(props=TERSE)

    sender.send(mqtt.publish("$SYS/broker/version", qos=1, packet_id=0x1234))

    sender.expect_bytes(b"\x40\x03\x12\x34\x87")


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
def test_puback_says_that_a_quota_is_used_up(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    sender = client(port=start_broker(retained_messages=1, sys_interval_s=0).port, props=TERSE)
    sender.publish(f"{topic}/kept", b"x", retain=True)

    sender.send(mqtt.publish(f"{topic}/more", b"x", qos=1, packet_id=0x1234, retain=True))

    sender.expect_bytes(b"\x40\x03\x12\x34\x97")


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.parametrize("code", [0x01, 0x11, 0x7F, 0x81, 0x92, 0xFF])
def test_a_code_that_puback_does_not_have_ends_the_connection(
    client: Open, topic: str, code: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 1))
    client().publish(topic, qos=1)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(b"\x40\x03", number(found), bytes([code]))

    receiver.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.parametrize("code", [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_every_code_of_puback_ends_the_exchange(client: Open, topic: str, code: int) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 1))
    sender.publish(topic, b"first", qos=1)
    sender.publish(topic, b"second", qos=1)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(b"\x40\x03", number(found), bytes([code]))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("tail", [b"", b"\x00", b"\x00\x00"], ids=["bare", "code", "properties"])
def test_puback_may_be_cut_short(client: Open, topic: str, tail: bytes) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 1))
    sender.publish(topic, b"first", qos=1)
    sender.publish(topic, b"second", qos=1)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.packet(0x40, number(found), tail))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.beyond("5.0")
def test_what_a_client_adds_to_puback_goes_no_further(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, 1))
    sender.publish(topic, b"first", qos=1)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(
        mqtt.ack(
            mqtt.PUBACK,
            found.packet_id or 0,
            props={"reason_string": "got it", "user_property": [("a", "b")]},
        )
    )

    receiver.ping()
    sender.ping()


@pytest.mark.beyond
def test_a_puback_of_nothing_is_ignored(client: Open) -> None:
    one = client()

    one.send(b"\x40\x02\x12\x34")

    one.ping()


@pytest.mark.beyond
def test_a_puback_of_identifier_0_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\x40\x02\x00\x00")

    one.expect_refusal(0x82)


@pytest.mark.beyond("3.1", "3.1.1")
def test_a_code_behind_a_puback_of_3_x_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\x40\x03\x12\x34\x00")

    one.expect_close()


def number(found: mqtt.Packet) -> bytes:
    """The packet identifier as it stands in the packet."""
    return (found.packet_id or 0).to_bytes(2, "big")


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.4.2-2")
def test_a_reason_string_for_which_there_is_no_room_is_left_out(client: Open) -> None:
    def refused(one: Wire) -> mqtt.Packet:
        one.send(mqtt.publish("$SYS/not/allowed", qos=1, packet_id=7))
        return one.expect(mqtt.PUBACK)

    expect_left_out(client, refused, what="reason_string")
