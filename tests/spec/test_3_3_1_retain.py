"""Section 3.3.1.3 of MQTT 3.1.1 and 5.0: retained messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]

SEND, SEND_IF_NEW, DO_NOT_SEND = 0x00, 0x10, 0x20
RETAIN_AS_PUBLISHED = 0x08


@pytest.fixture
def sender(client: Open, topic: str) -> Iterator[Wire]:
    """A publisher that clears what it has left on this test's topic."""
    one = client()
    yield one
    one.publish(topic, b"", retain=True)


def retained(client: Open, topic: str) -> list[tuple[bytes, int, bool]]:
    """Payload, QoS and RETAIN of what a new subscription to `topic` gets at once."""
    one = client()
    one.subscribe((topic, 2))
    one.send(mqtt.pingreq())
    found = []
    while (each := one.receive()).kind != mqtt.PINGRESP:
        found.append((each.payload, each.qos, each.retain))
    return found


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-5")
@pytest.mark.spec("3.1.1", "MQTT-3.3.1-8")
@pytest.mark.spec("5.0", "MQTT-3.3.1-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_kept_with_its_qos(
    client: Open, sender: Wire, topic: str, qos: int
) -> None:
    sender.publish(topic, b"kept", qos=qos, retain=True)

    assert retained(client, topic) == [(b"kept", qos, True)]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-5")
@pytest.mark.spec("5.0", "MQTT-3.3.1-5")
def test_a_retained_message_replaces_the_one_before(client: Open, sender: Wire, topic: str) -> None:
    for payload, qos in ((b"first", 2), (b"second", 1)):
        sender.publish(topic, payload, qos=qos, retain=True)

    assert retained(client, topic) == [(b"second", 1, True)]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-7")
@pytest.mark.spec("5.0", "MQTT-3.3.1-5")
def test_a_retained_message_of_qos_0_discards_the_one_before(
    client: Open, sender: Wire, topic: str
) -> None:
    for payload, qos in ((b"first", 2), (b"second", 0)):
        sender.publish(topic, payload, qos=qos, retain=True)

    assert retained(client, topic) == [(b"second", 0, True)]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-6")
@pytest.mark.spec("5.0", "MQTT-3.3.1-9")
def test_a_new_subscription_gets_each_retained_message_that_matches(
    client: Open, sender: Wire, topic: str
) -> None:
    names = [f"{topic}/{level}" for level in ("a", "a/b", "c", "")]
    for each in [*names, f"{topic}-other"]:
        sender.publish(each, each.encode(), qos=1, retain=True)

    found = retained(client, f"{topic}/#")

    assert sorted(found) == sorted((each.encode(), 1, True) for each in names)
    for each in [*names, f"{topic}-other"]:
        sender.publish(each, b"", retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-9")
@pytest.mark.spec("5.0", "MQTT-3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscription_that_is_there_gets_it_with_retain_0(
    client: Open, sender: Wire, topic: str, qos: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))

    sender.publish(topic, b"kept", qos=qos, retain=True)

    found = receiver.receive_publish()
    assert (found.payload, found.qos, found.retain) == (b"kept", qos, False)


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-10")
@pytest.mark.spec("3.1.1", "MQTT-3.3.1-11")
@pytest.mark.spec("5.0", "MQTT-3.3.1-6")
@pytest.mark.spec("5.0", "MQTT-3.3.1-7")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_is_delivered_and_removes_what_was_retained(
    client: Open, sender: Wire, topic: str, qos: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))
    sender.publish(topic, b"kept", qos=1, retain=True)
    receiver.receive_publish()

    sender.publish(topic, b"", qos=qos, retain=True)

    found = receiver.receive_publish()
    assert (found.payload, found.qos, found.retain) == (b"", qos, False)
    assert retained(client, topic) == []


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-11")
@pytest.mark.spec("5.0", "MQTT-3.3.1-7")
def test_an_empty_message_is_not_retained_where_nothing_was(
    client: Open, sender: Wire, topic: str
) -> None:
    sender.publish(topic, b"", qos=1, retain=True)

    assert retained(client, topic) == []


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-12")
@pytest.mark.spec("5.0", "MQTT-3.3.1-8")
@pytest.mark.parametrize("payload", [b"passing", b""])
def test_a_message_without_retain_leaves_what_was_retained(
    client: Open, sender: Wire, topic: str, payload: bytes
) -> None:
    sender.publish(topic, b"kept", qos=1, retain=True)

    sender.publish(topic, payload, qos=2)

    assert retained(client, topic) == [(b"kept", 1, True)]


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-12")
@pytest.mark.spec("5.0", "MQTT-3.3.1-8")
def test_a_message_without_retain_is_not_kept(client: Open, sender: Wire, topic: str) -> None:
    sender.publish(topic, b"passing", qos=1)

    assert retained(client, topic) == []


@pytest.mark.spec("3.1.1", "MQTT-3.3.1-6")
@pytest.mark.spec("5.0", "MQTT-3.3.1-9")
def test_more_retained_messages_than_wait_for_a_client_all_come(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    port = start_broker(queue_messages=3, inflight_max=1).port
    sender, receiver = client(port=port), client(port=port)
    for number in range(10):
        sender.publish(f"{topic}/{number}", b"kept", qos=1, retain=True)

    receiver.subscribe((f"{topic}/#", 1))

    found = {receiver.receive_publish().topic for _ in range(10)}
    assert found == {f"{topic}/{number}" for number in range(10)}


# --- 5.0: Retain Handling, Retain As Published ----------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.3.1-9")
@pytest.mark.spec("5.0", "MQTT-3.3.1-10")
@pytest.mark.spec("5.0", "MQTT-3.3.1-11")
@pytest.mark.parametrize(
    ("handling", "new", "again"),
    [(SEND, 1, 1), (SEND_IF_NEW, 1, 0), (DO_NOT_SEND, 0, 0)],
    ids=["0", "1", "2"],
)
def test_retain_handling_says_when_retained_messages_are_sent(
    client: Open, sender: Wire, topic: str, handling: int, new: int, again: int
) -> None:
    sender.publish(topic, b"kept", qos=1, retain=True)
    one = client()

    for expected in (new, again):
        one.subscribe((topic, 1 | handling))
        for _ in range(expected):
            found = one.receive_publish()
            assert (found.payload, found.retain) == (b"kept", True)
        one.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.1-10")
def test_a_subscription_is_new_again_after_unsubscribe(
    client: Open, sender: Wire, topic: str
) -> None:
    sender.publish(topic, b"kept", qos=1, retain=True)
    one = client()
    one.subscribe((topic, SEND_IF_NEW))
    one.receive_publish()
    one.unsubscribe(topic)

    one.subscribe((topic, SEND_IF_NEW))

    assert one.receive_publish().payload == b"kept"


@pytest.mark.spec("5.0", "MQTT-3.3.1-10")
def test_a_subscription_of_a_resumed_session_is_not_new(
    client: Open, sender: Wire, topic: str
) -> None:
    sender.publish(topic, b"kept", qos=1, retain=True)
    first = client(topic, keep=True)
    first.subscribe((topic, DO_NOT_SEND))
    first.close()

    again = client(topic, keep=True)
    again.subscribe((topic, SEND_IF_NEW))

    again.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.1-13")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_with_retain_as_published_the_flag_is_forwarded_as_it_came(
    client: Open, sender: Wire, topic: str, qos: int, *, retain: bool
) -> None:
    receiver = client()
    receiver.subscribe((topic, 2 | RETAIN_AS_PUBLISHED))

    sender.publish(topic, b"x", qos=qos, retain=retain)

    assert receiver.receive_publish().retain is retain


@pytest.mark.spec("5.0", "MQTT-3.3.1-12")
@pytest.mark.spec("5.0", "MQTT-3.3.1-13")
def test_the_flag_of_a_message_that_waited_follows_its_subscription(
    client: Open, sender: Wire, topic: str
) -> None:
    names = {f"{topic}-keeps": RETAIN_AS_PUBLISHED, f"{topic}-clears": 0}
    for name, options in names.items():
        one = client(name, keep=True)
        one.subscribe((topic, 1 | options))
        one.disconnect()

    sender.publish(topic, b"x", qos=1, retain=True)

    found = [client(name, keep=True).receive_publish().retain for name in names]
    assert found == [True, False]


@pytest.mark.spec("5.0", "MQTT-3.3.1-9")
def test_what_is_sent_for_a_new_subscription_has_retain_1_whatever_its_options(
    client: Open, sender: Wire, topic: str
) -> None:
    sender.publish(topic, b"kept", qos=1, retain=True)

    for options in (SEND, SEND | RETAIN_AS_PUBLISHED):
        one = client()
        one.subscribe((topic, options))
        assert one.receive_publish().retain
