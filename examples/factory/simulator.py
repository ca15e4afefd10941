"""Machines that report what they measure, as JSON at QoS 1.

python simulator.py --port 1883 --machines 8 --per-second 50 --seconds 30

The third machine runs hot after a while. Now and then a machine sends the same twice, or garbage:
the pipeline drops the one and keeps the other in its table `quarantine`.
"""

import argparse
import datetime
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

HOT = 2
GARBAGE = b'{"machine": "m'


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement of a machine."""

    machine: str
    temperature: float
    power: float
    at: datetime.datetime

    @property
    def topic(self) -> str:
        """The topic."""
        return f"plant/{self.machine}/state"

    @property
    def payload(self) -> bytes:
        """The payload."""
        values = {
            "machine": self.machine,
            "temperature": round(self.temperature, 2),
            "power": round(self.power, 1),
            "at": self.at.isoformat(),
        }
        return json.dumps(values).encode()


def measure(machine: int, elapsed_s: float, chance: random.Random) -> Measurement:
    """The temperature of a machine follows its load; that of the hot one rises above it."""
    load = 0.5 + 0.4 * math.sin(elapsed_s / 6 + machine)
    excess = 6 * max(0.0, elapsed_s - 5) if machine == HOT else 0.0
    return Measurement(
        machine=f"m{machine + 1}",
        temperature=35 + 40 * load + excess + chance.gauss(0, 0.5),
        power=1500 * load,
        at=datetime.datetime.now(datetime.UTC),
    )


def messages(machines: int, elapsed_s: float, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """The messages of all machines at one moment."""
    for machine in range(machines):
        made = measure(machine, elapsed_s, chance)
        yield made.topic, made.payload
        if chance.random() < 0.01:
            yield made.topic, made.payload
        if chance.random() < 0.01:
            yield made.topic, GARBAGE


def simulate(port: int, *, machines: int, per_second: float, seconds: float, seed: int = 1) -> int:
    """Publishes until the time is over; returns the number of acknowledged messages."""
    chance = random.Random(seed)  # noqa: S311 -- a simulation
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="factory-simulator")
    client.connect("127.0.0.1", port)
    client.loop_start()
    began = time.monotonic()
    sent = []
    while (elapsed_s := time.monotonic() - began) < seconds:
        for topic, payload in messages(machines, elapsed_s, chance):
            sent.append(client.publish(topic, payload, qos=1))
        time.sleep(machines / per_second)
    for each in sent:
        each.wait_for_publish(10)
    client.disconnect()
    client.loop_stop()
    return sum(each.is_published() for each in sent)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Machines that report what they measure.")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--per-second", type=float, default=50, help="of all machines together")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = vars(parser.parse_args())
    print(f"sent {simulate(options.pop('port'), **options)} messages")


if __name__ == "__main__":
    main()
