"""Samples of a running broker for `mqttcore top`: figures, rates, clients, shards."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mqttcore.cli.api import Api, Json, Query

SHARD: Final = re.compile(rb'^mqttcore_shard_turn_age_seconds\{shard="(\d+)"\} (\S+)', re.MULTILINE)
OK: Final = 200


class Sample(NamedTuple):
    """A broker at one moment."""

    overview: Json
    clients: list[Json]
    shards: list[float]
    """Seconds since each shard ran its timers; empty if metrics are off or not allowed."""


class Rates(NamedTuple):
    """Rates between two samples."""

    received: float
    sent: float
    bytes_in: float
    bytes_out: float
    dropped: dict[str, float]
    """Messages by reason; reasons without a drop are left out."""
    refused: dict[str, float]


def take(api: Api, *, sort: str, find: str, limit: int) -> Sample:
    """Asks the broker.

    Raises:
        CommandError: it cannot be reached, or it refuses.
    """
    overview = api.get("/overview")
    query: Query = {"sort": sort, "limit": max(limit, 1), "connected": True, "q": find or None}
    clients = api.get("/clients", query)["items"]
    status, text = api.raw("GET", "/metrics")
    found = SHARD.findall(text) if status == OK else []
    return Sample(overview, clients, [float(age) for _, age in found])


def rates(before: Sample, after: Sample) -> Rates:
    """The rates between two samples; 0 if the broker was restarted between them."""
    old, new = before.overview, after.overview
    seconds = (new["now_ms"] - old["now_ms"]) / 1_000

    def rate(was: float, now: float) -> float:
        return max(now - was, 0) / seconds if seconds > 0 else 0.0

    def by_reason(name: str) -> dict[str, float]:
        found = {
            reason: rate(old[name].get(reason, 0), count) for reason, count in new[name].items()
        }
        return {reason: value for reason, value in found.items() if value}

    return Rates(
        received=rate(old["messages"]["received"], new["messages"]["received"]),
        sent=rate(old["messages"]["sent"], new["messages"]["sent"]),
        bytes_in=rate(old["bytes"]["received"], new["bytes"]["received"]),
        bytes_out=rate(old["bytes"]["sent"], new["bytes"]["sent"]),
        dropped=by_reason("dropped"),
        refused=by_reason("refused"),
    )


def as_json(sample: Sample, found: Rates) -> Mapping[str, Any]:  # what `json.dumps` takes
    """A sample with its rates."""
    return {
        "overview": sample.overview,
        "rates": found._asdict(),
        "shards": [
            {"shard": number, "turn_age_s": age} for number, age in enumerate(sample.shards)
        ],
        "clients": sample.clients,
    }
