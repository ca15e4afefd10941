"""Section 3.3 of MQTT 3.1.1 and 5.0: PUBLISH, its flags, its topic and who gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

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


# --- 3.3.4: Receive Maximum -----------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.3.4-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_may_fill_the_servers_receive_maximum_again_and_again(
    start_broker: Callable[..., Broker], wire: Open, topic: str, qos: int
) -> None:
    one = wire(port=start_broker(receive_maximum=3).port)
    assert one.connect("x").property("receive_maximum") == 3

    for _ in range(3):
        one.send(*[mqtt.publish(topic, qos=qos, packet_id=number) for number in (1, 2, 3)])
        for number in (1, 2, 3):
            answer = one.expect(mqtt.PUBACK if qos == 1 else mqtt.PUBREC)
            assert answer.packet_id == number
        if qos == 2:
            one.send(*[mqtt.ack(mqtt.PUBREL, number) for number in (1, 2, 3)])
            assert [one.expect(mqtt.PUBCOMP).packet_id for _ in range(3)] == [1, 2, 3]

    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-7")
def test_a_client_beyond_the_servers_receive_maximum_is_disconnected(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=3).port)
    for number in (1, 2, 3):
        one.send(mqtt.publish(topic, qos=2, packet_id=number))
        one.expect(mqtt.PUBREC)

    one.send(mqtt.publish(topic, qos=2, packet_id=4))

    one.expect_refusal(0x93)


@pytest.mark.spec("5.0", "MQTT-3.3.4-8")
def test_at_the_servers_receive_maximum_everything_else_is_still_taken(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=1).port)
    one.send(mqtt.publish(topic, qos=2, packet_id=1))
    one.expect(mqtt.PUBREC)

    one.subscribe(topic)
    one.publish(topic, b"qos 0")
    one.unsubscribe(topic)

    assert one.receive_publish().payload == b"qos 0"
    one.send(mqtt.ack(mqtt.PUBREL, 1))
    one.expect_bytes(bytes.fromhex("70 02 00 01"))


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
@pytest.mark.parametrize("maximum", [1, 2, 10])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_stays_within_the_clients_receive_maximum(
    client: Open, topic: str, maximum: int, qos: int
) -> None:
    receiver, sender = client(props={"receive_maximum": maximum}), client()
    receiver.subscribe((topic, qos))
    for number in range(maximum + 2):
        sender.publish(topic, b"%d" % number, qos=qos)

    first = [receiver.expect(mqtt.PUBLISH) for _ in range(maximum)]
    receiver.ping()
    receiver.acknowledge(first[0])
    next_one = receiver.expect(mqtt.PUBLISH)
    receiver.ping()

    found = [each.payload for each in [*first, next_one]]
    assert found == [b"%d" % number for number in range(maximum + 1)]


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
def test_pubrec_alone_gives_no_room_and_an_error_pubrec_does(client: Open, topic: str) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 2))
    for number in range(3):
        sender.publish(topic, b"%d" % number, qos=2)

    first = receiver.expect(mqtt.PUBLISH).packet_id or 0
    receiver.send(mqtt.ack(mqtt.PUBREC, first))
    receiver.expect(mqtt.PUBREL)
    receiver.ping()
    receiver.send(mqtt.ack(mqtt.PUBCOMP, first))
    second = receiver.expect(mqtt.PUBLISH)
    receiver.send(mqtt.ack(mqtt.PUBREC, second.packet_id or 0, 0x80))

    assert receiver.receive_publish().payload == b"2"


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
def test_a_resumed_session_stays_within_the_new_connections_receive_maximum(
    client: Open, topic: str
) -> None:
    name, sender = unique("c"), client()
    old = client(name, keep=True)
    old.subscribe((topic, 1))
    for _ in range(5):
        sender.publish(topic, qos=1)
        old.expect(mqtt.PUBLISH)
    old.close()

    new = client(name, keep=True, props={"receive_maximum": 2})

    found = [new.expect(mqtt.PUBLISH) for _ in range(2)]
    new.ping()
    new.acknowledge(found[0])
    new.expect(mqtt.PUBLISH)
    new.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-10")
def test_a_full_quota_of_the_client_delays_nothing_but_publish(
    client: Open, version: int, topic: str
) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 2))
    for _ in range(2):
        sender.publish(topic, qos=2)
    open_one = one.expect(mqtt.PUBLISH).packet_id or 0

    one.subscribe(f"{topic}/other")
    one.unsubscribe(f"{topic}/other")
    one.publish(f"{topic}/x", qos=1)
    one.publish(f"{topic}/x", qos=2)
    one.ping()
    one.send(mqtt.ack(mqtt.PUBREC, open_one))

    one.expect_bytes(b"\x62\x02" + open_one.to_bytes(2, "big"))


@pytest.mark.spec("5.0", "MQTT-3.3.4-10")
def test_a_full_quota_of_the_client_does_not_delay_qos_0(client: Open, topic: str) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 1))
    for payload in (b"in flight", b"waits"):
        sender.publish(topic, payload, qos=1)
    one.expect(mqtt.PUBLISH)

    sender.publish(topic, b"qos 0")

    assert one.expect(mqtt.PUBLISH).payload == b"qos 0"
