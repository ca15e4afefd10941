"""Reads the ranges of one task in a Spark worker: sealed files, then the tail.

The tier is chosen when a range is read, not when it was planned: rows of the tail may have been
sealed meanwhile. No object here outlives the task, since workers fork and are reused.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mqttcore._core import StreamReader as Rows
from mqttcore.errors import (
    EndpointError,
    EndpointUnreachableError,
    RangeBeyondError,
    RangeGoneError,
    RangeSealedError,
    StreamEpochError,
    StreamFileError,
    StreamRangeError,
)
from mqttcore.spark.folder import FileMovedError
from mqttcore.spark.planner import OffsetRange
from mqttcore.spark.planning import reader_options, remembers, tell_loss
from mqttcore.spark.retry import RETRY_S, pause

if TYPE_CHECKING:
    from mqttcore._core import StreamBatch, StreamOptions
    from mqttcore.spark.folder import SealedFile, SealedIndex
    from mqttcore.spark.log import State, StreamLog
    from mqttcore.spark.options import SourceOptions

__all__ = ["RowReader", "Task", "tasks_for"]

TRIES: Final = 6
"""Number of times that a row is searched in both tiers before it counts as missing. A merge
replaces a file shortly before the index says so; then the search is repeated after 50 ms, 100 ms
and so on."""
TAIL_ROWS: Final = 131_072
"""Rows of one request for the tail: they are in memory at once."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Task(InputPartition):
    """The ranges of one Spark task, all of one epoch of the stream."""

    epoch: str
    ranges: tuple[OffsetRange, ...]
    sealed: tuple[int, ...]
    """End offset of the sealed rows of each partition at planning, or later."""
    files: tuple[tuple[SealedFile, ...], ...] = ()
    """The files of each range when it was planned, by name: no task reads the whole index, unless
    one of them is another file by then."""


def tasks_for(
    state: State, planned: Sequence[tuple[OffsetRange, ...]], log: StreamLog
) -> list[Task]:
    """The tasks for Spark; at least one, since Spark would otherwise add its own."""
    is_sealed = any(one.start < state.sealed[one.partition] for ranges in planned for one in ranges)
    index = log.index_up_to(state.sealed) if is_sealed else None

    def task(ranges: tuple[OffsetRange, ...]) -> Task:
        named = index.named if index is not None else lambda *_: ()
        files = tuple(named(one.partition, one.start, one.end) for one in ranges)
        return Task(state.epoch, ranges, state.sealed, files)

    return [task(ranges) for ranges in planned or [()]]


@dataclass(slots=True, kw_only=True)
class RowReader:
    """Yields exactly the rows of a range that filters leave, or raises an error."""

    log: StreamLog
    options: SourceOptions
    topic: str | None
    """The topic filter: that of the options, or a narrower one."""
    aliases: str | None = None
    """Sparkplug aliases of the earlier rows, for files that do not contain them."""
    retry_s: float = RETRY_S
    """Seconds that the broker may be away."""
    planned: tuple[SealedFile, ...] = ()
    """The planned files of the range, as far as they still exist."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows of a task as Arrow batches.

        Raises:
            StreamEpochError: the stream has another epoch than when the task was planned.
            StreamRangeError: rows of a range are nowhere; the text names them.
            StreamFileError: a file of the index cannot be read.
        """
        if not isinstance(partition, Task):
            raise TypeError(f"{partition!r} was not made by this source")
        self.log = self.log.on_this_machine(retry_s=self.retry_s)
        self.check_epoch(partition.epoch)
        planned = partition.files or ((),) * len(partition.ranges)
        for one, files in zip(partition.ranges, planned, strict=True):
            self.planned = tuple(map(self.log.files().placed, files))
            yield from self.rows(one, partition.sealed[one.partition])

    def check_epoch(self, epoch: str) -> None:
        """Checks the epoch: in a stream that was restored, offsets mean other rows."""
        if self.log.folder is not None:
            found = self.log.folder.describe().epoch
        else:
            found = self.log.with_retries(self.log.live_state, retry_s=self.retry_s).epoch
        if found != epoch:
            raise StreamEpochError(
                f"stream {self.log.name}: planned in epoch {epoch}, it has {found} now"
            )

    def rows(self, wanted: OffsetRange, sealed: int) -> Iterator[pa.RecordBatch]:
        """Reads one range, part by part; rows below ``sealed`` are certainly in files."""
        place, tries = wanted.start, 0
        while place < wanted.end:
            rest = OffsetRange(wanted.partition, place, wanted.end)
            try:
                end, batches = self.sealed(rest) if place < sealed else self.tail(rest)
            except (RangeSealedError, FileMovedError) as error:
                # sealed since, or merged into another file: the index decides
                tries += 1
                if tries > TRIES:
                    raise StreamRangeError(self.nowhere(rest)) from error
                if isinstance(error, FileMovedError):
                    pause(0.025 * 2**tries)
                self.planned = ()
                self.log.files().forget()
                sealed = self.sealed_end(rest)
                continue
            yield from batches
            place, tries = end, 0

    def sealed(self, wanted: OffsetRange) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The rows of a range in the file with its first row, and their end.

        Raises:
            FileMovedError: that file is gone since the index was read.
        """
        file = self.file_with_start(wanted)
        end = min(file.last + 1, wanted.end)
        # the footer and the BIRTHs between it and the first row define the aliases
        start = file.base if remembers(self.options, file) else wanted.start
        with contextlib.ExitStack() as held:

            def at_hand() -> str:
                return held.enter_context(self.log.files().at_hand(file, start, end))

            path = self.with_retries(wanted, at_hand)
            reader = Rows(
                [(path, file.base, file.last)],
                partition=wanted.partition,
                start=wanted.start,
                end=end,
                options=self.reader_options(),
            )
            try:
                # the file is open then, even if the path is removed
                first = list(itertools.islice(reader, 1))
            except StreamFileError as error:
                if is_file_of(path, file.size_bytes):
                    raise
                raise FileMovedError(path) from error
        return end, self.batches(first, reader)

    def file_with_start(self, wanted: OffsetRange) -> SealedFile:
        """The file with the first row; of several, the one that reaches farthest."""
        holders = [file for file in self.planned if file.base <= wanted.start <= file.last]
        if not holders:
            holders = self.index(wanted).between(wanted.partition, wanted.start, wanted.start + 1)
        if not holders:
            raise StreamRangeError(self.nowhere(wanted))
        return max(holders, key=lambda file: file.last)

    def sealed_end(self, wanted: OffsetRange) -> int:
        """The current end of the files of a partition."""
        return self.index(wanted).ends[wanted.partition]

    def index(self, wanted: OffsetRange) -> SealedIndex:
        """The index of the files."""
        files = self.log.files()
        # a folder is read without a broker
        return files.index() if self.log.folder else self.with_retries(wanted, files.index)

    def tail(self, wanted: OffsetRange) -> tuple[int, Iterator[pa.RecordBatch]]:
        """The first rows of a range from the broker's memory, and their end.

        Raises:
            RangeSealedError: they are in files by now.
            StreamRangeError: the broker does not have them, or does not come back.
        """
        end = min(wanted.start + TAIL_ROWS, wanted.end)
        try:
            ipc = self.tail_bytes(wanted, end)
        except RangeGoneError as error:
            return self.lost(wanted, error)
        except RangeBeyondError as error:
            raise StreamRangeError(f"{self.nowhere(wanted)}: {error}") from error
        options = self.reader_options(tail=True)
        reader = Rows.tail(
            ipc, partition=wanted.partition, start=wanted.start, end=end, options=options
        )
        return end, self.batches([], reader)

    def reader_options(self, *, tail: bool = False) -> StreamOptions:
        """Options of the next reader in Rust."""
        return reader_options(self.options, self.topic, aliases=self.aliases, tail=tail)

    def batches(self, first: Sequence[StreamBatch], reader: Rows) -> Iterator[pa.RecordBatch]:
        """Returns all rows of a reader; the next reader continues with its aliases."""
        yield from map(pa.record_batch, itertools.chain(first, reader))
        self.aliases = reader.aliases or self.aliases

    def tail_bytes(self, wanted: OffsetRange, end: int) -> bytes:
        """An Arrow IPC stream with the rows up to ``end``."""

        def ask() -> bytes:
            return self.log.client.rows_at_once(
                self.log.name, partition=wanted.partition, start=wanted.start, end=end
            )

        return self.with_retries(wanted, ask)

    def with_retries(self, wanted: OffsetRange, ask: Callable[[], Answer]) -> Answer:
        """Queries the broker about a range; waits while it is away."""

        def look_at_files(error: EndpointError) -> None:
            # a broker that stops seals its tail first
            if self.log.folder is not None and wanted.start < self.sealed_end(wanted):
                raise RangeSealedError(str(error)) from error

        try:
            return self.log.with_retries(ask, meanwhile=look_at_files, retry_s=self.retry_s)
        except EndpointUnreachableError as error:
            raise StreamRangeError(f"{self.nowhere(wanted)}: {error}") from error

    def lost(
        self, wanted: OffsetRange, error: RangeGoneError
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Handles rows that retention deleted after they were planned."""
        earliest = self.with_retries(wanted, self.log.state).earliest[wanted.partition]
        if self.options.fail_on_data_loss or earliest <= wanted.start:
            raise StreamRangeError(f"{self.nowhere(wanted)}: {error}") from error
        end = min(earliest, wanted.end)
        tell_loss(self.log.name, OffsetRange(wanted.partition, wanted.start, end))
        return end, iter(())

    def nowhere(self, wanted: OffsetRange) -> str:
        """The error for missing rows."""
        return (
            f"stream {self.log.name}: partition {wanted.partition}, offsets {wanted.start} to"
            f" {wanted.end} (exclusive) cannot be read anywhere"
        )


def is_file_of(path: str, size_bytes: int) -> bool:
    """Whether a file exists with this size: a merged file is larger."""
    try:
        return os.stat(path).st_size == size_bytes
    except FileNotFoundError:
        return False
