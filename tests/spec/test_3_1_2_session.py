"""Section 3.1.2 of MQTT 3.1.1 and 5.0: Clean Session, Clean Start and what a session keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def name() -> str:
    """A client identifier of this test's own."""
    return unique("c")


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-4")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-2")
@pytest.mark.spec("3.1.1", "MQTT-4.1.0-1")
@pytest.mark.spec("5.0", "MQTT-3.1.2-5")
@pytest.mark.spec("5.0", "MQTT-3.1.2-23")
@pytest.mark.parametrize("end", ["disconnect", "close", "reset"])
def test_a_kept_session_goes_on_with_its_subscriptions(
    client: Open, wire: Open, version: int, topic: str, name: str, end: str
) -> None:
    first = client(name, keep=True)
    first.subscribe((topic, 1))
    getattr(first, end)()

    again = wire()
    connack = again.connect(name, clean=False)

    assert connack.session_present
    client().publish(topic, b"x", qos=1)
    assert again.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-4")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-3")
@pytest.mark.spec("5.0", "MQTT-3.1.2-6")
@pytest.mark.spec("5.0", "MQTT-3.2.2-3")
def test_without_a_session_there_is_a_new_one(
    client: Open, wire: Open, topic: str, name: str
) -> None:
    one = wire()

    connack = one.connect(name, clean=False)

    assert not connack.session_present
    one.subscribe(topic)
    one.publish(topic, b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-5")
@pytest.mark.spec("5.0", "MQTT-3.1.2-23")
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_client_that_is_away(
    client: Open, topic: str, name: str, qos: int
) -> None:
    away, sender = client(name, keep=True), client()
    away.subscribe((topic, 2))
    away.disconnect()

    for number in range(5):
        sender.publish(topic, b"%d" % number, qos=qos)

    back = client(name, keep=True)
    found = [back.receive_publish() for _ in range(5)]
    assert [(each.payload, each.qos) for each in found] == [(b"%d" % n, qos) for n in range(5)]
    back.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-5")
def test_later_messages_for_a_kept_session_outlive_several_connections(
    client: Open, topic: str, name: str
) -> None:
    client(name, keep=True).subscribe((topic, 1))
    client(name, keep=True).disconnect()
    client().publish(topic, b"x", qos=1)

    assert client(name, keep=True).receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-6")
@pytest.mark.spec("3.1.1", "MQTT-3.1.4-3")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-1")
@pytest.mark.spec("5.0", "MQTT-3.1.2-4")
@pytest.mark.spec("5.0", "MQTT-3.1.4-4")
@pytest.mark.spec("5.0", "MQTT-3.2.2-2")
def test_a_clean_start_drops_subscriptions_and_queued_messages(
    client: Open, wire: Open, topic: str, name: str
) -> None:
    away, sender = client(name, keep=True), client()
    away.subscribe((topic, 1))
    away.close()
    sender.publish(topic, b"waits", qos=1)

    new = wire()
    connack = new.connect(name, clean=True)

    assert not connack.session_present
    sender.publish(topic, b"later", qos=1)
    new.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-6")
@pytest.mark.spec("3.1.1", "MQTT-3.1.4-3")
@pytest.mark.spec("5.0", "MQTT-3.1.2-4")
def test_a_clean_start_drops_what_is_in_flight(client: Open, topic: str, name: str) -> None:
    old, sender = client(name, keep=True), client()
    old.subscribe((topic, 2))
    for qos in (1, 2):
        sender.publish(topic, qos=qos)
        old.expect(mqtt.PUBLISH)
    old.close()

    client(name, clean=True).ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-6")
@pytest.mark.spec("5.0", "MQTT-3.1.2-4")
def test_a_clean_start_drops_the_identifiers_of_received_messages(
    client: Open, version: int, topic: str, name: str
) -> None:
    watcher, old = client(), client(name, keep=True)
    watcher.subscribe((topic, 2))
    old.send(mqtt.publish(topic, b"first", qos=2, packet_id=9, version=version))
    old.expect(mqtt.PUBREC)
    old.close()

    client(name, clean=True).publish(topic, b"second", qos=2, packet_id=9)

    assert [watcher.receive_publish().payload for _ in range(2)] == [b"first", b"second"]


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-6")
def test_a_clean_session_ends_with_its_connection(
    client: Open, wire: Open, topic: str, name: str
) -> None:
    first = client(name, clean=True)
    first.subscribe((topic, 1))
    first.disconnect()

    connack = wire().connect(name, clean=False)

    assert not connack.session_present


@pytest.mark.spec("5.0", "MQTT-3.1.2-23")
@pytest.mark.spec("5.0", "MQTT-4.1.0-2")
def test_a_session_without_expiry_ends_with_its_connection(
    client: Open, wire: Open, name: str
) -> None:
    client(name, clean=False).disconnect()

    connack = wire().connect(name, clean=False)

    assert not connack.session_present


@pytest.mark.spec("5.0", "MQTT-3.1.2-4")
@pytest.mark.spec("5.0", "MQTT-3.1.2-23")
def test_a_session_that_began_with_a_clean_start_is_kept_for_its_expiry(
    client: Open, wire: Open, name: str
) -> None:
    client(name, clean=True, props={"session_expiry_interval": 60}).close()

    assert wire().connect(name, clean=False).session_present


@pytest.mark.spec("5.0", "MQTT-3.1.2-23")
@pytest.mark.spec("5.0", "MQTT-4.1.0-2")
def test_a_session_ends_when_its_expiry_has_passed(
    client: Open, wire: Open, name: str, let_time_pass: Callable[..., None]
) -> None:
    lasting, passing = name + "-60", name + "-1"
    for each, seconds in ((lasting, 60), (passing, 1)):
        client(each, props={"session_expiry_interval": seconds}).close()

    let_time_pass()

    assert wire().connect(lasting, clean=False).session_present
    assert not wire().connect(passing, clean=False).session_present


@pytest.mark.spec("3.1.1", "MQTT-3.1.2.7")
@pytest.mark.parametrize("clean", [True, False])
def test_retained_messages_outlive_the_session_that_left_them(
    client: Open, topic: str, name: str, *, clean: bool
) -> None:
    one = client(name, clean=clean)
    one.publish(topic, b"kept", qos=1, retain=True)
    one.disconnect()
    client(name, clean=True).disconnect()

    late = client()
    late.subscribe(topic)

    assert late.receive_publish().payload == b"kept"
    late.publish(topic, b"", retain=True)
