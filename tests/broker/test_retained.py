"""Retained messages: kept, replaced, cleared, and sent to those who ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker
from mqttcore.plugin import Allow, Grant, Login, Plugin, hook

from tests import wire as mqtt
from tests.wire import Wire

Open = Callable[..., Wire]
AT_SUBSCRIBE, IF_NEW, NEVER = 0x00, 0x10, 0x20
RETAIN_AS_PUBLISHED = 0x08


@pytest.fixture
def retained(client: Open, topic: str) -> Iterator[Wire]:
    """A client that has left `kept` on this test's topic, and clears it afterwards."""
    one = client()
    one.publish(topic, b"kept", qos=1, retain=True)
    yield one
    one.publish(topic, b"", qos=1, retain=True)


def test_a_new_subscription_gets_it(client: Open, retained: Wire, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe((topic, 1))

    found = one.receive_publish()

    assert (found.topic, found.payload) == (topic, b"kept")
    assert (found.retain, found.dup, found.qos) == (True, False, 1)
    one.ping()


def test_a_live_message_has_no_retain_flag(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe(topic)

    sender.publish(topic, b"x", retain=True)

    assert not receiver.receive_publish().retain
    sender.publish(topic, b"", retain=True)


def test_retain_as_published_keeps_the_flag(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, RETAIN_AS_PUBLISHED))

    for retain in (True, False):
        sender.publish(topic, b"x", retain=retain)

    assert receiver.receive_publish().retain
    assert not receiver.receive_publish().retain
    sender.publish(topic, b"", retain=True)


def test_the_last_one_counts(client: Open, retained: Wire, topic: str, version: int) -> None:
    sender, receiver = client(version=version), client(version=version)

    sender.publish(topic, b"newer", qos=1, retain=True)

    receiver.subscribe(topic)
    assert receiver.receive_publish().payload == b"newer"
    receiver.ping()


def test_an_ordinary_message_does_not_replace_it(
    client: Open, retained: Wire, topic: str, version: int
) -> None:
    sender, receiver = client(version=version), client(version=version)

    sender.publish(topic, b"passing", qos=1)

    receiver.subscribe(topic)
    assert receiver.receive_publish().payload == b"kept"


def test_an_empty_payload_clears_it(client: Open, retained: Wire, topic: str, version: int) -> None:
    sender, receiver = client(version=version), client(version=version)

    sender.publish(topic, b"", qos=1, retain=True)

    receiver.subscribe(topic)
    receiver.ping()


def test_clearing_is_a_message_for_live_subscribers(
    client: Open, retained: Wire, topic: str
) -> None:
    receiver = client()
    receiver.subscribe((topic, IF_NEW))
    receiver.receive_publish()

    retained.publish(topic, b"", qos=1, retain=True)

    assert receiver.receive_publish().payload == b""


def test_wildcards_find_all_of_them(client: Open, topic: str, version: int) -> None:
    names = {f"{topic}/a", f"{topic}/a/b", f"{topic}/c"}
    sender, receiver = client(version=version), client(version=version)
    for name in names:
        sender.publish(name, name.encode(), qos=1, retain=True)

    receiver.subscribe(f"{topic}/#")

    assert {receiver.receive_publish().topic for _ in names} == names
    receiver.ping()
    for name in names:
        sender.publish(name, b"", qos=1, retain=True)


def test_a_single_level_wildcard_finds_its_level_only(client: Open, topic: str) -> None:
    names = [f"{topic}/a", f"{topic}/a/b"]
    sender, receiver = client(), client()
    for name in names:
        sender.publish(name, b"x", qos=1, retain=True)

    receiver.subscribe(f"{topic}/+")

    assert receiver.receive_publish().topic == f"{topic}/a"
    receiver.ping()
    for name in names:
        sender.publish(name, b"", qos=1, retain=True)


def test_a_new_subscription_of_3_x_to_the_same_filter_gets_it_again(
    client: Open, retained: Wire, topic: str
) -> None:
    one = client(version=4)

    for _ in range(2):
        one.subscribe(topic)
        assert one.receive_publish().payload == b"kept"


@pytest.mark.parametrize(
    ("handling", "first", "second"),
    [(AT_SUBSCRIBE, True, True), (IF_NEW, True, False), (NEVER, False, False)],
)
def test_retain_handling_says_when(
    client: Open, retained: Wire, topic: str, handling: int, *, first: bool, second: bool
) -> None:
    one = client()

    for wanted in (first, second):
        one.subscribe((topic, handling))
        if wanted:
            assert one.receive_publish().retain
        one.ping()


def test_retain_if_new_sends_again_after_unsubscribe(
    client: Open, retained: Wire, topic: str
) -> None:
    one = client()
    one.subscribe((topic, IF_NEW))
    one.receive_publish()
    one.unsubscribe(topic)

    one.subscribe((topic, IF_NEW))

    assert one.receive_publish().payload == b"kept"


def test_a_shared_subscription_gets_none(client: Open, retained: Wire, topic: str) -> None:
    one = client()

    one.subscribe(f"$share/group/{topic}")

    one.ping()


def test_the_subscription_identifier_comes_with_it(
    client: Open, retained: Wire, topic: str
) -> None:
    one = client()

    one.subscribe(topic, props={"subscription_identifier": 7})

    assert one.receive_publish().property("subscription_identifier") == [7]


def test_its_properties_are_kept(client: Open, topic: str) -> None:
    sender, receiver = client(), client()
    props = {"content_type": "text/plain", "user_property": [("a", "1")]}
    sender.publish(topic, b"x", qos=1, retain=True, props=props)

    receiver.subscribe(topic)

    assert receiver.receive_publish().properties == props
    sender.publish(topic, b"", qos=1, retain=True)


def test_it_outlives_its_publisher(client: Open, topic: str, version: int) -> None:
    sender = client(version=version)
    sender.publish(topic, b"x", qos=1, retain=True)
    sender.disconnect()

    receiver = client(version=version)
    receiver.subscribe(topic)

    assert receiver.receive_publish().payload == b"x"
    receiver.publish(topic, b"", retain=True)


def test_an_expired_one_is_gone(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    sender, receiver = client(), client()
    sender.publish(topic, b"x", qos=1, retain=True, props={"message_expiry_interval": 1})

    let_time_pass()

    receiver.subscribe(topic)
    receiver.ping()


def test_more_than_one_packet_may_carry(client: Open, topic: str) -> None:
    sender, receiver, count = client(version=4), client(version=4), 300
    sender.send(
        *(
            mqtt.publish(f"{topic}/{number}", b"x" * 100, retain=True, version=4)
            for number in range(count)
        )
    )
    sender.ping()

    receiver.subscribe((f"{topic}/+", 1))

    found = {receiver.receive_publish().topic for _ in range(count)}
    assert len(found) == count
    receiver.ping()
    sender.send(
        *(mqtt.publish(f"{topic}/{number}", retain=True, version=4) for number in range(count))
    )
    sender.ping()


class Confined(Plugin):
    """What clients may publish to that connect from now on."""

    publish = ("#",)

    @hook.authenticate()
    def login(self, _: Login) -> Allow:
        """Everybody may read everything."""
        return Allow(Grant(publish=self.publish, subscribe=["#"]))


@pytest.mark.parametrize("checks", [True, False])
def test_what_its_publisher_may_not_publish_any_more_is_not_sent_to_new_subscriptions(
    start_broker: Callable[..., Broker], client: Open, version: int, *, checks: bool
) -> None:
    plugin = Confined()
    running = start_broker(plugin, check_retain_source=checks)
    login = {"port": running.port, "username": "device", "version": version}
    device = client("device", **login)
    for topic in ("a/1", "b/1"):
        device.publish(topic, topic.encode(), qos=1, retain=True)
    device.disconnect()

    plugin.publish = ("b/#",)
    client("device", **login).disconnect()
    reader = client(port=running.port)
    reader.subscribe("a/1", "b/1")

    expected = ["b/1"] if checks else ["a/1", "b/1"]
    assert [reader.receive_publish().topic for _ in expected] == expected
    assert running.stats()["retained_withheld"] == int(checks)
