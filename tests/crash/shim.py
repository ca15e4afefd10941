"""The shim that stands between a broker and its disk: how it is built, steered and loaded."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
WORD: Final = struct.Struct("=Q")
WORDS: Final = ("syncs", "fail_sync", "short_one_in", "lies", "sync_us", "capacity", "writes")
"""`struct control` of shim.c, in its order."""


def build(folder: Path) -> Path:
    """The shim as a library in `folder`.

    Raises:
        subprocess.CalledProcessError: the compiler does not take it.
    """
    library = folder / "shim.so"
    options = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["cc", *options, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)  # noqa: S603, S607 -- the compiler of the build
    return library


class Control:
    """What goes wrong below one folder, from now on; the process need not be told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(len(WORDS) * WORD.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, word: str) -> int:
        (value,) = WORD.unpack_from(self._page, WORDS.index(word) * WORD.size)
        return int(value)

    def __setitem__(self, word: str, value: int) -> None:
        WORD.pack_into(self._page, WORDS.index(word) * WORD.size, value)


def environment(library: Path, *, folder: Path, journal: Path, control: Path) -> dict[str, str]:
    """The environment of a process that is to work on such a disk."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAULTS_FOLDER": str(folder),
        "FAULTS_JOURNAL": str(journal),
        "FAULTS_CONTROL": str(control),
    }
