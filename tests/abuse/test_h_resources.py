"""Abuse table H, as far as it needs no hours: clients that do not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests import wire as mqtt
from tests.conftest import Bystander
from tests.wire import Will, Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_h01_a_subscriber_that_stops_reading_is_disconnected(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    running = start_broker(stall_deadline_s=0.5)
    beside, watcher = Bystander(running.port), client(port=running.port)
    watcher.subscribe(f"{topic}/will")
    stalled = client(version=4, port=running.port, will=Will(topic=f"{topic}/will"))
    sender = client(version=4, port=running.port)
    stalled.subscribe(topic)

    for _ in range(6):
        sender.send(*(mqtt.publish(topic, b"x" * 100_000, version=4) for _ in range(50)))
        sender.ping()
        beside.check()

    assert watcher.receive_publish().topic == f"{topic}/will"
    assert running.stats()["stalled"] == 1
    beside.check()
    beside.close()


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
