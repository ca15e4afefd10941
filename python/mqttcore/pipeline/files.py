"""Durable writes of small files, and folders with one writer."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqttcore.errors import PipelineError

__all__ = ["locked", "replace_file", "sync_path"]


@contextmanager
def locked(folder: Path, problem: str) -> Iterator[None]:
    """Locks ``folder`` against other processes; creates it if it is missing.

    Raises:
        PipelineError: one is there; ``problem`` says what that means.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(f"{folder}: {problem}") from error
        yield


def replace_file(path: Path, text: str) -> None:
    """Replaces the content of ``path`` by ``text``, completely or not at all."""
    fresh = path.with_name("_" + path.name)
    fresh.write_text(text)
    sync_path(fresh)
    fresh.replace(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Syncs a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
