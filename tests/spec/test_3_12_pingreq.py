"""Section 3.12 of MQTT 3.1.1 and 5.0: PINGREQ."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire import Wire

Open = Callable[..., Wire]


@pytest.mark.spec("3.1.1", "MQTT-3.12.4-1")
@pytest.mark.spec("5.0", "MQTT-3.12.4-1")
def test_pingreq_is_answered_by_pingresp(client: Open) -> None:
    one = client()

    one.send(b"\xc0\x00")

    one.expect_bytes(b"\xd0\x00")


@pytest.mark.spec("3.1.1", "MQTT-3.12.4-1")
@pytest.mark.spec("5.0", "MQTT-3.12.4-1")
def test_each_of_many_pingreqs_is_answered(client: Open) -> None:
    one = client()

    one.send(b"\xc0\x00" * 100)

    for _ in range(100):
        one.expect_bytes(b"\xd0\x00")


@pytest.mark.beyond
def test_a_pingreq_with_a_body_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\xc0\x01\x00")

    one.expect_refusal(0x81)


@pytest.mark.beyond
def test_a_pingresp_from_a_client_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\xd0\x00")

    one.expect_refusal(0x82)
