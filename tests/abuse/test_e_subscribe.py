"""Abuse table E: SUBSCRIBE and the topic tree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.abuse.beside import BesideOf
from tests.soak.run import resident_bytes
from tests.wire import PATIENCE_S, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
def test_e01_no_filters(client: Open, version: int, build: Callable[..., bytes]) -> None:
    one = client(version=version)

    one.send(build(version=version))

    one.expect_refusal(0x82)


@pytest.mark.parametrize("filter_", ["a#", "a/#/b", "a+", "+a", "##", "a/b#", "a/+b/c"])
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
def test_e02_filters_that_are_none(
    client: Open, version: int, build: Callable[..., bytes], filter_: str
) -> None:
    one = client(version=version)

    one.send(build(filter_, version=version))

    one.expect_refusal(0x8F)


@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
def test_e02_an_empty_filter(client: Open, version: int, build: Callable[..., bytes]) -> None:
    one = client(version=version)

    one.send(build("", version=version))

    one.expect_refusal(0x82)


@pytest.mark.parametrize("filter_", ["/" * 65_400, "+/" * 200 + "#", "x" * 4_097])
def test_e03_a_filter_beyond_the_caps(client: Open, version: int, filter_: str) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe(filter_, version=version))

    one.expect_refusal(0x8F)


@pytest.mark.parametrize(
    ("options", "reason"), [(0x03, 0x82), (0x30, 0x82), (0x40, 0x81), (0x80, 0x81)]
)
def test_e04_options_of_5_0_that_are_none(
    client: Open, topic: str, options: int, reason: int
) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, options)))

    one.expect_refusal(reason)


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
@pytest.mark.parametrize("options", [0x03, 0x04, 0x80])
def test_e04_a_quality_of_3_x_that_is_none(
    client: Open, topic: str, version: int, options: int
) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe((topic, options), version=version))

    one.expect_close()


def test_e05_no_local_in_a_group(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe((f"$share/g/{topic}", 0x04)))

    one.expect_refusal(0x82)


@pytest.mark.parametrize(
    "filter_", ["$share/ab", "$share//t", "$share/g/", "$share/+/t", "$share/g#/t", "$share/"]
)
def test_e06_groups_that_are_none(client: Open, version: int, filter_: str) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe(filter_, version=version))

    one.expect_refusal(0x8F)


def test_e06_another_case_is_no_group(client: Open, version: int) -> None:
    one = client(version=version)
    topic = unique("$SHARE/g/")

    # An ordinary filter below `$`, which the grant of anonymous clients does not cover.
    assert one.subscribe(topic).reason == (0x87 if version == 5 else 0x80)
    one.ping()


@pytest.mark.parametrize("prefix", ["$queue/", "$exclusive/", "$delayed/5/"])
def test_e07_prefixes_of_other_brokers_mean_nothing(
    client: Open, version: int, prefix: str
) -> None:
    one = client(version=version)

    # No filter of this broker has such a function: below `$` it is closed.
    refused = 0x87 if version == 5 else 0x80
    suback = one.subscribe(prefix + "t", prefix, prefix.rstrip("/"), prefix + "#")
    assert suback.reasons == (refused,) * 4
    for wrong in ("a#", "+x", "##"):
        other = client(version=version)
        other.send(mqtt.subscribe(prefix + wrong, version=version))
        other.expect_refusal(0x8F)


def test_e08_more_filters_than_a_packet_may_have(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    suback = one.subscribe(*(f"{topic}/{number}" for number in range(10_000)))

    refused = 0x97 if version == 5 else 0x80
    assert suback.reasons == (0,) * 100 + (refused,) * 9_900
    one.ping()


def test_e08_more_subscriptions_than_a_client_may_have(
    client: Open, topic: str, version: int
) -> None:
    one = client(version=version)
    for page in range(10):
        suback = one.subscribe(*(f"{topic}/{page}/{number}" for number in range(100)))
        assert set(suback.reasons) == {0}

    refused = one.subscribe(f"{topic}/one/more").reason
    again = one.subscribe(f"{topic}/0/0").reason

    assert refused == (0x97 if version == 5 else 0x80)
    assert again == 0
    one.unsubscribe(f"{topic}/0/1")
    assert one.subscribe(f"{topic}/one/more").reason == 0


def test_e11_a_group_and_its_filter_are_unsubscribed_apart(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"$share/g/{topic}")

    assert one.unsubscribe(topic).reasons == (0x11,)

    one.publish(topic, b"x")
    assert one.receive_publish().payload == b"x"


def test_e12_unsubscribing_what_never_was(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    unsuback = one.unsubscribe(*(f"{topic}/{number}" for number in range(1_000)))

    assert unsuback.reasons == ((0x11,) * 1_000 if version == 5 else ())


@pytest.mark.parametrize(
    ("build", "answer"), [(mqtt.subscribe, mqtt.SUBACK), (mqtt.unsubscribe, mqtt.UNSUBACK)]
)
def test_e12_a_flood_of_them_is_read_at_its_rate(
    start_broker: Callable[..., Broker],
    client: Open,
    build: Callable[..., bytes],
    answer: int,
) -> None:
    broker = start_broker(exempt_addresses=(), control_packets_per_second=100)
    one = client(port=broker.port)
    began = time.monotonic()

    one.send(*(build("e12/none", packet_id=number) for number in range(1, 251)))

    for number in range(1, 251):
        assert one.expect(answer).packet_id == number
    # 101 in each second since CONNACK, of which the first had begun
    assert time.monotonic() - began > 1
    one.ping()


def test_e13_one_shot_topics_leave_no_nodes(fresh_broker: Broker, client: Open) -> None:
    one = client(port=fresh_broker.port)
    before = fresh_broker.stats()["directory_nodes"]

    for page in range(20):
        names = [f"e13/{page}/{number}/x/+" for number in range(100)]
        assert set(one.subscribe(*names).reasons) == {0}
        assert fresh_broker.stats()["directory_nodes"] > before
        one.unsubscribe(*names)
        topics = (mqtt.publish(f"e13/{page}/{number}/{page}/x") for number in range(1_000))
        one.send(*topics)

    one.ping()
    assert fresh_broker.stats()["directory_nodes"] <= before


def test_e13_one_shot_topics_that_are_retained_and_cleared(
    fresh_broker: Broker, client: Open
) -> None:
    one = client(port=fresh_broker.port)

    def come_and_go(page: int) -> None:
        names = [f"e13/{page}/{number}/" + "x" * 1_000 for number in range(1_000)]
        for payload in (b"kept", b""):
            one.send(*(mqtt.publish(name, payload, retain=True) for name in names))
            one.ping()
            assert fresh_broker.stats()["retained_messages"] == (1_000 if payload else 0)

    come_and_go(0)
    before = resident_bytes(os.getpid())
    for page in range(1, 11):
        come_and_go(page)

    # ten times 1,000 topics of a kilobyte each
    assert resident_bytes(os.getpid()) - before < 5_000_000


@pytest.mark.parametrize("filter_", ["+/broker/version", "+/broker/#", "#"])
def test_e14_a_wildcard_does_not_reach_what_the_broker_says_of_itself(
    client: Open, version: int, filter_: str
) -> None:
    one = client(version=version)

    one.subscribe(filter_)

    # Retained messages of others may come, those below `$` may not.
    probe = unique()
    one.subscribe(probe)
    one.publish(probe)
    while (found := one.receive_publish()).topic != probe:
        assert not found.topic.startswith("$")


def test_e14_what_the_broker_says_of_itself_must_be_asked_for(client: Open, version: int) -> None:
    one = client(version=version)

    one.subscribe("$SYS/broker/version")

    assert one.receive_publish().topic == "$SYS/broker/version"


def test_e15_replays_of_all_that_is_retained_end_with_their_clients(
    fresh_broker: Broker, client: Open, beside: BesideOf
) -> None:
    port, other = fresh_broker.port, beside(fresh_broker.port)
    one = client(port=port)
    for first in range(0, 3_000, 100):
        names = (f"e15/{number}" for number in range(first, first + 100))
        one.send(*(mqtt.publish(name, b"x" * 8_000, retain=True) for name in names))
    one.ping()

    readers = [client(port=port) for _ in range(20)]
    before = resident_bytes(os.getpid())
    for each in readers:
        each.send(mqtt.subscribe("#"))
        other.check()
    assert resident_bytes(os.getpid()) - before < 100_000_000, (
        "of 480 MB that all of them would get"
    )
    for each in readers:
        each.reset()

    other.check()
    until = time.monotonic() + PATIENCE_S
    while fresh_broker.stats()["clients_connected"] > 3:
        assert time.monotonic() < until
        other.check()
    sent = fresh_broker.stats()["messages_sent"]
    assert sent < 20 * 3_000
    other.check()
    # the bystander's own go on
    assert fresh_broker.stats()["messages_sent"] < sent + 100


def test_e19_overlapping_filters_bring_all_identifiers(client: Open, topic: str) -> None:
    one = client()
    for number, filter_ in enumerate((f"{topic}/#", f"{topic}/+", f"{topic}/a"), start=1):
        one.subscribe(filter_, props={"subscription_identifier": number})

    for _ in range(5):
        one.publish(f"{topic}/a")

    for _ in range(5):
        identifiers = one.receive_publish().property("subscription_identifier")
        assert isinstance(identifiers, list)
        assert sorted(identifiers) == [1, 2, 3]
