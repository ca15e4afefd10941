"""What a disk holds when the power went: read out of the journal of shim.c.

As in the simulated disk of the store: of what was not synced, each sector has any of the contents
that it had since, whole or torn; names survive up to any change since their last sync; a sync that
failed has saved what it likes, and nobody tries again.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ENTRY: Final = struct.Struct("=IIQQ")
SECTOR: Final = 512
CREATE, WRITE, SIZE, RENAME, UNLINK, SYNC, SYNC_NAMES, SYNC_FAILED = range(1, 9)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the journal, and where in it."""

    place: int
    kind: int
    file: int
    at: int
    data: bytes

    @property
    def name(self) -> str:
        """The name that it is about."""
        return self.data.decode()


def entries(journal: Path) -> Iterator[Entry]:
    """Every whole entry; the last one may be torn by the death of who wrote it."""
    with journal.open("rb") as file:
        place = 0
        while len(head := file.read(ENTRY.size)) == ENTRY.size:
            kind, length, number, at = ENTRY.unpack(head)
            data = file.read(length)
            if len(data) < length:
                return
            yield Entry(place, kind, number, at, data)
            place = file.tell()


@dataclass(slots=True)
class Body:
    """One file: what is safe of it, and the changes that are not."""

    path: Path
    pending: list[Entry] = field(default_factory=list)

    def apply(self, changes: list[Entry]) -> None:
        """Makes changes, in their order."""
        with self.path.open("r+b") as file:
            for change in changes:
                if change.kind == SIZE:
                    file.truncate(change.at)
                else:
                    file.seek(change.at)
                    file.write(change.data)

    def sync(self, until: int) -> None:
        """Makes safe what was done before place `until` of the journal."""
        self.apply([each for each in self.pending if each.place < until])
        self.pending = [each for each in self.pending if each.place >= until]

    def fail(self, until: int, dice: random.Random) -> None:
        """A sync that fails saves some, and forgets the rest."""
        self.lose([each for each in self.pending if each.place < until], dice)
        self.pending = [each for each in self.pending if each.place >= until]

    def lose(self, changes: list[Entry], dice: random.Random) -> None:
        """Makes of unsynced changes what a cut leaves of them."""
        sizes = [change.at for change in changes if change.kind == SIZE]
        writes = [change for change in changes if change.kind == WRITE]
        with self.path.open("r+b") as file:
            grown = max([file.seek(0, os.SEEK_END), *(one.at + len(one.data) for one in writes)])
            if (size := dice.choice([None, *sizes, grown])) is not None:
                file.truncate(size)
            end = file.seek(0, os.SEEK_END)
            for sector, versions in sorted(sectors(writes).items()):
                # Older contents of the sector are written over by the one that survives.
                for version in versions[: dice.randint(0, len(versions))]:
                    settle(file.fileno(), sector, version, end, dice)


def sectors(writes: list[Entry]) -> dict[int, list[Entry]]:
    """The writes to each sector, oldest first."""
    found: dict[int, list[Entry]] = {}
    for write in writes:
        first, last = write.at // SECTOR, (write.at + len(write.data) - 1) // SECTOR
        for sector in range(first, last + 1):
            found.setdefault(sector, []).append(write)
    return found


def settle(file: int, sector: int, write: Entry, end: int, dice: random.Random) -> None:
    """Puts the part of a write that is in one sector there; now and then only its beginning."""
    start = max(sector * SECTOR, write.at)
    stop = min((sector + 1) * SECTOR, write.at + len(write.data), end)
    if stop > start and dice.random() < 1 / 8:
        stop = dice.randrange(start, stop)
    if stop > start:
        os.pwrite(file, write.data[start - write.at : stop - write.at], start)


@dataclass(slots=True)
class Platter:
    """The safe content of a folder, beside what the process sees of it."""

    folder: Path
    journal: Path
    safe: Path
    inodes: dict[int, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Everything that is in the folder is safe."""
        shutil.rmtree(self.safe, ignore_errors=True)
        copy(self.folder, self.safe)
        self.inodes = {each.stat().st_ino: each.name for each in files(self.folder)}
        self.journal.write_bytes(b"")

    def mend(self) -> None:
        """Cuts an unfinished entry off, so that another process may go on behind it."""
        end = 0
        for entry in entries(self.journal):
            end = entry.place + ENTRY.size + len(entry.data)
        os.truncate(self.journal, end)

    def cut(self, dice: random.Random, *, forgets_all: bool = False) -> None:
        """Lets the power go: the folder holds what survived, at worst what was synced alone."""
        replay = self.replay(dice)
        for body in replay.bodies:
            body.lose([] if forgets_all else body.pending, dice)
        _, names = dice.choice(replay.versions)
        for each in self.folder.iterdir():
            each.unlink()
        for name, body in names.items():
            body.path.rename(self.folder / name)
        self.begin()

    def differences(self) -> list[str]:
        """Files of the folder that are not what the journal amounts to; begins anew then."""
        replay = self.replay(random.Random(0))  # noqa: S311 -- a seed that can be repeated
        for body in replay.bodies:
            body.apply(body.pending)
        _, names = replay.versions[-1]
        found = {each.name for each in files(self.folder)} ^ set(names)
        for name in set(names) - found:
            if not filecmp.cmp(names[name].path, self.folder / name, shallow=False):
                found.add(name)
        self.begin()
        return sorted(found)

    def replay(self, dice: random.Random) -> Replay:
        """The journal so far, made of the safe files."""
        replay = Replay(self.safe, self.inodes)
        for entry in entries(self.journal):
            replay.take(entry, dice)
        return replay


class Replay:
    """Files and names as the journal tells of them."""

    def __init__(self, safe: Path, inodes: dict[int, str]) -> None:
        self.safe = safe
        self.inodes = {inode: Body(safe / name) for inode, name in inodes.items()}
        self.bodies = list(self.inodes.values())
        names = {name: self.inodes[inode] for inode, name in inodes.items()}
        self.versions = [(-1, names)]
        """Where each change of the names stands in the journal, from the last that is safe on."""

    def take(self, entry: Entry, dice: random.Random) -> None:
        """The next entry."""
        if entry.kind in (WRITE, SIZE):
            self.inodes[entry.file].pending.append(entry)
        elif entry.kind == SYNC:
            self.inodes[entry.file].sync(entry.at)
        elif entry.kind == SYNC_FAILED:
            if body := self.inodes.get(entry.file):
                body.fail(entry.at, dice)
        elif entry.kind == SYNC_NAMES:
            covered = max(place for place, _ in self.versions if place < entry.at)
            self.versions = [each for each in self.versions if each[0] >= covered]
        else:
            self.versions.append((entry.place, self.renamed(entry)))

    def renamed(self, entry: Entry) -> dict[str, Body]:
        """The names after a change of them."""
        names = dict(self.versions[-1][1])
        if entry.kind == CREATE:
            path = self.safe / f"{len(self.bodies)}.body"
            path.touch()
            names[entry.name] = self.inodes[entry.file] = Body(path)
            self.bodies.append(names[entry.name])
        elif entry.kind == UNLINK:
            del names[entry.name]
        else:
            old, new = entry.name.split("/")
            names[new] = names.pop(old)
        return names


def files(folder: Path) -> list[Path]:
    """What is in a folder, but for sockets."""
    return [each for each in folder.iterdir() if each.is_file()]


def copy(source: Path, target: Path) -> None:
    """Copies the files of a folder into a new one; holes stay holes."""
    target.mkdir()
    if found := files(source):
        subprocess.run(["cp", "--sparse=always", *found, target], check=True)  # noqa: S603, S607 -- our own files
