"""Rows of what was acknowledged: exactly once at QoS 2, through deaths of the broker."""

from __future__ import annotations

import random
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.streams.conftest import Plant
from tests.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, Wire, ack, publish

HOUR: Final = {"session_expiry_interval": 3_600}
CUTS: Final = ("sent", "received", "released", "nowhere")
MESSAGES: Final = 80


class Device:
    """Publishes numbers at QoS 2, one at a time, whatever happens to the broker."""

    def __init__(self, plant: Plant, name: str) -> None:
        self.plant, self.name = plant, name
        self.wire = self.connect()

    def connect(self) -> Wire:
        """A connection that resumes the session."""
        wire = Wire(self.plant.server.port)
        wire.connect(self.name, clean=False, props=HOUR)
        return wire

    def crash(self) -> None:
        """Kills the broker and comes back to the next one."""
        self.plant.server.crash()
        self.wire.close()
        self.wire = self.connect()

    def publish(self, number: int, cut: str) -> None:
        """Publishes ``number``; the broker dies at the ``cut`` of the exchange."""
        topic, payload = f"plant/{number % 7}", str(number).encode()
        message: dict[str, Any] = {"qos": 2, "packet_id": number % 60_000 + 1}
        self.wire.send(publish(topic, payload, **message))
        if cut == "sent":
            self.crash()
            self.wire.send(publish(topic, payload, dup=True, **message))
        self.wire.expect_besides_publishes(PUBREC, message["packet_id"])
        if cut == "received":
            self.crash()
        self.wire.send(ack(PUBREL, message["packet_id"]))
        if cut == "released":
            self.crash()
            self.wire.send(ack(PUBREL, message["packet_id"]))
        self.wire.expect_besides_publishes(PUBCOMP, message["packet_id"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("plant", [4], indirect=True)
def test_every_acknowledged_publish_is_a_row_exactly_once(plant: Plant) -> None:
    dice = random.Random(7)  # noqa: S311 - a test that is the same every time
    device = Device(plant, "device")
    cuts = {number: CUTS[number % 3] for number in dice.sample(range(MESSAGES), 6)}
    for number in range(MESSAGES):
        device.publish(number, cuts.get(number, "nowhere"))
        if number == MESSAGES // 2:
            plant.client.seal("plant")
    device.wire.close()

    ends = plant.settle(MESSAGES)
    before = plant.read()
    assert sorted(int(value) for value in before["payload"].to_pylist()) == list(range(MESSAGES))
    for partition, end in enumerate(ends):
        mine = before.filter(pa.compute.equal(before["partition"], partition))
        assert mine["offset"].to_pylist() == list(range(end))
        times = mine["timestamp"].to_pylist()
        assert times == sorted(times)
    assert set(before["client_id"].to_pylist()) == {"device"}

    plant.server.crash()
    assert plant.read().equals(before)
    plant.client.seal("plant")
    assert plant.client.stream("plant").partitions[0].sealed_end == ends[0]
    assert plant.read().equals(before)
    plant.server.stop()
    plant.server.start()
    assert plant.read().equals(before)


def test_a_qos_1_publish_that_was_acknowledged_is_a_row_after_a_kill(plant: Plant) -> None:
    with Wire(plant.server.port) as wire:
        wire.connect("device")
        for number in range(50):
            wire.send(publish("plant/1", str(number).encode(), qos=1, packet_id=number + 1))
        for number in range(50):
            assert wire.expect_besides_publishes(PUBACK, number + 1).reason == 0
        plant.server.crash()

    plant.settle(50)
    assert [int(value) for value in plant.read()["payload"].to_pylist()] == list(range(50))
