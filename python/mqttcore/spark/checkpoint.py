"""Reads the offsets that Spark stores in a query's checkpoint before it runs a batch."""

import json
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Checkpoint", "done_offsets", "newest_offsets", "read_offsets"]


class Checkpoint(Protocol):
    """A checkpoint that is not a folder of this machine."""

    def read_text(self, name: str) -> str:
        """Reads a file of the checkpoint as text."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder of the checkpoint."""


def read_offsets(checkpoint: "Path | Checkpoint", number: int) -> list[Any]:
    """The end offsets of each source after a batch, in the order of the query's sources.

    Raises:
        ValueError: the file is not there, or it is another one.
    """
    name = f"offsets/{number}"
    try:
        # a version, Spark's own settings, then a line a source; "-" is one without an offset
        _, _, first, *more = text_of(checkpoint, name).splitlines()
        return [None if line == "-" else json.loads(line) for line in (first, *more)]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{checkpoint}/{name}: does not hold the offsets of batch {number}"
        ) from error


def text_of(checkpoint: "Path | Checkpoint", name: str) -> str:
    """Reads a file of a checkpoint as text."""
    if isinstance(checkpoint, Path):
        return (checkpoint / name).read_text()
    return checkpoint.read_text(name)


def newest_offsets(checkpoint: "Path | Checkpoint") -> list[Any]:
    """The end offsets of each source after the latest planned batch; empty if there is none."""
    return offsets_of_newest(checkpoint, "offsets")


def done_offsets(checkpoint: "Path | Checkpoint") -> list[Any]:
    """The end offsets of each source after the last completed batch; empty if there is none."""
    return offsets_of_newest(checkpoint, "commits")


def offsets_of_newest(checkpoint: "Path | Checkpoint", log: str) -> list[Any]:
    """The end offsets of the latest batch in a log of the checkpoint."""
    try:
        if isinstance(checkpoint, Path):
            names = [path.name for path in (checkpoint / log).iterdir()]
        else:
            names = checkpoint.names(log)
    except OSError:
        return []
    numbers = [int(name) for name in names if name.isdigit()]
    return read_offsets(checkpoint, max(numbers)) if numbers else []
