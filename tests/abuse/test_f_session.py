"""Abuse table F: retained messages, wills, sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.eventually import eventually
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_f01_more_retained_messages_than_are_kept(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    port = start_broker(retained_messages=3, sys_interval_s=0).port
    one = client(port=port)
    for number in range(3):
        assert one.publish(f"{topic}/{number}", b"1", qos=1, retain=True).reason in (0, 0x10)

    refused = one.publish(f"{topic}/3", b"1", qos=1, retain=True)
    renewed = one.publish(f"{topic}/0", b"2", qos=1, retain=True)
    cleared = one.publish(f"{topic}/1", b"", qos=1, retain=True)

    assert refused.reason == 0x97
    assert {renewed.reason, cleared.reason} <= {0, 0x10}
    assert one.publish(f"{topic}/3", b"1", qos=1, retain=True).reason in (0, 0x10)


def test_f02_a_retained_message_of_the_largest_length(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(b"\x31" + mqtt.var_int(268_435_455))

    one.expect_refusal(0x95)


@pytest.mark.parametrize("will", ["$SYS/broker/version", "$CONTROL/x", "$share/g/t"])
def test_f07_a_will_without_the_right_to_it(wire: Open, version: int, will: str) -> None:
    one = wire(version=version)

    one.connect(unique("c"), will=Will(topic=will), reason=0x87 if version == 5 else 5)

    one.expect_close()


@pytest.mark.parametrize(("will", "reason"), [("f07/+", 0x90), ("#", 0x90), ("", 0x82)])
def test_f07_a_will_to_no_topic(wire: Open, version: int, will: str, reason: int) -> None:
    one = wire(version=version)

    one.send(mqtt.connect(unique("c"), version=version, will=Will(topic=will)))

    if version == 5:
        assert one.expect(mqtt.CONNACK).reason == reason
    one.expect_close()


def test_f10_a_delayed_will_ends_with_its_session(client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe(topic)
    will = Will(topic=topic, properties={"will_delay_interval": 0xFFFF_FFFF})

    client(props={"session_expiry_interval": 1}, will=will).reset()

    assert watcher.receive_publish().topic == topic


def test_f12_a_session_for_ever_is_shortened(wire: Open) -> None:
    one = wire()

    connack = one.connect(unique("c"), props={"session_expiry_interval": 0xFFFF_FFFF})

    assert connack.property("session_expiry_interval") == 604_800
    one.disconnect(0, props={"session_expiry_interval": 0})


def test_f12_more_sessions_than_are_kept(
    start_broker: Callable[..., Broker], client: Open, wire: Open
) -> None:
    port = start_broker(sessions=2).port
    kept = [
        client(f"f12-{number}", port=port, props={"session_expiry_interval": 60})
        for number in range(2)
    ]
    kept[0].disconnect()

    one = wire(port=port)
    one.connect("f12-one-more", reason=0x97, props={"session_expiry_interval": 60})

    one.expect_close()
    for version in (4, 5):
        clean = client(f"f12-clean-{version}", version=version, port=port)
        clean.ping()
    kept[1].ping()
    assert wire(port=port).connect("f12-0", clean=False).session_present


def test_f13_disconnect_may_not_raise_the_expiry_from_zero(client: Open) -> None:
    one = client()

    one.send(mqtt.disconnect(0, props={"session_expiry_interval": 60}))

    one.expect_refusal(0x82)


def test_f13_the_will_is_sent_then(client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe(topic)
    one = client(will=Will(topic=topic))

    one.send(mqtt.disconnect(0, props={"session_expiry_interval": 60}))

    one.expect_refusal(0x82)
    assert watcher.receive_publish().topic == topic


def test_f14_the_queue_of_a_client_that_stays_away_is_bounded_by_bytes(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    running = start_broker(queue_bytes=10_000)
    port = running.port
    session = {"session_expiry_interval": 60}
    away, sender = client("f14", port=port, props=session), client(port=port)
    away.subscribe((topic, 1))
    away.disconnect()

    for number in range(1, 31):
        sender.publish(topic, b"%d" % number + b"x" * 1_000, qos=1, packet_id=number)

    again = client("f14", port=port, clean=False, props=session)
    sender.publish(topic, b"live", qos=1)
    found = []
    while (payload := again.receive_publish().payload) != b"live":
        found.append(int(payload.rstrip(b"x")))
    assert 5 <= len(found) <= 10
    assert found == list(range(1, len(found) + 1))
    assert running.stats()["dropped_queue_full"] == 30 - len(found)


def test_f14_the_queue_of_a_client_that_stays_away_ends_with_its_session(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    running = start_broker()
    away = client("f14", port=running.port, props={"session_expiry_interval": 1})
    sender = client(port=running.port)
    away.subscribe((topic, 1))
    away.disconnect()

    for number in range(1, 11):
        sender.publish(topic, b"x" * 1_000, qos=1, packet_id=number)

    eventually(lambda: running.stats()["sessions_expired"] == 1, told=running.stats)
    assert running.stats()["dropped_session_ended"] == 10


def test_f15_a_clean_start_gets_nothing_of_the_old_session(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    props = {"session_expiry_interval": 60} if version == 5 else None
    old, sender = client(name, version=version, clean=False, props=props), client()
    old.subscribe((topic, 2))
    for number in range(1, 41):
        sender.publish(topic, b"%d" % number, qos=2, packet_id=number)

    new = client(name, version=version, clean=True)

    new.ping()
    new.ping()


def test_f15_a_clean_start_while_messages_come_gets_none_of_them(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    props = {"session_expiry_interval": 60} if version == 5 else None
    sender = client(version=4)
    for _ in range(20):
        old = client(name, version=version, clean=False, props=props)
        old.subscribe((topic, 1))

        # the broker reads some of them before the CONNECT, and some behind it
        flood = (mqtt.publish(topic, qos=1, packet_id=n, version=4) for n in range(1, 201))
        sender.send(*flood)
        new = client(name, version=version, clean=True)

        for _ in range(200):
            sender.expect(mqtt.PUBACK)
        new.ping()
        new.disconnect()


def test_f18_client_identifiers_that_look_like_keys(client: Open, topic: str) -> None:
    names = ["0", "null", "None", "session:1", "%s", "a'--", "mqttcore-0", "\u00e9", "e\u0301"]
    clients = [client(f"{unique()}{name}") for name in names]

    for one in clients:
        one.subscribe(topic)

    clients[0].publish(topic, b"x", qos=1)
    for one in clients:
        assert one.receive_publish().payload == b"x"
