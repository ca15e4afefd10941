"""Reads the folder of a stream on disk, whether a broker runs or not.

``stream.json`` describes the stream. The index maps offsets to Parquet files: ``sealed.json`` is a
snapshot, and each line of ``sealed.log`` with the number of the snapshot is a file that was sealed
after it. Files that are not in the index are ignored.
"""

import bisect
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mqttcore._core import StreamOptions, StreamReader
from mqttcore.errors import StreamFolderError, StreamOptionError, StreamRangeError

__all__ = [
    "Description",
    "FileMovedError",
    "SealedFile",
    "SealedIndex",
    "StreamFolder",
    "find_folder",
    "index_of",
]

FORMAT: Final = 1
INDEX: Final = ("sealed.json", "sealed.log")
"""The files of the index."""


class FileMovedError(Exception):
    """A file was removed after the index was read: read the index again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a stream."""

    name: str
    epoch: str
    """Store and counter: offsets of another epoch mean other rows."""
    partitions: int
    schema: Any
    """The typed columns as the broker wrote them; None if there are none."""
    filters: tuple[str, ...] = ()
    """The topic filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """A file with the rows ``base..=last`` of one partition."""

    path: str
    base: int
    last: int
    min_us: int
    max_us: int
    size_bytes: int
    typed: int = 0
    """Number of typed columns in the file."""
    url: str = ""
    """Where its object is, if it has one."""
    is_remote: bool = False
    """Whether only the object counts."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.base + 1


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """The sealed files of each partition, ascending, and its first readable offset."""

    files: tuple[tuple[SealedFile, ...], ...]
    earliest: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """The first offset of each partition that is not sealed."""
        return tuple(
            max((file.last + 1 for file in files), default=earliest)
            for files, earliest in zip(self.files, self.earliest, strict=True)
        )

    def standing(self) -> list[list[SealedFile]]:
        """The files of each partition, so that each row is in one of them.

        Without files that were merged into another one, and without files of which no row is
        readable any more.
        """
        return [
            list(covering(files, earliest))
            for files, earliest in zip(self.files, self.earliest, strict=True)
        ]

    def between(self, partition: int, start: int, end: int) -> list[SealedFile]:
        """The files with any row of ``[start, end)``."""
        files = self.files[partition]
        first = bisect.bisect_left(files, start, key=lambda file: file.last)
        return [file for file in files[first:] if file.base < end]

    def named(self, partition: int, start: int, end: int) -> tuple[SealedFile, ...]:
        """Like `between`, with names instead of paths, for other machines."""
        return tuple(
            dataclasses.replace(file, path=pathlib.PurePath(file.path).name)
            for file in self.between(partition, start, end)
        )

    def row_bytes(self) -> float | None:
        """Average bytes of a sealed row in its file; None if nothing is sealed."""
        newest = [files[-1] for files in self.files if files]
        rows = sum(file.rows for file in newest)
        return sum(file.size_bytes for file in newest) / rows if rows else None


def covering(files: Iterable[SealedFile], end: int) -> Iterator[SealedFile]:
    """The files that contain the rows from ``end`` on, each row once."""
    for file in sorted(files, key=lambda file: (file.base, -file.last)):
        if file.last >= end:
            yield file
            end = file.last + 1


class StreamFolder:
    """The folder of one stream. It pickles as its path; reads changed files again."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._index: tuple[tuple[object, ...], SealedIndex] | None = None

    def __reduce__(self) -> tuple[type["StreamFolder"], tuple[pathlib.Path]]:
        return StreamFolder, (self.path,)

    def describe(self) -> Description:
        """Reads ``stream.json``.

        Raises:
            StreamFolderError: there is none, or it is of a format that this version does not read.
        """
        found = self.read("stream.json")
        if found is None:
            raise StreamFolderError(
                f"{self.path} is not the folder of a stream: stream.json is missing"
            )
        if found.get("format") != FORMAT:
            raise StreamFolderError(
                f"{self.path}: stream.json has format {found.get('format')!r}, this version reads"
                f" {FORMAT}"
            )
        try:
            return Description(
                name=found["name"],
                epoch=f"{found['store']}:{found['epoch']}",
                partitions=found["partitions"],
                schema=found.get("schema"),
                filters=tuple(found.get("filters", ())),
            )
        except KeyError as error:
            raise StreamFolderError(f"{self.path}: stream.json: key {error} is missing") from error

    def index(self) -> SealedIndex:
        """Reads the index, if it changed since the last time.

        Raises:
            StreamFolderError: the folder is none, or the index cannot be read.
        """
        while True:
            identity = self.identity(*INDEX)
            if self._index is None or self._index[0] != identity:
                index = self.read_index()
                if self.identity(*INDEX)[0] != identity[0]:
                    # another snapshot came meanwhile: the log entries may belong to either
                    continue
                self._index = identity, index
            return self._index[1]

    def read_index(self) -> SealedIndex:
        """Reads the index; without an index file, nothing is sealed yet."""
        partitions = self.describe().partitions
        found = self.read("sealed.json")
        if found is None:
            return SealedIndex(((),) * partitions, (0,) * partitions)
        try:
            for entry in self.sealed_since(found.get("snapshot", 0)):
                found["partitions"][entry["partition"]].append(entry)
            index = index_of(found, self.path / "data")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise StreamFolderError(
                f"{self.path}: sealed.json cannot be read: {error!r}"
            ) from error
        if len(index.files) != partitions or len(index.earliest) != partitions:
            raise StreamFolderError(
                f"{self.path}: sealed.json does not have {partitions} partitions"
            )
        return index

    def sealed_since(self, snapshot: int) -> Iterator[Any]:
        """The files in the log of a snapshot of the index."""
        try:
            lines = (self.path / "sealed.log").read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StreamFolderError(f"{self.path}: sealed.log cannot be read: {error}") from error
        for line in lines:
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if entry is None:
                # it is being written, or incomplete after a crash
                return
            if entry["snapshot"] == snapshot:
                yield entry

    def forget(self) -> None:
        """Does nothing: the index is read again in any case."""

    def is_here(self) -> bool:
        """Whether this machine sees the folder."""
        return (self.path / "stream.json").is_file()

    def placed(self, file: SealedFile) -> SealedFile:
        """Converts a file of `SealedIndex.named` to a path here."""
        return dataclasses.replace(file, path=str(self.path / "data" / file.path))

    @contextmanager
    def at_hand(self, file: SealedFile, start: int, end: int) -> Iterator[str]:
        """A path at which the rows ``[start, end)`` of a file can be read."""
        if not file.is_remote:
            yield file.path
            return
        # most files are here
        from mqttcore.spark.objects import object_at_hand

        with object_at_hand(file, start, end) as path:
            yield path

    def sealed_at(self, timestamp_us: int) -> tuple[int, ...]:
        """The first sealed offset of each partition at or after a time, else the sealed end."""
        index = self.index()
        return tuple(
            max(self.first_at(partition, files, timestamp_us, end), earliest)
            for partition, (files, end, earliest) in enumerate(
                zip(index.files, index.ends, index.earliest, strict=True)
            )
        )

    def first_at(
        self, partition: int, files: Sequence[SealedFile], timestamp_us: int, end: int
    ) -> int:
        """The first offset at or after a time: timestamps never fall within a partition."""
        for file in files:
            if file.max_us < timestamp_us:
                continue
            if file.min_us >= timestamp_us:
                return file.base
            with self.at_hand(file, file.base, file.last + 1) as path:
                return first_in(partition, dataclasses.replace(file, path=path), timestamp_us)
        return end

    def read(self, name: str) -> Any:  # noqa: ANN401 -- JSON
        """Reads a JSON file of this folder; None if it does not exist."""
        try:
            return json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StreamFolderError(f"{self.path}: {name} cannot be read: {error}") from error

    def identity(self, *names: str) -> tuple[object, ...]:
        """One value for each file; it changes when the file changes."""
        return tuple(map(identity_of, (self.path / name for name in names)))


def identity_of(path: pathlib.Path) -> object:
    """Changes when the file is replaced or grows."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def index_of(found: Any, folder: pathlib.PurePath) -> SealedIndex:  # noqa: ANN401 -- JSON
    """Makes the index from its JSON, with files in ``folder``."""
    tier = found.get("tier")

    def file(entry: dict[str, Any]) -> SealedFile:
        return SealedFile(
            path=str(folder / entry["file"]),
            base=entry["base"],
            last=entry["last"],
            min_us=entry["min_us"],
            max_us=entry["max_us"],
            size_bytes=entry["bytes"],
            typed=entry.get("typed") or 0,
            url=f"{tier}/{entry['object']}" if tier and entry.get("object") else "",
            is_remote=entry.get("remote", False),
        )

    files = (sorted(map(file, entries), key=by_end) for entries in found["partitions"])
    return SealedIndex(tuple(map(tuple, files)), tuple(found["earliest"]))


def by_end(file: SealedFile) -> tuple[int, int]:
    """Sort key: files in the order of their rows; merged files after their parts."""
    return file.last, -file.base


def first_in(partition: int, file: SealedFile, timestamp_us: int) -> int:
    """The first offset at or after a time in one file that begins before it and ends after it."""
    import pyarrow as pa

    offset = file.base
    for batch in StreamReader(
        [(file.path, file.base, file.last)],
        partition=partition,
        start=file.base,
        end=file.last + 1,
        options=StreamOptions(columns=["timestamp"]),
    ):
        times = pa.record_batch(batch).column(0).cast(pa.int64()).to_numpy()
        place = int(times.searchsorted(timestamp_us))
        if place < len(times):
            return offset + place
        offset += len(times)
    raise StreamRangeError(f"{file.path}: its timestamps differ from the index")


def find_folder(path: str, stream: str | None) -> StreamFolder:
    """The folder of a stream, given that folder itself or the broker's data folder.

    Raises:
        StreamFolderError: there is no such stream below the path; the text names those there are.
        StreamOptionError: the path is a data folder, and no stream of it was named.
    """
    given = pathlib.Path(path.removeprefix("file://"))
    if (given / "stream.json").is_file():
        folder = StreamFolder(given)
        if stream is not None and folder.describe().name != stream:
            raise StreamFolderError(f"{given} is stream {folder.describe().name}, not {stream}")
        return folder
    names = sorted(found.parent.name for found in given.glob("streams/*/stream.json"))
    if stream in names:
        return StreamFolder(given / "streams" / str(stream))
    have = f"it has {', '.join(names)}" if names else "nothing of that kind is there"
    if stream is None and names:
        raise StreamOptionError(f"option stream is missing: which stream of {given}; {have}")
    raise StreamFolderError(f"{given} has no stream {stream or ''}: {have}".replace(" :", ":"))
