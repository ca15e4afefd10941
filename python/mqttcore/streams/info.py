"""Descriptions of a stream that its endpoint returns."""

import pathlib
from typing import Any

from mqttcore._record import Record

Json = Any  # what `json.loads` gives: taken apart where it comes in


class StreamName(Record, kw_only=False):
    """Name of a stream."""

    name: str
    partitions: int
    epoch: str


class Bounds(Record, kw_only=False):
    """Offsets of one partition: it has the rows from ``earliest`` to ``end`` (exclusive)."""

    earliest: int
    sealed_end: int
    """The first offset that is not in a file yet."""
    end: int


class StreamInfo(Record, kw_only=False):
    """Data of a stream for readers."""

    name: str
    epoch: str
    """Epoch of the offsets: in another epoch they mean other rows."""
    seed: int
    filters: tuple[str, ...]
    partitions: tuple[Bounds, ...]
    path: pathlib.Path
    """Its folder, as a path on the broker's machine."""
    schema: Json | None
    is_configured: bool = True
    """Whether it accepts messages; False: it does not change any more."""


def info(found: Json) -> StreamInfo:
    """Makes a stream from its JSON."""
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
