"""Abuse table H, as far as it needs no hours: clients that do not read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests import wire as mqtt
from tests.abuse.beside import BesideOf
from tests.eventually import eventually
from tests.wire import Will, Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_h01_a_subscriber_that_stops_reading_is_disconnected(
    start_broker: Callable[..., Broker], client: Open, topic: str, beside: BesideOf
) -> None:
    running = start_broker(stall_deadline_s=0.5)
    watcher = client(port=running.port)
    watcher.subscribe(f"{topic}/will")
    stalled = client(version=4, port=running.port, will=Will(topic=f"{topic}/will"))
    sender = client(version=4, port=running.port)
    stalled.subscribe(topic)

    for _ in range(6):
        sender.send(*(mqtt.publish(topic, b"x" * 100_000, version=4) for _ in range(50)))
        sender.ping()
        beside(running.port).check()

    assert watcher.receive_publish().topic == f"{topic}/will"
    assert running.stats()["stalled"] == 1


def test_h01_qos_0_for_a_stalled_subscriber_is_dropped_not_kept(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    running = start_broker(qos0_backlog_bytes=100_000)
    stalled = client(version=4, port=running.port)
    sender = client(version=4, port=running.port)
    stalled.subscribe(topic)

    for _ in range(10):
        sender.send(*(mqtt.publish(topic, b"x" * 100_000, version=4) for _ in range(50)))
        sender.ping()

    assert running.stats()["dropped_qos0_backlog"] > 0
    assert stalled.receive_publish().payload == b"x" * 100_000


def test_h01_packets_of_the_largest_size_wait_together_up_to_its_bytes(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    """More than one message above 1 MiB may wait, if such packets are allowed (ADR 0143)."""
    running = start_broker(maximum_packet_size=16 << 20)
    slow = client(version=4, port=running.port)
    sender = client(version=4, port=running.port)
    slow.subscribe(topic)

    for _ in range(7):
        sender.send(mqtt.publish(topic, b"x" * (2 << 20), version=4))
    sender.ping()

    assert {len(slow.receive_publish().payload) for _ in range(7)} == {2 << 20}
    assert running.stats()["dropped_qos0_backlog"] == 0


KEPT = {"session_expiry_interval": 3_600}
BUDGET = 16 << 20


def used(broker: Broker) -> int:
    """Bytes that the broker counts against its budget."""
    return broker.stats()["memory_used_bytes"]


def test_h03_packets_under_way_are_counted_and_refused_before_memory_ends(
    start_broker: Callable[..., Broker], client: Open, topic: str, beside: BesideOf
) -> None:
    running = start_broker(memory_bytes=BUDGET)
    begun = mqtt.publish(topic, bytes(900_000), version=5)[:-100_000]
    before, clients = used(running), []

    while not running.stats()["refused_memory_packets"]:
        clients.append(client(port=running.port))
        # the broker may close it meanwhile
        with contextlib.suppress(OSError):
            clients[-1].send(begun)
        beside(running.port).check()
        assert len(clients) < 100

    assert used(running) < BUDGET
    for one in clients:
        one.close()
    eventually(lambda: used(running) < before + BUDGET // 20)


def test_h04_queues_of_many_sessions_are_refused_before_memory_ends(
    start_broker: Callable[..., Broker], wire: Open, client: Open, topic: str, beside: BesideOf
) -> None:
    running = start_broker(memory_bytes=BUDGET)
    before, acknowledged = used(running), []

    for number in range(150):
        if not leaves_session(wire(port=running.port), f"away-{number}", f"{topic}/{number}"):
            break
        acknowledged.append(publish_some(client(port=running.port), f"{topic}/{number}"))
        beside(running.port).check()
        if acknowledged[-1] == 0:
            break

    stats = running.stats()
    assert stats["refused_memory"] + stats["refused_memory_sessions"]
    assert used(running) < BUDGET
    for number in (0, len(acknowledged) - 2):
        back = client(f"away-{number}", port=running.port, clean=False, props=KEPT)
        taken = [back.receive_publish().payload for _ in range(acknowledged[number])]
        assert [payload[:2] for payload in taken] == [b"%02d" % at for at in range(len(taken))]
    for number in range(len(acknowledged)):
        client(f"away-{number}", port=running.port).close()
    eventually(lambda: used(running) < before + BUDGET // 20)


def leaves_session(away: Wire, client_id: str, topic: str) -> bool:
    """Makes a kept session that subscribes to `topic`, unless it is refused with 0x97."""
    away.send(mqtt.connect(client_id, props=KEPT))
    reason = away.expect(mqtt.CONNACK).reason
    assert reason in (0, 0x97)
    if reason == 0:
        away.subscribe((topic, 1))
        away.send(mqtt.disconnect())
    away.close()
    return reason == 0


def publish_some(sender: Wire, topic: str) -> int:
    """Publishes 20 messages of 8 KB at QoS 1; answers how many of the first were acknowledged."""
    for at in range(20):
        payload = (b"%02d" % at).ljust(8_192)
        sender.send(mqtt.publish(topic, payload, qos=1, packet_id=at + 1, version=5))
    answers = [sender.receive() for _ in range(20)]
    reasons = [answer.reason for answer in answers]
    count = sum(reason == 0 for reason in reasons)
    assert reasons == [0] * count + [0x97] * (20 - count)
    sender.close()
    return count
