"""Machines that report to a broker: what `make tier` and `make soak-pipeline` publish."""

from __future__ import annotations

import datetime
import json
from typing import Final

from tests.spark.peers import Publisher

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
