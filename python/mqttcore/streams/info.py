"""Descriptions of a stream that its endpoint returns."""

import pathlib
from dataclasses import dataclass
from typing import Any

Json = Any  # what `json.loads` gives: taken apart where it comes in


@dataclass(frozen=True, slots=True)
class StreamName:
    """One of the streams that there are."""

    name: str
    partitions: int
    epoch: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of one partition: it has the rows from ``earliest`` to ``end`` (exclusive)."""

    earliest: int
    sealed_end: int
    """The first one that is in no file yet."""
    end: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
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
