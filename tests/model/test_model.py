"""The model in its bounded form, and proofs that it finds faults."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.model.brokers import serving
from tests.model.machine import explore, replay
from tests.model.reference import matches
from tests.model.world import Difference, Tamper
from tests.wire import PUBLISH, Packet

if TYPE_CHECKING:
    from mqttcore import Broker

STEPS = 10_000


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    """For all histories of this file."""
    with serving() as broker:
        yield broker


@pytest.mark.timeout(300)
def test_ten_thousand_steps_without_a_difference(one_broker: Broker) -> None:
    run = explore(one_broker.port, steps=STEPS)

    assert not run.difference, "\n".join([run.difference, *run.script])
    assert run.steps >= STEPS
    # Steps that move nothing would prove nothing.
    assert run.deliveries > STEPS / 8
    assert one_broker.stats()["panics"] == 0


def one_in(count: int, change: Callable[[Packet], Iterable[Packet]]) -> Callable[[], Tamper]:
    """Changes every so manieth PUBLISH to a client, as a broken broker would have sent it."""

    def tamper() -> Tamper:
        numbers = itertools.count(1)

        def one(_name: str, packet: Packet) -> Iterable[Packet]:
            if packet.kind == PUBLISH and next(numbers) % count == 0:
                return change(packet)
            return (packet,)

        return one

    return tamper


def changed(**parts: object) -> Callable[[Packet], Iterable[Packet]]:
    return lambda packet: (dataclasses.replace(packet, **parts),)  # type: ignore[arg-type]


FAULTS = {
    "lost": lambda packet: (),
    "twice": lambda packet: (packet, packet),
    "other payload": changed(payload=b"?"),
    "other topic": changed(topic="z"),
    "retain flag": lambda packet: (dataclasses.replace(packet, flags=packet.flags ^ 1),),
    "dup flag": lambda packet: (dataclasses.replace(packet, flags=packet.flags ^ 8),),
    "identifier": changed(properties={"subscription_identifier": [77]}),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_its_history_is_short_and_repeats(
    one_broker: Broker, fault: str
) -> None:
    tamper = one_in(1, FAULTS[fault])

    run = explore(one_broker.port, steps=STEPS, tamper=tamper())

    assert run.difference, "nobody noticed"
    # Somebody connects, something is subscribed, and something is published.
    assert len(run.script) <= 12, run.script
    with pytest.raises(Difference):
        replay(one_broker.port, run.script, tamper=tamper())
    replay(one_broker.port, run.script)


def test_a_fault_that_comes_now_and_then_is_found(one_broker: Broker) -> None:
    run = explore(one_broker.port, steps=STEPS, tamper=one_in(50, FAULTS["lost"])())

    assert run.difference


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("+/#", "a", True),
        ("+", "a/b", False),
        ("+", "/a", False),
        ("/+", "/a", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("#", "$x/b", False),
        ("+/b", "$x/b", False),
        ("$x/#", "$x/b", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_the_reference_matches_as_section_4_7_says(
    topic_filter: str,
    topic: str,
    expected: bool,
) -> None:
    assert matches(topic_filter, topic) is expected
