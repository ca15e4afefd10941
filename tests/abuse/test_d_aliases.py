"""Abuse table D: topic aliases."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.soak.run import resident_bytes
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("alias", [0, 11, 65_535])
def test_d04_an_alias_out_of_range(client: Open, topic: str, alias: int) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"topic_alias": alias}))

    one.expect_refusal(0x94)


def test_d04_an_alias_that_was_never_set(client: Open) -> None:
    one = client()

    one.send(mqtt.publish("", props={"topic_alias": 1}))

    one.expect_refusal(0x82)


def test_d04_an_alias_of_an_earlier_connection(client: Open, topic: str) -> None:
    name, session = unique("c"), {"session_expiry_interval": 60}
    first = client(name, props=session)
    first.publish(topic, props={"topic_alias": 1})
    first.disconnect()
    second = client(name, clean=False, props=session)

    second.send(mqtt.publish("", props={"topic_alias": 1}))

    second.expect_refusal(0x82)


def test_d05_ten_aliases_of_the_longest_topics_and_no_more(client: Open, topic: str) -> None:
    one = client(props={"topic_alias_maximum": 10})
    longest = [f"{topic}/{number}".ljust(4_096, "x") for number in range(1, 11)]
    one.subscribe(f"{topic}/#")

    for number, name in enumerate(longest, start=1):
        one.send(mqtt.publish(name, props={"topic_alias": number}))
    for number in range(1, 11):
        one.send(mqtt.publish("", b"again", props={"topic_alias": number}))

    found = [one.receive_publish() for _ in range(20)]
    assert len({each.raw for each in found}) == 20
    for number in range(11, 65_536, 6_000):
        other = client()
        other.send(mqtt.publish(longest[0], props={"topic_alias": number}))
        other.expect_refusal(0x94)


def test_d05_an_alias_that_is_set_again_takes_no_more_memory(fresh_broker: Broker) -> None:
    with Wire(fresh_broker.port) as one:
        one.connect(unique("c"))

        def flood() -> None:
            for first in range(0, 1_500, 100):
                names = (f"d05/{number}".ljust(4_096, "x") for number in range(first, first + 100))
                one.send(*(mqtt.publish(name, props={"topic_alias": 1}) for name in names))
            one.ping()

        flood()
        before = resident_bytes(os.getpid())
        flood()

    # each flood names 6 MB of topics
    assert resident_bytes(os.getpid()) - before < 4_000_000
