"""Much at once: large replays, short connections, ends in the middle of a packet."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_replay_larger_than_every_buffer_arrives_whole(
    fresh_broker: Broker, client: Open, version: int, qos: int
) -> None:
    port, count = fresh_broker.port, 5_000
    sender, receiver = client(version=4, port=port), client(version=version, port=port)
    for page in range(0, count, 100):
        packets = (
            mqtt.publish(f"bulk/{number}", b"x" * 2_000, retain=True, version=4)
            for number in range(page, page + 100)
        )
        sender.send(*packets)
        sender.ping()

    receiver.subscribe(("bulk/+", qos))

    found = {receiver.receive_publish().topic for _ in range(count)}
    assert len(found) == count
    receiver.ping()
    assert fresh_broker.stats()["dropped_qos0_backlog"] == 0


def test_a_replay_and_live_messages_share_the_connection(
    fresh_broker: Broker, client: Open
) -> None:
    port, count = fresh_broker.port, 2_000
    sender, receiver = client(version=4, port=port), client(version=4, port=port)
    for page in range(0, count, 100):
        packets = (
            mqtt.publish(f"bulk/{number}", b"x" * 1_000, retain=True, version=4)
            for number in range(page, page + 100)
        )
        sender.send(*packets)
        sender.ping()

    receiver.send(mqtt.subscribe(("bulk/#", 1), version=4))
    # From here on nothing live is missed; the replay is far from its end.
    assert receiver.expect_besides_publishes(mqtt.SUBACK).reasons == (1,)
    for number in range(1, 21):
        sender.publish("bulk/live", b"%d" % number, qos=1, packet_id=number)

    retained: set[str] = set()
    live: list[int] = []
    while len(retained) < count or len(live) < 20:
        found = receiver.receive_publish()
        if found.retain:
            retained.add(found.topic)
        elif found.topic == "bulk/live":
            live.append(int(found.payload))
    assert live == list(range(1, 21))


def test_a_client_that_publishes_and_leaves_in_one_breath(
    client: Open, wire: Open, topic: str, version: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 1))
    count = 100

    for number in range(count):
        one = wire(version=version)
        one.send(
            mqtt.connect(unique("c"), version=version),
            mqtt.publish(topic, b"%d" % number, version=version),
            mqtt.disconnect(),
        )
        one.close()

    found = {int(receiver.receive_publish().payload) for _ in range(count)}
    assert found == set(range(count))


def test_what_a_client_sent_before_it_closed_its_half_counts(
    client: Open, topic: str, version: int
) -> None:
    watcher, one = client(), client(version=version, will=Will(topic=f"{topic}/will"))
    watcher.subscribe((f"{topic}/#", 1))

    one.send(mqtt.publish(f"{topic}/last", b"x", qos=1, packet_id=9, version=version))
    one.socket.shutdown(socket.SHUT_WR)

    assert watcher.receive_publish().topic == f"{topic}/last"
    assert watcher.receive_publish().topic == f"{topic}/will"
    watcher.ping()


@pytest.mark.parametrize("end", ["close", "reset"])
def test_half_a_publish_has_no_effect_but_the_will(
    client: Open, topic: str, version: int, end: str
) -> None:
    watcher = client()
    watcher.subscribe((f"{topic}/#", 1))
    one = client(version=version, will=Will(topic=f"{topic}/will"))

    one.send(mqtt.publish(f"{topic}/cut", b"x" * 100, version=version)[:-1])
    getattr(one, end)()

    assert watcher.receive_publish().topic == f"{topic}/will"
    watcher.ping()


def test_a_large_message_to_many(client: Open, topic: str) -> None:
    receivers = [client(version=4) for _ in range(50)]
    for each in receivers:
        each.subscribe((topic, 1))
    payload = bytes(range(256)) * 2_000

    client().publish(topic, payload, qos=1)

    for each in receivers:
        assert each.receive_publish().payload == payload


def test_a_queue_of_a_thousand_is_played_back_in_order(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    props = {"session_expiry_interval": 60} if version == 5 else None
    keep = {"version": version, "clean": False, "props": props}
    receiver, sender = client(name, **keep), client(version=4)
    receiver.subscribe((topic, 2))
    receiver.disconnect()
    ids = range(1, 1_001)
    sender.send(
        *(
            mqtt.publish(topic, b"%d" % each, qos=1 + each % 2, packet_id=each, version=4)
            for each in ids
        )
    )
    for each in ids:
        sender.expect(mqtt.PUBREC if each % 2 else mqtt.PUBACK)

    again = client(name, **keep)

    found = [again.receive_publish() for _ in ids]
    assert [int(each.payload) for each in found] == list(ids)
    again.ping()


def test_six_hundred_clients_hear_one_message(client: Open, topic: str) -> None:
    receivers = [client(version=mqtt.VERSIONS[number % 3]) for number in range(600)]
    for each in receivers:
        each.subscribe((topic, 1))

    client().publish(topic, b"all of you", qos=1)

    for each in receivers:
        assert each.receive_publish().payload == b"all of you"
