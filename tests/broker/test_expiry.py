"""Message Expiry Interval: what waited too long is not delivered."""

from __future__ import annotations

from collections.abc import Callable

from tests.wire import Wire, unique

Open = Callable[..., Wire]
SESSION = {"session_expiry_interval": 60}


def away(client: Open, topic: str) -> str:
    """A session that is subscribed and offline: its client identifier."""
    name = unique("c")
    one = client(name, props=SESSION)
    one.subscribe((topic, 1))
    one.disconnect()
    return name


def test_a_live_message_keeps_its_interval(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)

    sender.publish(topic, props={"message_expiry_interval": 60})

    assert receiver.receive_publish().property("message_expiry_interval") == 60


def test_what_expired_in_the_queue_is_not_delivered_and_blocks_nothing(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    name, sender = away(client, topic), client()
    for payload, seconds in ((b"gone", 1), (b"stays", 60), (b"gone too", 1)):
        sender.publish(topic, payload, qos=1, props={"message_expiry_interval": seconds})
    sender.publish(topic, b"endless", qos=1)

    let_time_pass()

    again = client(name, clean=False)
    assert again.receive_publish().payload == b"stays"
    assert again.receive_publish().payload == b"endless"
    again.ping()


def test_the_time_in_the_queue_is_taken_off(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    name, sender = away(client, topic), client()
    sender.publish(topic, qos=1, props={"message_expiry_interval": 60})

    let_time_pass()

    left = client(name, clean=False).receive_publish().property("message_expiry_interval")
    assert isinstance(left, int)
    assert 50 <= left <= 59


def test_an_expiring_message_reaches_3_1_1_without_its_interval(client: Open, topic: str) -> None:
    receiver, sender = client(version=4), client()
    receiver.subscribe(topic)

    sender.publish(topic, b"x", props={"message_expiry_interval": 60})

    assert receiver.receive_publish().payload == b"x"


def test_the_longest_interval_does_not_overflow(client: Open, topic: str) -> None:
    name, sender = away(client, topic), client()

    sender.publish(topic, b"x", qos=1, props={"message_expiry_interval": 0xFFFF_FFFF})

    found = client(name, clean=False).receive_publish()
    assert found.payload == b"x"
    left = found.property("message_expiry_interval")
    assert isinstance(left, int)
    assert left >= 0xFFFF_FFF0
