"""Samples of a running broker for `mqttcore top`: figures, rates, clients, shards."""

import re
import time
from collections.abc import Mapping, Sequence
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
    taken_s: float
    """When it was taken, by a clock that nobody sets."""
    hooks: Sequence[Json] = ()
    """The hooks of plugins."""


class Rates(NamedTuple):
    """Rates between two samples."""

    received: float
    sent: float
    bytes_in: float
    bytes_out: float
    dropped: dict[str, float]
    """Messages by reason; reasons without a drop are left out."""
    refused: dict[str, float]
    clients: list[Json]
    """The clients of the later sample, with `byte_rates` from and to each; None: not known."""


LISTED_MAX: Final = 100
"""Clients of one list with the bytes of their connections."""


def take(api: Api, *, sort: str, find: str, limit: int) -> Sample:
    """Asks the broker.

    Raises:
        CommandError: it cannot be reached, or it refuses.
    """
    overview, taken_s = api.get("/overview"), time.monotonic()
    query: Query = {
        "sort": sort,
        "limit": min(max(limit, 1), LISTED_MAX),
        "connected": True,
        "bytes": True,
        "q": find or None,
    }
    clients = api.get("/clients", query)["items"]
    status, text = api.raw("GET", "/metrics")
    found = SHARD.findall(text) if status == OK else []
    return Sample(
        overview,
        clients,
        [float(age) for _, age in found],
        taken_s,
        api.get("/plugins")["items"],
    )


def rates(before: Sample, after: Sample) -> Rates:
    """The rates between two samples; 0 if the broker was restarted between them."""
    old, new = before.overview, after.overview
    seconds = after.taken_s - before.taken_s

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
        clients=with_byte_rates(before.clients, after.clients, seconds),
    )


def with_byte_rates(before: list[Json], after: list[Json], seconds: float) -> list[Json]:
    """The clients with the bytes a second of those whose connection is in both samples."""
    old = {name: client for client in before if (name := connection(client)) is not None}

    def byte_rates(client: Json) -> Json | None:
        was = old.get(connection(client) or "")
        if was is None or seconds <= 0:
            return None
        # the connection may have been replaced by one with the same port
        return {
            way: max(count - was["bytes"][way], 0) / seconds
            for way, count in client["bytes"].items()
        }

    return [{**client, "byte_rates": byte_rates(client)} for client in after]


def connection(client: Json) -> str | None:
    """What identifies a connection whose bytes are counted."""
    if not client.get("bytes"):
        return None
    return f"{client['client_id']} {client['address']} {client['port']}"


def as_json(sample: Sample, found: Rates) -> Mapping[str, Any]:  # what `json.dumps` takes
    """A sample with its rates."""
    return {
        "overview": sample.overview,
        "rates": {name: value for name, value in found._asdict().items() if name != "clients"},
        "shards": [
            {"shard": number, "turn_age_s": age} for number, age in enumerate(sample.shards)
        ],
        "hooks": list(sample.hooks),
        "clients": found.clients,
    }
