"""Machines that report to a broker: what `make tier` and `make soak-pipeline` publish."""

from __future__ import annotations

import datetime
import json
import time
from typing import Final

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.spark.peers import WINDOW, Publisher
from tests.wire import Wire

SILVER: Final = """\
[silver]
schema = "machine STRING, number LONG, temperature DOUBLE, at TIMESTAMP"
event_time = "at"
watermark = "10 seconds"
valid = ["temperature < 100"]
dedupe = ["number", "at"]

[[gold]]
name = "load"
window = "10 seconds"
group_by = ["machine"]
columns = ["count(*) AS measured", "max(temperature) AS highest"]
"""
"""The tables of a pipeline that reads them."""


class Machines(Publisher):
    """Publishes readings; every 50th is wrong, every 40th comes twice."""

    last: tuple[str, bytes] = ("", b"")

    def message(self, number: int) -> tuple[str, bytes]:
        """A reading, or the one before again."""
        if number % 40 != 9:
            at = datetime.datetime.now(datetime.UTC).isoformat()
            temperature = 500.0 if number % 50 == 7 else 20.0 + number % 7
            machine = f"m{number % 10}"
            reading = {"machine": machine, "number": number, "temperature": temperature, "at": at}
            self.last = f"plant/{number % 100}", json.dumps(reading).encode()
        return self.last


class Crowd(Machines):
    """The same at a given rate. Several can report at once, each with numbers of its own."""

    def __init__(self, server: ServerProcess, rate: float, index: int = 0) -> None:
        super().__init__(server)
        self.rate = rate
        self.next = index * 10**9
        self.stored = 0
        """How many were acknowledged."""
        self.connections = 0

    def talk(self) -> None:
        """A window after the other, each when it is due; after a delay they follow at once."""
        self.connections += 1
        with Wire(self.server.port, version=4) as wire:
            wire.connect(f"publisher-{self.next}")
            began, before = time.monotonic(), self.next
            while not self.stopping.is_set():
                messages = map(self.message, range(self.next, self.next + WINDOW))
                self.next += WINDOW
                wire.send(
                    *(
                        mqtt.publish(topic, payload, qos=1, packet_id=number, version=4)
                        for number, (topic, payload) in enumerate(messages, 1)
                    )
                )
                for _ in range(WINDOW):
                    wire.expect(mqtt.PUBACK)
                self.stored += WINDOW
                due = began + (self.next - before) / self.rate
                self.stopping.wait(max(0.0, due - time.monotonic()))
