"""Topic aliases, both ways."""

from __future__ import annotations

from collections.abc import Callable

from tests import wire as mqtt
from tests.wire import Packet, Wire

Open = Callable[..., Wire]


def resolve(found: list[Packet], maximum: int) -> list[str]:
    """The topics that a client reads, given what came and what it had offered."""
    table: dict[int, str] = {}
    topics = []
    for each in found:
        alias = each.property("topic_alias")
        if alias is not None:
            assert isinstance(alias, int)
            assert 1 <= alias <= maximum
            if each.topic:
                table[alias] = each.topic
            topics.append(table[alias])
        else:
            assert each.topic
            topics.append(each.topic)
    return topics


def test_an_alias_stands_for_its_topic(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(f"{topic}/#")

    sender.publish(f"{topic}/a", b"1", props={"topic_alias": 10})
    sender.publish("", b"2", props={"topic_alias": 10})
    sender.publish(f"{topic}/b", b"3", props={"topic_alias": 10})
    sender.publish("", b"4", props={"topic_alias": 10})

    found = [receiver.receive_publish() for _ in range(4)]
    assert [each.topic for each in found] == [f"{topic}/{level}" for level in "aabb"]
    assert mqtt.payloads(found) == [b"1", b"2", b"3", b"4"]
    assert not any(each.properties for each in found)


def test_an_alias_works_at_every_quality(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, 2))

    sender.publish(topic, b"0", props={"topic_alias": 1})
    sender.publish("", b"1", qos=1, props={"topic_alias": 1})
    sender.publish("", b"2", qos=2, props={"topic_alias": 1})

    assert [receiver.receive_publish().topic for _ in range(3)] == [topic] * 3


def test_an_alias_reaches_3_1_1_subscribers_as_a_topic(client: Open, topic: str) -> None:
    receiver, sender = client(version=4), client()
    receiver.subscribe(topic)

    sender.publish(topic, b"1", props={"topic_alias": 1})
    sender.publish("", b"2", props={"topic_alias": 1})

    assert [receiver.receive_publish().topic for _ in range(2)] == [topic] * 2


def test_a_retained_message_by_alias_has_its_topic(client: Open, topic: str) -> None:
    sender = client()
    sender.publish(topic, b"1", props={"topic_alias": 1})
    sender.publish("", b"kept", retain=True, props={"topic_alias": 1})

    late = client()
    late.subscribe(topic)

    found = late.receive_publish()
    assert (found.topic, found.payload) == (topic, b"kept")
    sender.publish(topic, b"", retain=True)


def test_each_client_has_its_own_aliases(client: Open, topic: str) -> None:
    receiver, one, other = client(), client(), client()
    receiver.subscribe(f"{topic}/#")
    one.publish(f"{topic}/one", props={"topic_alias": 1})
    other.publish(f"{topic}/other", props={"topic_alias": 1})

    one.publish("", props={"topic_alias": 1})

    assert [receiver.receive_publish().topic for _ in range(3)] == [
        f"{topic}/one",
        f"{topic}/other",
        f"{topic}/one",
    ]


def test_a_client_that_offers_none_gets_none(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)

    for _ in range(3):
        sender.publish(topic)

    for _ in range(3):
        found = receiver.receive_publish()
        assert (found.topic, found.property("topic_alias")) == (topic, None)


def test_what_the_broker_aliases_can_be_resolved(client: Open, topic: str) -> None:
    receiver, sender = client(props={"topic_alias_maximum": 2}), client()
    receiver.subscribe((f"{topic}/#", 1))
    expected = [f"{topic}/{level}" for level in "abcabcaaabbbccc"]

    for name in expected:
        sender.publish(name, qos=1)

    found = [receiver.receive_publish() for _ in expected]
    assert resolve(found, maximum=2) == expected


def test_aliases_of_the_broker_end_with_the_connection(client: Open, topic: str) -> None:
    session = {"session_expiry_interval": 60, "topic_alias_maximum": 5}
    receiver, sender = client("alias-" + topic, props=session), client()
    receiver.subscribe((topic, 1))
    sender.publish(topic, qos=1)
    receiver.receive_publish()
    receiver.close()
    sender.publish(topic, qos=1)

    again = client("alias-" + topic, clean=False, props=session)

    assert again.receive_publish().topic == topic
