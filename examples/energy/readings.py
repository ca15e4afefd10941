"""Readings of electricity meters: most are good; some are repeated, late or wrong.

python examples/energy/readings.py --port 1883
"""

import argparse
import datetime
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
EVERY = datetime.timedelta(minutes=15)
OFFLINE = ("m3", START + datetime.timedelta(hours=5), START + datetime.timedelta(hours=9))
"""A meter without a network at that time, which sends its readings two days later."""

Kind = Literal["good", "again", "late", "bad"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A message of a meter."""

    kind: Kind
    topic: str
    values: dict[str, Any]
    payload: bytes


def readings(*, meters: int = 10, days: int = 2, seed: int = 1) -> Iterator[Reading]:
    """All readings in the order in which they arrive, up to 100 minutes after they were taken."""
    dice = random.Random(seed)  # noqa: S311 -- a simulation
    arrivals: list[tuple[datetime.datetime, Reading]] = []
    for number in range(1, meters + 1):
        meter, energy = f"m{number}", 1000.0 * number
        for step in range(days * 24 * 4):
            at = START + step * EVERY
            energy += dice.uniform(0.0, 0.8)
            voltage = dice.gauss(204.0 if number == 7 and step % 96 > 70 else 230.0, 2.0)
            values = {
                "meter": meter,
                "feeder": f"f{number % 3}",
                "energy_kwh": round(energy, 3),
                "voltage": round(voltage, 2),
                "at": at.isoformat(),
            }
            for delay, reading in sent(dice, values, at):
                arrivals.append((at + delay, reading))
    arrivals.sort(key=lambda arrival: arrival[0])
    yield from (reading for _, reading in arrivals)


def sent(
    dice: random.Random, values: dict[str, Any], at: datetime.datetime
) -> Iterator[tuple[datetime.timedelta, Reading]]:
    """The messages for one reading, and their delays."""
    minutes = datetime.timedelta(minutes=1)
    meter, since, until = OFFLINE
    if values["meter"] == meter and since <= at < until:
        yield datetime.timedelta(days=2), reading("late", values)
        return
    delay = dice.uniform(0.0, 45.0) * minutes
    yield delay, reading("good", values)
    if dice.random() < 0.05:
        yield delay + dice.uniform(0.0, 50.0) * minutes, reading("again", values)
    if dice.random() < 0.02:
        wrong: dict[str, Any] = dice.choice(
            [{"voltage": 0.0}, {"energy_kwh": -1.0}, {"voltage": None}, {"at": "yesterday"}]
        )
        yield delay, reading("bad", values | wrong)


def reading(kind: Kind, values: dict[str, Any]) -> Reading:
    """A message."""
    return Reading(kind, f"meters/{values['meter']}", values, json.dumps(values).encode())


def main() -> None:
    """Publishes all of them as fast as the broker accepts them."""
    parser = argparse.ArgumentParser(description="Publishes two days of readings of ten meters.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    options = parser.parse_args()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="meters")
    client.connect(options.host, options.port)
    client.loop_start()
    sent = [client.publish(each.topic, each.payload, qos=1) for each in readings()]
    for message in sent:
        message.wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    print(f"sent {len(sent)} messages")


if __name__ == "__main__":
    main()
