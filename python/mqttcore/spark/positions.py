"""Start and end positions of a query: parses them and resolves them to offsets."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from mqttcore.spark.offsets import WORDS

__all__ = [
    "AtOffsets",
    "AtTime",
    "Position",
    "microseconds",
    "parse_position",
    "parse_timestamp",
    "resolve",
]

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset, or an edge, for each given partition."""

    places: Mapping[int, int | Edge]
    epoch: str | None = None
    """The epoch of the stream of the offsets, if the text has one."""


@dataclass(frozen=True, slots=True, order=True)
class AtTime:
    """The first row of each partition at or after a time, in microseconds since 1970."""

    timestamp_us: int


Position: TypeAlias = Edge | AtOffsets | AtTime

ALLOWED: Final = (
    "allowed are earliest, latest, and JSON with an offset or one of these words a partition,"
    ' as in {"0": 17, "1": "earliest"}'
)


def parse_position(text: str) -> Position:
    """Reads ``startingOffsets`` and ``endingOffsets``.

    The dict that a query reports as its end offset is such JSON too.

    Raises:
        ValueError: the text is neither; the message says what is allowed.
    """
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(ALLOWED) from None
    if not isinstance(value, dict):
        raise ValueError(ALLOWED)
    epoch = value.get("epoch")
    named = {key: value[key] for key in value.keys() - WORDS}
    # so said the end of a query's first batch in earlier versions
    places = named["to"] if named.keys() == {"to"} else named
    if not places or not isinstance(places, dict) or not isinstance(epoch, str | None):
        raise ValueError(ALLOWED)
    return AtOffsets({partition_of(key): place_of(place) for key, place in places.items()}, epoch)


def partition_of(key: str) -> int:
    """The number of a partition, written as a key of JSON."""
    if not key.isascii() or not key.isdigit():
        raise ValueError(f"{key!r} is not a partition; {ALLOWED}")
    return int(key)


def place_of(place: object) -> int | Edge:
    """An offset or an edge."""
    if place == "earliest":
        return "earliest"
    if place == "latest":
        return "latest"
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise ValueError(f"{place!r} is not an offset; {ALLOWED}")
    return place


def parse_timestamp(text: str) -> AtTime:
    """Reads ``startingTimestamp`` and ``endingTimestamp``.

    ISO 8601, in UTC where it names no zone, or milliseconds since 1970 as Spark's Kafka source has.

    Raises:
        ValueError: the text is neither; the message says what is allowed.
    """
    if re.fullmatch(r"[0-9]+", text):
        return AtTime(int(text) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "allowed are ISO 8601, as 2026-11-21T20:15:00Z, and milliseconds since 1970"
        ) from None
    return AtTime(microseconds(moment))


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970; UTC without a time zone."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def resolve(
    position: Position,
    *,
    earliest: Sequence[int],
    end: Sequence[int],
    at_time: Callable[[int], Sequence[int]],
) -> tuple[int, ...]:
    """The offset of each partition for a position.

    Offsets in the text are returned unchanged: the caller checks whether the rows exist.

    Raises:
        ValueError: the text names not exactly the partitions of the stream.
    """
    edges: dict[Edge, Sequence[int]] = {"earliest": earliest, "latest": end}
    if isinstance(position, str):
        return tuple(edges[position])
    if isinstance(position, AtTime):
        return tuple(at_time(position.timestamp_us))
    named = sorted(position.places)
    if named != list(range(len(end))):
        raise ValueError(
            f"names partitions {', '.join(map(str, named))}, but the stream has"
            f" {', '.join(map(str, range(len(end))))}: each must be named"
        )
    return tuple(
        place if isinstance(place, int) else edges[place][partition]
        for partition, place in sorted(position.places.items())
    )
