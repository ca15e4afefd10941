"""Section 3.5 of MQTT 3.1.1 and 5.0: PUBREC."""

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


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
def test_pubrec_of_a_message_that_somebody_hears_is_four_bytes(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)

    sender.send(mqtt.publish(topic, qos=2, packet_id=0x1234))

    sender.expect_bytes(b"\x50\x02\x12\x34")


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
def test_pubrec_says_that_nobody_hears(client: Open, topic: str) -> None:
    sender = client()

    sender.send(mqtt.publish(topic, qos=2, packet_id=0x1234))

    sender.expect_bytes(b"\x50\x03\x12\x34\x10")


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
def test_pubrec_says_that_a_message_is_not_allowed(client: Open) -> None:
    sender = client(props=TERSE)

    sender.send(mqtt.publish("$SYS/broker/version", qos=2, packet_id=0x1234))

    sender.expect_bytes(b"\x50\x03\x12\x34\x87")


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
def test_pubrec_says_that_a_quota_is_used_up(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    sender = client(port=start_broker(retained_messages=1, sys_interval_s=0).port, props=TERSE)
    sender.publish(f"{topic}/kept", b"x", retain=True)

    sender.send(mqtt.publish(f"{topic}/more", b"x", qos=2, packet_id=0x1234, retain=True))

    sender.expect_bytes(b"\x50\x03\x12\x34\x97")


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.parametrize("code", [0x01, 0x11, 0x7F, 0x81, 0x92, 0xFF])
def test_a_code_that_pubrec_does_not_have_ends_the_connection(
    client: Open, topic: str, code: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0, code))

    receiver.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.parametrize("code", [0x00, 0x10])
def test_a_good_code_of_pubrec_is_answered_by_pubrel(client: Open, topic: str, code: int) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0, code))

    receiver.expect_bytes(b"\x62\x02" + (found.packet_id or 0).to_bytes(2, "big"))


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.parametrize("code", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_an_error_code_of_pubrec_ends_the_exchange(client: Open, topic: str, code: int) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 2))
    sender.publish(topic, b"first", qos=2)
    sender.publish(topic, b"second", qos=2)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0, code))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.beyond
def test_a_pubrec_of_identifier_0_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\x50\x02\x00\x00")

    one.expect_refusal(0x82)


@pytest.mark.beyond
def test_a_pubrec_for_a_message_of_qos_1_ends_the_connection(client: Open, topic: str) -> None:
    receiver = client()
    receiver.subscribe((topic, 1))
    client().publish(topic, qos=1)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0))

    receiver.expect_refusal(0x82)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.5.2-2")
def test_a_reason_string_for_which_there_is_no_room_is_left_out(client: Open) -> None:
    def refused(one: Wire) -> mqtt.Packet:
        one.send(mqtt.publish("$SYS/not/allowed", qos=2, packet_id=7))
        return one.expect(mqtt.PUBREC)

    expect_left_out(client, refused, what="reason_string")
