"""Descriptions of a stream that its endpoint returns."""

import pathlib
from typing import Any

from mqttcore._record import Record

Json = Any  # what `json.loads` gives: taken apart where it comes in


class StreamName(Record, kw_only=False):
    """One of the streams that there are."""

    name: str
    partitions: int
    epoch: str


class Bounds(Record, kw_only=False):
    """Offsets of one partition: it has the rows from ``earliest`` to ``end`` (exclusive)."""

    earliest: int
    sealed_end: int
    """The first one that is in no file yet."""
    end: int


class StreamInfo(Record, kw_only=False):
    """Data of a stream for readers."""

    name: str
    epoch: str
    """Offsets of another epoch mean other rows."""
    seed: int
    filters: tuple[str, ...]
    partitions: tuple[Bounds, ...]
    path: pathlib.Path
    """Its folder, as the broker's machine calls it."""
    schema: Json | None
    is_configured: bool = True
    """Whether it takes messages; False: nothing of it changes any more."""


def info(found: Json) -> StreamInfo:
    """A stream out of its JSON."""
    return StreamInfo(
        name=found["name"],
        epoch=found["epoch"],
        seed=int(found["seed"]),
        filters=tuple(found["filters"]),
        partitions=tuple(Bounds(**bounds) for bounds in found["partitions"]),
        path=pathlib.Path(found["path"]),
        is_configured=found.get("configured", True),
        schema=found["schema"],
    )
