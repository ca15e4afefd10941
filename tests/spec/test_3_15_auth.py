"""Section 3.15 of MQTT 5.0: AUTH."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import Packet, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
CONTINUE, AGAIN = 0x18, 0x19
HELLO = {"authentication_method": "RIDDLE", "authentication_data": b"hello"}
FRIEND = {"authentication_method": "RIDDLE", "authentication_data": b"friend"}


@pytest.mark.spec("5.0", "MQTT-3.15.1-1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_flags_of_auth_other_than_0_end_the_connection(client: Open, flags: int) -> None:
    one = client()

    one.send(bytes([0xF0 | flags]), b"\x02\x19\x00")

    one.expect_refusal(0x81)


@pytest.mark.beyond("3.1", "3.1.1")
def test_3_x_has_no_auth(client: Open) -> None:
    one = client()

    one.send(b"\xf0\x02\x19\x00")

    one.expect_close()


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.15.2-1")
def test_the_brokers_auth_says_continue_and_then_success(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)
    one.connect(unique("c"), props=FRIEND)

    one.send(mqtt.auth(AGAIN, HELLO))
    first = one.expect(mqtt.AUTH)
    one.send(mqtt.auth(CONTINUE, {**HELLO, "authentication_data": b"42"}))
    second = one.expect(mqtt.AUTH)

    assert (first.reason, second.reason) == (0x18, 0x00)


@pytest.mark.spec("5.0", "MQTT-3.15.2-1")
@pytest.mark.parametrize("code", [0x01, 0x17, 0x1A, 0x80, 0x82, 0x87, 0x8C, 0xFF])
def test_a_code_that_auth_does_not_have_ends_the_connection(
    wire: Open, riddle: Broker, code: int
) -> None:
    one = wire(port=riddle.port)
    one.connect(unique("c"), props=FRIEND)

    one.send(mqtt.auth(code, HELLO))

    one.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.15.2-1")
def test_a_client_may_not_say_success(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)
    one.connect(unique("c"), props=FRIEND)

    one.send(mqtt.auth(0x00, HELLO))

    one.expect_refusal(0x82)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.15.2-2")
@pytest.mark.parametrize("when", ["before CONNACK", "once connected"])
def test_a_reason_string_for_which_there_is_no_room_is_left_out(
    wire: Open, start_broker: Callable[..., Broker], when: str
) -> None:
    from tests.spec.plugins import Riddle

    asking = Riddle()
    asking.text = "think of the answer to everything, and take your time"
    port = start_broker(asking).port

    def opened(props: dict[str, int] | None = None) -> Wire:
        one = wire(port=port)
        if when == "before CONNACK":
            one.send(mqtt.connect(unique("c"), props={**HELLO, **(props or {})}))
        else:
            one.connect(unique("c"), props={**FRIEND, **(props or {})})
            one.send(mqtt.auth(AGAIN, HELLO))
        return one

    def question(one: Wire) -> Packet:
        return one.expect(mqtt.AUTH)

    expect_left_out(opened, question, what="reason_string")


@pytest.mark.spec("5.0", "MQTT-3.15.2-3")
def test_a_user_property_for_which_there_is_no_room_is_left_out(
    wire: Open, start_broker: Callable[..., Broker]
) -> None:
    from tests.spec.plugins import Riddle

    generous = Riddle()
    generous.user_properties = [("from", "us"), ("to", "you who have much room for such things")]
    port = start_broker(generous).port

    def opened(props: dict[str, int] | None = None) -> Wire:
        one = wire(port=port)
        one.connect(unique("c"), props={**FRIEND, **(props or {})})
        return one

    def success(one: Wire) -> Packet:
        one.send(mqtt.auth(AGAIN, FRIEND))
        return one.expect(mqtt.AUTH)

    expect_left_out(opened, success, what="user_property")


@pytest.mark.spec("5.0", "MQTT-3.1.2-29")
def test_without_problem_information_auth_explains_nothing(
    wire: Open, start_broker: Callable[..., Broker]
) -> None:
    from tests.spec.plugins import Riddle

    talkative = Riddle()
    talkative.text, talkative.user_properties = "think", [("from", "us")]
    port = start_broker(talkative).port
    terse = {"request_problem_information": 0}

    one, other = wire(port=port), wire(port=port)
    one.send(mqtt.connect(unique("c"), props={**HELLO, **terse}))
    answers = [one.expect(mqtt.AUTH)]
    other.connect(unique("c"), props={**FRIEND, **terse})
    for said in (HELLO, FRIEND):
        other.send(mqtt.auth(AGAIN if said is HELLO else CONTINUE, said))
        answers.append(other.expect(mqtt.AUTH))

    assert [each.reason for each in answers] == [0x18, 0x18, 0x00]
    for each in answers:
        assert each.property("reason_string") is None
        assert each.property("user_property") is None
