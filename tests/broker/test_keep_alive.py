"""Keep Alive: one and a half times its length without a packet ends the connection."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


def test_a_silent_client_is_disconnected_and_not_early(client: Open, version: int) -> None:
    began = time.monotonic()
    one = client(version=version, keep_alive=1)

    one.expect_refusal(0x8D)

    assert time.monotonic() - began >= 1.4


def test_zero_means_never(client: Open, let_time_pass: Callable[..., None]) -> None:
    one = client(version=4, keep_alive=0)

    let_time_pass()

    one.ping()


def test_any_packet_counts(client: Open, let_time_pass: Callable[..., None]) -> None:
    one = client(version=4, keep_alive=2)
    topic = unique()

    for _ in range(3):
        let_time_pass()
        one.send(mqtt.publish(topic, version=4))

    one.ping()


def test_what_the_broker_sends_does_not_count(client: Open, topic: str) -> None:
    one, other = client(version=4, keep_alive=1), client(version=4)
    one.subscribe(topic)

    other.publish(topic, b"1", qos=1)

    assert one.receive_publish().payload == b"1"
    one.expect_close()


def test_half_a_packet_does_not_count(client: Open, version: int) -> None:
    one = client(version=version, keep_alive=1)

    one.send(b"\x30\x80")

    one.expect_refusal(0x8D)
