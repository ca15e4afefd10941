"""Reads one task's ranges in a Spark worker.

The tier is chosen by offset when a range is read, not when it was planned: what was in the tail
then may be sealed by now. Nothing here outlives the task, since workers fork and are used again.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mqttcore._core import StreamOptions, StreamReader
from mqttcore.errors import StreamEpochError, StreamFileError, StreamRangeError
from mqttcore.spark.planner import Range

if TYPE_CHECKING:
    from mqttcore.spark.folder import SealedFile
    from mqttcore.spark.log import StreamLog

__all__ = ["RowReader", "Task"]

TRIES: Final = 3
"""How often the index is asked again for a file that went away before it was opened."""


@dataclass(frozen=True, slots=True)
class Task(InputPartition):
    """The ranges of one Spark task, all of one epoch of the stream."""

    epoch: str
    ranges: tuple[Range, ...]


@dataclass(slots=True, kw_only=True)
class RowReader:
    """Yields exactly the rows of a range, less those that filters drop, or raises."""

    log: StreamLog
    arguments: dict[str, Any]
    """Those of `StreamOptions`, which itself does not travel to workers."""

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """All rows of a task as Arrow batches.

        Raises:
            StreamEpochError: the stream has another epoch than when the task was planned.
            StreamRangeError: rows of a range are nowhere; the text names them.
            StreamFileError: a file of the index cannot be read.
        """
        self.check_epoch(task.epoch)
        options = StreamOptions(**self.arguments)
        for one in task.ranges:
            yield from self.rows(one, options)

    def check_epoch(self, epoch: str) -> None:
        """Files of a restored stream hold other rows under the same offsets."""
        found = self.log.folder.describe().epoch
        if found != epoch:
            raise StreamEpochError(
                f"stream {self.log.name}: planned in epoch {epoch}, it has {found} now"
            )

    def rows(self, wanted: Range, options: StreamOptions) -> Iterator[pa.RecordBatch]:
        """One range, file by file."""
        place = wanted.start
        while place < wanted.end:
            part = Range(wanted.partition, place, wanted.end)
            file, batches = self.opened(part, options)
            yield from batches
            place = min(file.last + 1, wanted.end)

    def opened(
        self, wanted: Range, options: StreamOptions
    ) -> tuple[SealedFile, Iterator[pa.RecordBatch]]:
        """The file with the first row of a range, and all rows of the range that it holds."""
        for _ in range(TRIES):
            file = self.file_with_start(wanted)
            end = min(file.last + 1, wanted.end)
            part = Range(wanted.partition, wanted.start, end)
            try:
                return file, begun(sealed_rows(file, part, options))
            except StreamFileError:
                # merged into another one: the index names that one now
                if pathlib.Path(file.path).exists():
                    raise
        raise StreamRangeError(self.nowhere(wanted))

    def file_with_start(self, wanted: Range) -> SealedFile:
        """Of the files that hold the first row, the one that reaches farthest."""
        holders = self.log.folder.index().between(wanted.partition, wanted.start, wanted.start + 1)
        if not holders:
            raise StreamRangeError(self.nowhere(wanted))
        return max(holders, key=lambda file: file.last)

    def nowhere(self, wanted: Range) -> str:
        """What is missing."""
        return (
            f"stream {self.log.name}: partition {wanted.partition}, offsets {wanted.start} to"
            f" {wanted.end} (exclusive) are in no sealed file"
        )


def sealed_rows(
    file: SealedFile, wanted: Range, options: StreamOptions
) -> Iterator[pa.RecordBatch]:
    """Rows out of one file."""
    reader = StreamReader(
        [(file.path, file.base, file.last)],
        partition=wanted.partition,
        start=wanted.start,
        end=wanted.end,
        options=options,
    )
    return (pa.record_batch(batch) for batch in reader)


def begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, with the first one read already: a file that is missing says so now."""
    first = next(batches, None)
    return iter(()) if first is None else itertools.chain([first], batches)
