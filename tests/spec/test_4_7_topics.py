"""Section 4.7 of MQTT 3.1.1 and 5.0: topic names and topic filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
NOT_FILTERS = {
    "hash behind a level": "a/b#",
    "hash ahead of a level": "a/#b",
    "hash in the middle": "a/#/b",
    "hash first of two": "#/a",
    "hash twice": "##",
    "hash and plus": "+#",
}


# --- wildcards ------------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-1")
@pytest.mark.spec("5.0", "MQTT-4.7.0-1")
@pytest.mark.parametrize("name", ["#", "+", "a/#", "a/+/b", "a/b+", "a/b#", "+a/b"])
def test_a_wildcard_in_a_topic_name_ends_the_connection(client: Open, name: str) -> None:
    one = client()

    one.send(mqtt.publish(name, b"x", version=one.version))

    one.expect_refusal(0x90)


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-1")
@pytest.mark.spec("5.0", "MQTT-4.7.0-1")
@pytest.mark.parametrize("name", ["a/#", "a/+/b"])
def test_a_wildcard_in_the_topic_of_a_will_lets_nobody_in(wire: Open, name: str) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), version=one.version, will=Will(topic=name)))

    one.expect_no_entry(0x90)


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-1")
@pytest.mark.spec("5.0", "MQTT-4.7.0-1")
def test_wildcards_are_allowed_in_filters(client: Open, topic: str) -> None:
    one = client()

    assert one.subscribe(f"{topic}/+/b/#").reason == 0

    one.publish(f"{topic}/a/b/c/d", b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-2")
@pytest.mark.spec("5.0", "MQTT-4.7.1-1")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
@pytest.mark.parametrize("filter_", NOT_FILTERS.values(), ids=NOT_FILTERS)
def test_a_misplaced_hash_ends_the_connection(
    client: Open, build: Callable[..., bytes], filter_: str
) -> None:
    one = client()

    one.send(build(filter_, version=one.version))

    one.expect_refusal(0x8F)


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-2")
@pytest.mark.spec("5.0", "MQTT-4.7.1-1")
@pytest.mark.parametrize("below", ["", "/", "/a", "/a/b/c", "//", "/ "])
def test_a_hash_stands_for_its_parent_and_all_below(client: Open, topic: str, below: str) -> None:
    one, sender = client(), client()
    one.subscribe(f"{topic}/#")

    sender.publish(f"{topic}x{below}", b"not below")
    sender.publish(topic + below, b"below")

    assert one.receive_publish().topic == topic + below


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-2")
@pytest.mark.spec("5.0", "MQTT-4.7.1-1")
def test_a_hash_alone_stands_for_everything(client: Open, topic: str) -> None:
    one = client()
    one.subscribe("#")

    client().publish(f"{topic}/a/b", b"x")

    # What others retained or publish meanwhile comes as well.
    while one.receive_publish().topic != f"{topic}/a/b":
        pass


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-3")
@pytest.mark.spec("5.0", "MQTT-4.7.1-2")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
@pytest.mark.parametrize("filter_", ["a+", "+a", "a/b+", "a/+b/c", "++", "a/+/b+", "/+a"])
def test_a_plus_that_does_not_fill_its_level_ends_the_connection(
    client: Open, build: Callable[..., bytes], filter_: str
) -> None:
    one = client()

    one.send(build(filter_, version=one.version))

    one.expect_refusal(0x8F)


@pytest.mark.spec("3.1.1", "MQTT-4.7.1-3")
@pytest.mark.spec("5.0", "MQTT-4.7.1-2")
@pytest.mark.parametrize(
    ("filter_", "matching", "other"),
    [
        ("{}/+", "{}/a", "{}/a/b"),
        ("{}/+", "{}/", "{}"),
        ("{}/+/c", "{}/b/c", "{}/c"),
        ("{}/+/c", "{}//c", "{}/b/b/c"),
        ("+/{}", "a/{}", "a/a/{}"),
        ("+/{}", "/{}", "{}"),
        ("{}/+/+", "{}/a/b", "{}/a"),
        ("{}/+/#", "{}/a", "{}"),
        ("{}/+/#", "{}/a/b/c", "{}x/a"),
    ],
)
def test_a_plus_stands_for_one_level(
    client: Open, topic: str, filter_: str, matching: str, other: str
) -> None:
    one, sender = client(), client()
    one.subscribe(filter_.format(topic))

    sender.publish(other.format(topic), b"other")
    sender.publish(matching.format(topic), b"matching")

    assert one.receive_publish().payload == b"matching"


# --- topics that begin with $ ---------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.spec("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize("filter_", ["#", "+/broker/version", "+/#", "+/broker/#", "+/+/version"])
def test_a_leading_wildcard_does_not_match_what_begins_with_a_dollar(
    client: Open, topic: str, filter_: str
) -> None:
    one = client()

    one.subscribe(filter_)

    one.subscribe(topic)
    client().publish(topic)
    while (found := one.receive_publish()).topic != topic:
        assert not found.topic.startswith("$")


@pytest.mark.spec("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.spec("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize(
    "filter_", ["$SYS/#", "$SYS/broker/version", "$SYS/+/version", "$SYS/broker/+"]
)
def test_a_filter_that_begins_with_a_dollar_matches_it(client: Open, filter_: str) -> None:
    one = client()

    one.subscribe(filter_)

    assert one.receive_publish().topic.startswith("$SYS/")


@pytest.mark.spec("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.spec("5.0", "MQTT-4.7.2-1")
def test_a_dollar_inside_of_a_topic_is_a_character(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"{topic}/+/#")

    client().publish(f"{topic}/$a/$b", b"x")

    assert one.receive_publish().topic == f"{topic}/$a/$b"


@pytest.mark.spec("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.spec("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize("filter_", ["#", "+/spec", "+/#"])
def test_no_live_message_below_a_dollar_reaches_a_leading_wildcard(
    client: Open, start_broker: Callable[..., Broker], filter_: str
) -> None:
    broker = start_broker(sys_interval_s=0)
    one, sentinel = client(port=broker.port), unique()
    one.subscribe(filter_, sentinel)

    broker.publish("$internal/spec", b"not for a wildcard")
    broker.publish(sentinel, b"end")

    assert one.receive_publish().payload == b"end"


# --- length and characters ------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-1")
@pytest.mark.spec("5.0", "MQTT-4.7.3-1")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
def test_an_empty_filter_ends_the_connection(client: Open, build: Callable[..., bytes]) -> None:
    one = client()

    one.send(build("", version=one.version))

    one.expect_refusal(0x82)


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-1")
@pytest.mark.spec("5.0", "MQTT-4.7.3-1")
def test_an_empty_topic_name_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(mqtt.publish("", b"x", version=one.version))

    if one.version == 5:
        # Without an alias it stands for nothing.
        assert one.expect(mqtt.DISCONNECT).reason == 0x82
    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-1")
@pytest.mark.spec("5.0", "MQTT-4.7.3-1")
@pytest.mark.parametrize("name", ["/", "//", " ", "a"])
def test_one_character_is_enough(client: Open, topic: str, name: str) -> None:
    one = client()
    one.subscribe((name, 0x04 if one.version == 5 else 0), topic)

    client().publish(name, topic.encode())

    while one.receive_publish().payload != topic.encode():
        pass


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-2")
@pytest.mark.spec("5.0", "MQTT-4.7.3-2")
@pytest.mark.parametrize("text", ["\0", "a\0", "\0/b", "a/\0/b"])
@pytest.mark.parametrize("build", [mqtt.publish, mqtt.subscribe, mqtt.unsubscribe])
def test_a_null_character_ends_the_connection(
    client: Open, build: Callable[..., bytes], text: str
) -> None:
    one = client()

    one.send(build(text, version=one.version))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-3")
@pytest.mark.spec("5.0", "MQTT-4.7.3-3")
def test_a_topic_of_65_535_bytes_is_delivered_where_the_limit_allows_it(
    client: Open, start_broker: Callable[..., Broker]
) -> None:
    port = start_broker(topic_bytes=65_535).port
    one, name = client(port=port), "x" * 65_535
    one.subscribe(name)

    one.publish(name, b"x")

    assert one.receive_publish().topic == name


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-3")
@pytest.mark.spec("5.0", "MQTT-4.7.3-3")
def test_the_bytes_are_counted_not_the_characters(
    client: Open, start_broker: Callable[..., Broker]
) -> None:
    port = start_broker(topic_bytes=100).port
    one = client(port=port)
    one.subscribe("\u20ac" * 33)

    one.send(mqtt.subscribe("\u20ac" * 34, version=one.version))

    one.expect_refusal(0x8F)


@pytest.mark.beyond
def test_a_topic_of_65_535_bytes_is_beyond_the_limit_of_the_default(client: Open) -> None:
    one = client()

    one.send(mqtt.publish("x" * 65_535, version=one.version))

    one.expect_refusal(0x90)


# --- no normalisation -----------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-4")
@pytest.mark.spec("5.0", "MQTT-4.7.3-4")
@pytest.mark.parametrize(
    ("filter_", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("a", "A"),
        ("\u00df", "ss"),
        ("\u2126", "\u03a9"),
        ("\uff21", "A"),
        ("\ufb01", "fi"),
        ("a", "a "),
        ("a", " a"),
        ("a", "\ufeffa"),
        ("a", "a\u200b"),
        ("a/b", "a//b"),
        ("a/b", "/a/b"),
        ("a/b", "a/b/"),
        ("a/b", "a/./b"),
        ("b", "a/../b"),
        ("a b", "a%20b"),
        ("a/b", "a\\b"),
    ],
)
def test_names_that_look_alike_are_not_the_same(
    client: Open, topic: str, filter_: str, other: str
) -> None:
    one, sender = client(), client()
    one.subscribe(f"{topic}/{filter_}")

    sender.publish(f"{topic}/{other}", b"other")
    sender.publish(f"{topic}/{filter_}", b"the same")

    assert one.receive_publish().payload == b"the same"


@pytest.mark.spec("3.1.1", "MQTT-4.7.3-4")
@pytest.mark.spec("5.0", "MQTT-4.7.3-4")
@pytest.mark.parametrize("end", ["cafe\u0301", "\u2126", "\ufeffa", "A B", "a//", "\U0001f511"])
def test_a_topic_is_delivered_as_it_was_published(client: Open, topic: str, end: str) -> None:
    one = client()
    one.subscribe(f"{topic}/#")

    one.send(mqtt.publish(f"{topic}/{end}", version=one.version))

    found = one.receive_publish()
    assert found.raw[2:].startswith(mqtt.text(f"{topic}/{end}"))


# --- empty levels ---------------------------------------------------------------------------------


@pytest.mark.beyond
@pytest.mark.parametrize("name", ["/{}", "{}/", "/{}/", "{}//a", "//{}//"])
def test_an_empty_level_is_a_level(client: Open, topic: str, name: str) -> None:
    one, sender, exact = client(), client(), name.format(topic)
    levels = exact.count("/")
    one.subscribe(exact)

    sender.publish("/".join(filter(None, exact.split("/"))), b"without")
    sender.publish(exact, b"with")

    assert one.receive_publish().payload == b"with"
    one.unsubscribe(exact)
    one.subscribe("/".join("+" * (levels + 1)))
    sender.publish(exact, topic.encode())
    while one.receive_publish().payload != topic.encode():
        pass
