"""`$SYS/broker/...` is what dashboards made for Mosquitto expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mqttcore import Broker

from tests.operations.sys_topics import MOSQUITTO, PREFIX, TELEGRAF, Shown, retained
from tests.wire import Wire, publish

Start = Callable[..., Broker]


@pytest.fixture(scope="module")
def shown() -> Iterator[dict[str, Shown]]:
    """What a broker shows before anything happens."""
    from tests.conftest import start

    with start(sys_interval_s=0.2) as broker:
        yield retained(broker.port, names=frozenset(MOSQUITTO))


@pytest.mark.parametrize("name", MOSQUITTO)
def test_a_topic_of_mosquitto_is_retained_with_qos_2_and_has_its_grammar(
    shown: dict[str, Shown], name: str
) -> None:
    found = shown[name]

    assert re.fullmatch(MOSQUITTO[name], found.text)
    assert (found.qos, found.retain) == (2, True)


def test_telegraf_and_mqtt_explorer_find_theirs(shown: dict[str, Shown]) -> None:
    assert shown.keys() >= set(TELEGRAF)


def test_a_topic_is_published_only_when_its_text_has_changed(start_broker: Start) -> None:
    broker = start_broker(sys_interval_s=0.1)
    texts: dict[str, str] = {}
    uptimes = 0

    with Wire(broker.port) as wire:
        wire.connect("reader")
        wire.subscribe((PREFIX + "#", 0))
        while uptimes < 4:
            found = wire.receive_publish()
            text = found.payload.decode()
            assert texts.get(found.topic) != text
            texts[found.topic] = text
            uptimes += found.topic == PREFIX + "uptime"


def until(broker: Broker, **expected: Any) -> None:  # noqa: ANN401 -- figures by name
    """Reads figures until they are as expected."""
    wanted = {name.replace("__", "/"): str(value) for name, value in expected.items()}
    with Wire(broker.port) as wire:
        wire.connect("reader")
        wire.subscribe(*((PREFIX + name, 0) for name in wanted))
        seen: dict[str, str] = {}
        while seen != wanted:
            found = wire.receive_publish()
            seen[found.topic.removeprefix(PREFIX)] = found.payload.decode()


def test_payload_bytes_are_counted(start_broker: Start) -> None:
    broker = start_broker(sys_interval_s=0.1)
    with Wire(broker.port) as subscriber, Wire(broker.port) as publisher:
        subscriber.connect("subscriber")
        subscriber.subscribe(("a", 0))
        publisher.connect("publisher")
        publisher.publish("a", b"x" * 100, qos=1)
        publisher.publish("nobody", b"y" * 11)
        subscriber.receive_publish()

        until(broker, publish__bytes__received=111)
        assert broker.stats()["payload_bytes_sent"] >= 100


def test_queued_and_retained_messages_and_shared_subscriptions_are_counted(
    start_broker: Start,
) -> None:
    broker = start_broker(sys_interval_s=0.1)
    with Wire(broker.port) as away, Wire(broker.port) as member, Wire(broker.port) as publisher:
        away.connect("away", props={"session_expiry_interval": 600})
        away.subscribe(("a", 1))
        away.close()
        member.connect("member")
        member.subscribe(("$share/one/b", 1), ("$share/two/b", 1), ("c", 1))
        publisher.connect("publisher")
        for number in range(3):
            publisher.publish("a", b"x", qos=1, packet_id=number + 1)
        publisher.publish("kept", b"x", qos=1, retain=True)

        stored = {"messages__stored": 4, "store__messages__count": 4}
        until(broker, shared_subscriptions__count=2, **stored)
        member.unsubscribe("$share/one/b")
        until(broker, shared_subscriptions__count=1, **stored)
    until(broker, shared_subscriptions__count=0, **stored)


def test_packets_that_a_client_does_not_take_are_counted(start_broker: Start) -> None:
    broker = start_broker(sys_interval_s=0.1)
    with Wire(broker.port) as slow, Wire(broker.port) as publisher:
        slow.connect("slow")
        slow.subscribe(("a", 0))
        publisher.connect("publisher")
        while not broker.stats()["waiting_packets"]:
            publisher.send(publish("a", b"x" * 60_000, version=5))
            publisher.ping()

        stats = broker.stats()
        assert stats["waiting_bytes"] > stats["waiting_packets"] > 0
    until(broker, packet__out__count=0, packet__out__bytes=0)
