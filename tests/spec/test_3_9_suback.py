"""Section 3.9 of MQTT 3.1.1 and 5.0: SUBACK."""

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


@pytest.mark.spec("3.1.1", "MQTT-3.9.3-1")
@pytest.mark.spec("5.0", "MQTT-3.9.3-1")
def test_the_codes_are_in_the_order_of_the_filters(client: Open, topic: str) -> None:
    one = client()
    asked = [0, 2, 1, 1, 0, 2, 2, 0, 1]

    # Names whose own order is another one.
    answer = one.subscribe(*((f"{topic}/{9 - at}", qos) for at, qos in enumerate(asked)))

    assert list(answer.reasons) == asked


@pytest.mark.spec("3.1.1", "MQTT-3.9.3-1")
@pytest.mark.spec("5.0", "MQTT-3.9.3-1")
def test_failures_stand_in_their_places(client: Open, topic: str) -> None:
    one = client()

    answer = one.subscribe(("$not/here", 0), (topic, 1), ("$nor/here", 2), (f"{topic}/x", 2))

    failure = 0x87 if one.version == 5 else 0x80
    assert answer.reasons == (failure, 1, failure, 2)


@pytest.mark.spec("3.1.1", "MQTT-3.9.3-2")
def test_every_failure_of_3_1_1_is_0x80(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    port = start_broker(
        wildcard_subscription_available=False,
        shared_subscription_available=False,
        subscriptions=3,
    ).port
    one = client(port=port)

    one.send(
        mqtt.subscribe(
            (topic, 1),
            f"{topic}/#",
            f"$share/group/{topic}",
            "$not/allowed",
            (f"{topic}/second", 2),
            f"{topic}/third",
            version=4,
        )
    )

    one.expect_bytes(b"\x90\x08\x00\x01\x01\x80\x80\x80\x02\x80")


@pytest.mark.spec("5.0", "MQTT-3.9.3-2")
def test_every_failure_of_5_0_has_its_own_code(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    port = start_broker(
        wildcard_subscription_available=False,
        shared_subscription_available=False,
        subscriptions=3,
    ).port
    one = client(port=port, props=TERSE)

    one.send(
        mqtt.subscribe(
            (topic, 1),
            f"{topic}/#",
            f"$share/group/{topic}",
            "$not/allowed",
            (f"{topic}/second", 2),
            f"{topic}/third",
        )
    )

    one.expect_bytes(b"\x90\x09\x00\x01\x00\x01\xa2\x9e\x87\x02\x97")


@pytest.mark.spec("5.0", "MQTT-3.9.3-2")
def test_a_broker_without_identifiers_says_so(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    one = client(port=start_broker(subscription_identifiers_available=False).port, props=TERSE)

    one.send(mqtt.subscribe(topic, props={"subscription_identifier": 1}))

    one.expect_bytes(b"\x90\x04\x00\x01\x00\xa1")


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.9.2-1")
def test_a_reason_string_for_which_there_is_no_room_is_left_out(client: Open) -> None:
    def refused(one: Wire) -> mqtt.Packet:
        return one.subscribe("$not/allowed", ("ok", 1), "$nor/this")

    expect_left_out(client, refused, what="reason_string")
