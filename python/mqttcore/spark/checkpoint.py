"""Reads the offsets that Spark stores in a query's checkpoint before it runs a batch."""

import json
from pathlib import Path
from typing import Any

__all__ = ["done_offsets", "newest_offsets", "read_offsets"]


def read_offsets(checkpoint: Path, number: int) -> list[Any]:
    """How far each source is read behind a batch, in the order of the query's sources.

    Raises:
        ValueError: the file is not there, or it is another one.
    """
    path = checkpoint / "offsets" / str(number)
    try:
        # a version, Spark's own settings, then a line a source; "-" is one without an offset
        _, _, first, *more = path.read_text().splitlines()
        return [None if line == "-" else json.loads(line) for line in (first, *more)]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: does not hold the offsets of batch {number}") from error


def newest_offsets(checkpoint: Path) -> list[Any]:
    """The same for the batch that was planned last; nothing where there is none to be seen."""
    return offsets_of_newest(checkpoint, "offsets")


def done_offsets(checkpoint: Path) -> list[Any]:
    """The same for the last batch that is done with."""
    return offsets_of_newest(checkpoint, "commits")


def offsets_of_newest(checkpoint: Path, log: str) -> list[Any]:
    """The offsets behind the last batch that one of the checkpoint's logs names."""
    try:
        names = [path.name for path in (checkpoint / log).iterdir()]
    except OSError:
        return []
    numbers = [int(name) for name in names if name.isdigit()]
    return read_offsets(checkpoint, max(numbers)) if numbers else []
