"""Keeps Delta tables of streams up to date until standard input ends: `delta --follow`."""

import os
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqttcore.pipeline.lake import Change, refresh
from mqttcore.spark.folder import find_folder

__all__ = ["follow", "until_input_ends"]

INTERVAL_S: Final = 1.0
"""Seconds between two checks of the index of each stream."""
NICENESS: Final = 10
"""Priority below that of the broker and its clients."""

Mark = tuple[tuple[int, int, int] | None, ...]
"""The state of the index that a table has."""


def follow(
    data: str, streams: Sequence[str], *, is_over: Callable[[], bool], tell: Callable[[str], None]
) -> None:
    """Updates the tables whenever files were sealed, merged or retired.

    Args:
        data: The broker's data folder.
        streams: Names of streams.
        is_over: Waits a moment; true ends it, after a last look.
        tell: Is called with a line for each change, and for each new error of a stream.
    """
    known: dict[str, Mark] = {}
    wrong: dict[str, str] = {}
    is_last = False
    while True:
        for stream in streams:
            try:
                line = taken_in(data, stream, known)
                wrong.pop(stream, None)
            except Exception as error:
                line = f"{stream}: {error}"
                # tried again at each look, told once
                line = "" if wrong.get(stream) == line else wrong.setdefault(stream, line)
            if line:
                tell(line)
        if is_last:
            return
        is_last = is_over()


def taken_in(data: str, stream: str, known: dict[str, Mark]) -> str:
    """Updates one table if its stream has changed; prints the changes."""
    folder = find_folder(data, stream)
    mark = mark_of(folder.path)
    if known.get(stream) == mark:
        return ""
    change = refresh(folder)
    known[stream] = mark
    return change_text(stream, change) if change.added or change.removed else ""


def change_text(name: str, change: Change) -> str:
    """Describes a change."""
    return f"{name}: {change.rows:,} rows; files added {change.added}, removed {change.removed}"


def mark_of(folder: Path) -> Mark:
    """The current files of the index of a stream, and their lengths."""

    def of(path: Path) -> tuple[int, int, int] | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    return of(folder / "sealed.json"), of(folder / "sealed.log")


def until_input_ends() -> bool:
    """Waits a moment; true if standard input has ended."""
    if not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        return False
    return not os.read(sys.stdin.fileno(), 4096)
