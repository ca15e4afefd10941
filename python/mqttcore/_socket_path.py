"""Paths of Unix sockets of any length."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def short(path: pathlib.Path) -> Iterator[str]:
    """A path for `path` that fits into the address of a socket, which has 108 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
