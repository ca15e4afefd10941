"""Abuse table E: SUBSCRIBE and the topic tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

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

    answer = one.subscribe(topic).reason

    # An ordinary filter below `$`, which the default grant does not cover.
    assert answer in ((0x00, 0x87) if version == 5 else (0x00, 0x80))
    one.ping()


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
