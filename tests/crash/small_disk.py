"""A disk that is soon full: a tmpfs where one can be mounted, else a limit that shim.c sets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from tests.crash import shim
from tests.crash.process import ServerProcess

MOUNT = ("mount", "-t", "tmpfs")


class SmallDisk:
    """So many bytes for one folder; a context manager."""

    def __init__(self, place: Path, size_bytes: int, *, may_mount: bool = True) -> None:
        self.place = place / "disk"
        self.data = self.place / "data"
        self.log = place / "broker.log"
        self.size_bytes = size_bytes
        self.place.mkdir(parents=True)
        self.is_mounted = may_mount and self._mount()
        self.data.mkdir()
        self._control = None if self.is_mounted else shim.Control(place / "control")
        if self._control is not None:
            self._control["capacity"] = size_bytes
            self._library = shim.build(place)

    def _mount(self) -> bool:
        command = [*MOUNT, "-o", f"size={self.size_bytes}", "tmpfs", str(self.place)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 -- our own folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_mounted:
            subprocess.run(["umount", str(self.place)], check=True)  # noqa: S603, S607 -- our own mount

    @property
    def kind(self) -> str:
        """What it is, for a report."""
        if self.is_mounted:
            return "a tmpfs"
        return "a limit that the shim sets, since nothing can be mounted here"

    def server(self, *options: str) -> ServerProcess:
        """A broker on it."""
        environment = None
        if self._control is not None:
            environment = shim.environment(
                self._library,
                folder=self.data,
                journal=Path(os.devnull),
                control=self._control.path,
            )
        return ServerProcess(
            data=self.data, options=options, environment=environment, log_path=self.log
        )

    def free_bytes(self) -> int:
        """What may still be written."""
        if self._control is None:
            facts = os.statvfs(self.place)
            return facts.f_bavail * facts.f_frsize
        used = sum(each.stat().st_size for each in self.data.iterdir())
        return max(self._control["capacity"] - used, 0)

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Somebody else takes what is free, but for so much."""
        taken = max(self.free_bytes() - leave_bytes, 0)
        if self._control is not None:
            self._control["capacity"] = self.size_bytes - taken
        else:
            with (self.place / "others").open("wb") as others:
                os.posix_fallocate(others.fileno(), 0, max(taken, 1))

    def empty(self) -> None:
        """The others are gone."""
        if self._control is not None:
            self._control["capacity"] = self.size_bytes
        else:
            (self.place / "others").unlink(missing_ok=True)
