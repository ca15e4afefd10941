"""Subscriptions: matching, overlap, options, identifiers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]
NO_LOCAL, RETAIN_AS_PUBLISHED = 0x04, 0x08


def test_each_filter_has_its_own_answer(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    suback = one.subscribe((f"{topic}/a", 0), (f"{topic}/b", 1), (f"{topic}/c", 2), packet_id=500)

    assert suback.reasons == (0, 1, 2)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("{}/+/c", "{}/b/c", "{}/b/d"),
        ("{}/#", "{}/b/c/d", "{}x"),
        ("{}/#", "{}", "{}x"),
        ("{}/+", "{}/", "{}"),
        ("+/{}", "/{}", "x/x/{}"),
        ("{}/a", "{}/a", "{}/A"),
        ("{}//b", "{}//b", "{}/b"),
    ],
)
def test_a_filter_matches_what_it_says(
    client: Open, version: int, topic: str, pattern: str, matching: str, other: str
) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((pattern.format(topic), 1))

    sender.publish(other.format(topic), b"other", qos=1)
    sender.publish(matching.format(topic), b"matching", qos=1)

    assert receiver.receive_publish().payload == b"matching"
    receiver.ping()


def test_unsubscribing_ends_deliveries(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe(topic, f"{topic}/other")

    unsuback = receiver.unsubscribe(topic, "never/subscribed/" + topic, packet_id=7)

    assert unsuback.reasons == ((0x00, 0x11) if version == 5 else ())
    sender.publish(topic, b"not wanted", qos=1)
    sender.publish(f"{topic}/other", b"wanted", qos=1)
    assert receiver.receive_publish().payload == b"wanted"


def test_a_filter_is_unsubscribed_by_its_own_text_only(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"{topic}/+")

    assert one.unsubscribe(f"{topic}/#").reasons == (0x11,)

    one.publish(f"{topic}/a", b"x")
    assert one.receive_publish().payload == b"x"


def test_the_same_filter_again_replaces_the_subscription(
    client: Open, topic: str, version: int
) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 0))

    receiver.subscribe((topic, 1))

    sender.publish(topic, b"x", qos=1)
    assert receiver.receive_publish().qos == 1
    receiver.ping()


def test_overlapping_filters_deliver_once_with_the_highest_quality(
    client: Open, topic: str, version: int
) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((f"{topic}/#", 0), (f"{topic}/+", 2), (f"{topic}/a", 1))

    sender.publish(f"{topic}/a", b"x", qos=2)
    sender.publish(f"{topic}/a", b"last", qos=1)

    first, last = receiver.receive_publish(), receiver.receive_publish()
    assert (first.payload, first.qos) == (b"x", 2)
    assert (last.payload, last.qos) == (b"last", 1)


def test_overlapping_filters_bring_all_their_identifiers(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(f"{topic}/#", props={"subscription_identifier": 1})
    receiver.subscribe(f"{topic}/+", props={"subscription_identifier": 268_435_455})
    receiver.subscribe(f"{topic}/a")

    sender.publish(f"{topic}/a")

    identifiers = receiver.receive_publish().property("subscription_identifier")
    assert isinstance(identifiers, list)
    assert sorted(identifiers) == [1, 268_435_455]
    receiver.ping()


def test_an_identifier_is_replaced_with_its_subscription(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": 1})
    one.subscribe(topic, props={"subscription_identifier": 2})
    one.publish(topic)
    assert one.receive_publish().property("subscription_identifier") == [2]

    one.subscribe(topic)

    one.publish(topic)
    assert one.receive_publish().property("subscription_identifier") is None


def test_a_publisher_may_not_choose_identifiers(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"subscription_identifier": 1}))

    one.expect_refusal(0x82)


def test_no_local_leaves_out_what_one_published_oneself(client: Open, topic: str) -> None:
    one, other = client(), client()
    one.subscribe((topic, NO_LOCAL))

    one.publish(topic, b"mine", qos=1)
    other.publish(topic, b"theirs", qos=1)

    assert one.receive_publish().payload == b"theirs"
    one.ping()


def test_no_local_speaks_for_its_own_filter_only(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((f"{topic}/#", NO_LOCAL))
    one.subscribe((f"{topic}/+", 0), packet_id=2)

    one.publish(f"{topic}/a", b"mine")

    assert one.receive_publish().payload == b"mine"
    one.ping()


def test_without_no_local_one_hears_oneself(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe(topic)

    one.publish(topic, b"mine")

    assert one.receive_publish().payload == b"mine"


def test_any_of_the_overlapping_filters_may_keep_the_retain_flag(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((f"{topic}/#", 0))
    receiver.subscribe((f"{topic}/+", RETAIN_AS_PUBLISHED), packet_id=2)

    sender.publish(f"{topic}/a", b"x", retain=True)

    assert receiver.receive_publish().retain
    sender.publish(f"{topic}/a", b"", retain=True)


def test_a_wildcard_does_not_reach_dollar_topics(client: Open, version: int) -> None:
    one = client(version=version)
    probe = unique()
    one.subscribe(("#", 0x20 if version == 5 else 0), ("+/broker/version", 0))

    # Retained messages of other tests may come first, `$SYS` may not.
    one.publish(probe, b"done")
    topics = []
    while (found := one.receive_publish()).topic != probe:
        topics.append(found.topic)

    assert not [name for name in topics if name.startswith("$")]


def test_a_hundred_filters_in_one_packet(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    suback = one.subscribe(*((f"{topic}/{number}", 1) for number in range(100)))

    assert suback.reasons == (1,) * 100
    one.publish(f"{topic}/99", b"x")
    assert one.receive_publish().payload == b"x"
