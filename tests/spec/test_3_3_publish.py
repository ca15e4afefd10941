"""Section 3.3 of MQTT 3.1.1 and 5.0: PUBLISH, its flags, its topic and who gets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.wire import Wire, unique

Open = Callable[..., Wire]

# --- 3.3.1: DUP and QoS ---------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-1")
@pytest.mark.spec("5.0", "MQTT-3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_redelivery_has_dup_set_and_is_otherwise_the_same(
    client: Open, topic: str, qos: int
) -> None:
    name = unique("c")
    old = client(name, keep=True)
    old.subscribe((topic, qos))
    client().publish(topic, b"x", qos=qos)
    first = old.expect(mqtt.PUBLISH)
    old.close()

    again = client(name, keep=True).receive_publish()

    assert (first.dup, again.dup) == (False, True)
    assert again.raw == bytes([first.raw[0] | 0x08]) + first.raw[1:]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-1")
@pytest.mark.spec("5.0", "MQTT-3.3.1-1")
def test_what_was_never_sent_comes_without_dup(client: Open, topic: str) -> None:
    name = unique("c")
    away = client(name, keep=True)
    away.subscribe((topic, 2))
    away.disconnect()
    for qos in (1, 2):
        client().publish(topic, qos=qos)

    back = client(name, keep=True)

    assert [back.receive_publish().dup for _ in range(2)] == [False, False]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-1")
@pytest.mark.spec("5.0", "MQTT-3.3.1-1")
def test_what_may_have_been_sent_has_dup_when_the_broker_was_killed(
    tmp_path: Path, version: int
) -> None:
    """A window of one holds the second message back, but the next broker cannot know that."""
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    props = {"session_expiry_interval": 3_600, "receive_maximum": 1} if version == 5 else None
    try:
        with Wire(server.port, version=version) as one, Wire(server.port) as publisher:
            one.connect("one", clean=False, props=props)
            one.subscribe(("t", 1))
            publisher.connect("publisher")
            for payload in (b"first", b"second"):
                publisher.publish("t", payload, qos=1)
            first = one.expect(mqtt.PUBLISH)
            server.kill()
        server.start()

        with Wire(server.port, version=version) as one:
            one.connect("one", clean=False, props=props)
            again = [one.receive_publish() for _ in range(2)]
    finally:
        server.kill()

    assert (first.dup, first.payload) == (False, b"first")
    assert [(packet.dup, packet.payload) for packet in again] == [
        (True, b"first"),
        (True, b"second"),
    ]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-2")
@pytest.mark.spec("5.0", "MQTT-3.3.1-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_delivery_at_qos_0_has_no_dup(client: Open, version: int, topic: str, qos: int) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)

    sender.publish(topic, qos=qos, dup=qos > 0)

    assert receiver.receive_publish().raw[0] == 0x30


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-2")
@pytest.mark.spec("5.0", "MQTT-3.3.1-2")
def test_dup_at_qos_0_ends_the_connection(client: Open, version: int, topic: str) -> None:
    watcher, one = client(), client()
    watcher.subscribe(topic)

    one.send(mqtt.publish(topic, dup=True, version=version))

    one.expect_refusal(0x81)
    watcher.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-3")
@pytest.mark.spec("5.0", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_dup_of_the_publisher_is_not_passed_on(client: Open, topic: str, qos: int) -> None:
    name, sender = unique("c"), client()
    away, receiver = client(name, keep=True), client()
    for each in (away, receiver):
        each.subscribe((topic, 2))
    away.disconnect()

    sender.publish(topic, b"x", qos=qos, dup=True, retain=True)

    late = client()
    late.subscribe((topic, 2))
    for each in (receiver, client(name, keep=True), late):
        found = each.receive_publish()
        assert (found.payload, found.qos, found.dup) == (b"x", qos, False)
    sender.publish(topic, b"", retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-4")
@pytest.mark.spec("5.0", "MQTT-3.3.1-4")
@pytest.mark.parametrize("flags", [0x06, 0x07, 0x0E, 0x0F])
def test_qos_3_ends_the_connection(client: Open, version: int, flags: int) -> None:
    one = client()

    one.send(bytes([0x30 | flags]) + mqtt.publish("a", qos=1, packet_id=1, version=version)[1:])

    one.expect_refusal(0x81)


# --- 3.3.2: the topic name ------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.3.2-1")
@pytest.mark.spec("5.0", "MQTT-3.3.2-1")
def test_a_publish_begins_with_its_topic(client: Open, version: int) -> None:
    one, topic = client(), unique("Ünïcödé/温度/")
    one.subscribe((topic, 1))
    encoded = topic.encode()

    body = b"\x00" + bytes([len(encoded)]) + encoded
    one.send(bytes([0x30, len(body) + (version == 5)]), body, b"\x00" * (version == 5))

    assert one.receive_publish().raw[2 : 4 + len(encoded)] == body


@pytest.mark.spec("3.1.1", "MQTT-3.3.2-1")
@pytest.mark.spec("5.0", "MQTT-3.3.2-1")
@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x02a", b"\xff\xffa", b"\x00\x02\xc3\x28"])
def test_a_publish_without_a_whole_topic_is_malformed(client: Open, body: bytes) -> None:
    one = client()

    one.send(bytes([0x30, len(body)]), body)

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.3.2-2")
@pytest.mark.spec("5.0", "MQTT-3.3.2-2")
@pytest.mark.parametrize("suffix", ["/#", "/+", "#", "+", "/+/a", "/a#b"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_with_a_wildcard_ends_the_connection(
    client: Open, version: int, topic: str, suffix: str, qos: int
) -> None:
    watcher, one = client(), client()
    watcher.subscribe(f"{topic}/#", f"{topic}/+")

    number = 1 if qos else None
    one.send(mqtt.publish(topic + suffix, qos=qos, packet_id=number, version=version))

    one.expect_refusal(0x90)
    watcher.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.3.2-3")
@pytest.mark.spec("5.0", "MQTT-3.3.2-3")
@pytest.mark.parametrize(
    ("pattern", "heard"),
    [
        ("{}/a/b", ["{}/a/b"]),
        ("{}/+/b", ["{}/a/b", "{}/A/b", "{}//b"]),
        ("{}/a/+", ["{}/a/b", "{}/a/"]),
        ("{}/a/#", ["{}/a", "{}/a/b", "{}/a/b/c", "{}/a/"]),
        ("+/a/b", ["{}/a/b", "{}x/a/b"]),
        ("{}/#", ["{}", "{}/a", "{}/a/b", "{}/a/b/c", "{}/A/b", "{}//b", "{}/a/"]),
    ],
)
def test_what_is_delivered_matches_the_filter(
    client: Open, topic: str, pattern: str, heard: list[str]
) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(pattern.format(topic), f"{topic}-end")
    expected = [each.format(topic) for each in heard]

    for each in ("{}", "{}/a", "{}/a/b", "{}/a/b/c", "{}/A/b", "{}//b", "{}/a/", "{}x/a/b"):
        sender.publish(each.format(topic))
    sender.publish(f"{topic}-end")

    found = []
    while (name := receiver.receive_publish().topic) != f"{topic}-end":
        found.append(name)
    assert found == expected


# --- 3.3.4 and 3.3.5: answers, overlapping subscriptions -----------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.3.4-1")
@pytest.mark.spec("5.0", "MQTT-3.3.4-1")
def test_a_publish_is_answered_as_its_qos_asks(client: Open, version: int, topic: str) -> None:
    one, listener = client(), client()
    listener.subscribe(topic)

    one.send(mqtt.publish(topic, version=version))
    one.ping()
    one.send(mqtt.publish(topic, qos=1, packet_id=0x1234, version=version))
    one.expect_bytes(bytes.fromhex("40 02 12 34"))
    one.send(mqtt.publish(topic, qos=2, packet_id=0x5678, version=version))
    one.expect_bytes(bytes.fromhex("50 02 56 78"))
    one.send(mqtt.ack(mqtt.PUBREL, 0x5678))

    one.expect_bytes(bytes.fromhex("70 02 56 78"))


@pytest.mark.spec("3.1.1", "MQTT-3.3.5-1")
@pytest.mark.spec("5.0", "MQTT-3.3.4-2")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 1)])
def test_overlapping_subscriptions_deliver_at_the_highest_qos(
    client: Open, topic: str, published: int, granted: tuple[int, int]
) -> None:
    one = client()
    one.subscribe((topic, granted[0]), (f"{topic}/#", granted[1]))

    client().publish(topic, b"x", qos=published)

    assert one.receive_publish().qos == min(published, max(granted))


@pytest.mark.spec("3.1.1", "MQTT-3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_that_is_not_allowed_is_acknowledged_and_reaches_nobody(
    client: Open, qos: int
) -> None:
    watcher, one = client(), client()
    name = unique("$SYS/not-yours")
    watcher.subscribe(name)

    one.publish(name, b"x", qos=qos, retain=True)

    watcher.ping()
    late = client()
    late.subscribe(name)
    late.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.3.5-2")
def test_a_publish_that_is_not_allowed_passes_unanswered_at_qos_0(client: Open) -> None:
    watcher, one = client(), client()
    name = unique("$SYS/not-yours")
    watcher.subscribe(name)

    one.publish(name, b"x")

    watcher.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-3")
@pytest.mark.spec("5.0", "MQTT-3.3.4-4")
def test_one_copy_carries_the_identifiers_of_all_that_match(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": 1})
    one.subscribe(f"{topic}/#", props={"subscription_identifier": 128})
    one.subscribe("+", props={"subscription_identifier": 1})
    one.subscribe(f"{topic}/other", props={"subscription_identifier": 9})

    client().publish(topic, b"x")

    found = one.receive_publish().property("subscription_identifier")
    assert isinstance(found, list)
    assert set(found) == {1, 128}
    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-3")
def test_a_subscription_without_an_identifier_adds_none(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"{topic}/#")
    one.subscribe(topic, props={"subscription_identifier": 5})

    client().publish(topic)
    client().publish(f"{topic}/a")

    assert one.receive_publish().property("subscription_identifier") == [5]
    assert one.receive_publish().property("subscription_identifier") is None


@pytest.mark.spec("5.0", "MQTT-3.3.4-3")
def test_a_message_that_waited_carries_its_identifiers(client: Open, topic: str) -> None:
    name = unique("c")
    away = client(name, keep=True)
    away.subscribe((topic, 1), props={"subscription_identifier": 268_435_455})
    away.disconnect()
    client().publish(topic, qos=1)

    found = client(name, keep=True).receive_publish()

    assert found.property("subscription_identifier") == [268_435_455]


@pytest.mark.spec("5.0", "MQTT-3.3.4-5")
def test_several_copies_carry_each_their_own_identifier(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": 1})
    one.subscribe(f"$share/{topic}/{topic}", props={"subscription_identifier": 2})

    client().publish(topic)

    found = [one.receive_publish().property("subscription_identifier") for _ in range(2)]
    assert sorted(found, key=str) == [[1], [2]]
    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-6")
def test_a_subscription_identifier_from_a_client_ends_the_connection(
    client: Open, topic: str
) -> None:
    watcher, one = client(), client()
    watcher.subscribe(topic)

    one.send(mqtt.publish(topic, props={"subscription_identifier": 1}))

    one.expect_refusal(0x82)
    watcher.ping()
