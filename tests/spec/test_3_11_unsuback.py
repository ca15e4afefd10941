"""Section 3.11 of MQTT 3.1.1 and 5.0: UNSUBACK."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire

Open = Callable[..., Wire]


@pytest.mark.spec("5.0", "MQTT-3.11.3-1")
def test_the_codes_are_in_the_order_of_the_filters(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"{topic}/b", f"{topic}/d")

    answer = one.unsubscribe(*(f"{topic}/{name}" for name in "edcba"))

    assert answer.reasons == (0x11, 0x00, 0x11, 0x00, 0x11)


@pytest.mark.spec("5.0", "MQTT-3.11.3-2")
def test_a_filter_that_is_ended_is_0_and_one_that_was_none_0x11(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic)

    one.send(mqtt.unsubscribe(topic, f"{topic}/none", packet_id=0x1234))

    one.expect_bytes(b"\xb0\x05\x12\x34\x00\x00\x11")


@pytest.mark.beyond("3.1", "3.1.1")
def test_unsuback_of_3_x_has_no_codes(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.unsubscribe(topic, f"{topic}/b", packet_id=0x1234, version=one.version))

    one.expect_bytes(b"\xb0\x02\x12\x34")
