"""A stream as the source sees it: sealed files in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqttcore.errors import StreamOptionError
from mqttcore.spark.folder import StreamFolder, find_folder

if TYPE_CHECKING:
    from mqttcore.spark.options import SourceOptions

__all__ = ["State", "StreamLog", "open_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A stream at one moment; all offsets are one a partition."""

    name: str
    epoch: str
    earliest: tuple[int, ...]
    """The first row that still counts."""
    sealed: tuple[int, ...]
    """The first row that is not in a sealed file."""
    end: tuple[int, ...]
    """The first row that is not there yet, or not safe yet."""


@dataclass(slots=True, kw_only=True)
class StreamLog:
    """Where a stream's rows are."""

    name: str
    folder: StreamFolder

    def state(self) -> State:
        """What is sealed: without the broker nothing else can be read."""
        index = self.folder.index()
        described = self.folder.describe()
        return State(
            name=described.name,
            epoch=described.epoch,
            earliest=index.earliest,
            sealed=index.ends,
            end=index.ends,
        )

    def offsets_at(self, timestamp_us: int) -> tuple[int, ...]:
        """The first row of each partition at or after a time."""
        return self.folder.sealed_at(timestamp_us)


def open_log(options: SourceOptions) -> StreamLog:
    """Finds the stream that options name.

    Raises:
        StreamFolderError: the path holds no such stream.
        StreamOptionError: the options do not say which stream.
    """
    if options.path is None:
        raise StreamOptionError("option path is missing: the broker's data folder")
    folder = find_folder(options.path, options.stream)
    return StreamLog(name=folder.describe().name, folder=folder)
