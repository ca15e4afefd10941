"""Splits row ranges into Spark tasks: large ranges are split, small ones packed together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["OffsetRange", "plan", "ranges_between", "task_count"]

ROWS_PER_TASK: Final = 250_000
"""A task of Spark costs 35 ms of CPU: fewer rows than this do not justify a separate task."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Rows ``[start, end)`` of one partition of a stream."""

    partition: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.end - self.start


def ranges_between(start: Sequence[int], end: Sequence[int]) -> list[OffsetRange]:
    """The ranges between two positions of a stream, by partition."""
    return [
        OffsetRange(partition, first, last)
        for partition, (first, last) in enumerate(zip(start, end, strict=True))
        if first < last
    ]


def task_count(rows: int, *, cores: int, min_partitions: int | None, max_rows_per_task: int) -> int:
    """Number of tasks for so many rows."""
    wanted = min(max(rows // ROWS_PER_TASK, 1), cores)
    needed = -(-rows // max_rows_per_task)
    return min(max(wanted, needed, min_partitions or 1), max(rows, 1))


def plan(ranges: Iterable[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Distributes ranges over at most ``tasks`` tasks of equal size; empty ranges make no task.

    Rows keep their order: a partition's rows stand in consecutive tasks, ascending.
    """
    waiting = [one for one in ranges if one.rows > 0]
    rows = sum(one.rows for one in waiting)
    planned: list[tuple[OffsetRange, ...]] = []
    done = 0
    for number in range(1, tasks + 1):
        quota = rows * number // tasks - done
        if quota > 0:
            planned.append(tuple(take(waiting, quota)))
            done += quota
    return planned


def take(waiting: list[OffsetRange], rows: int) -> Iterable[OffsetRange]:
    """Removes this number of rows from the front of ``waiting``."""
    while rows > 0:
        first = waiting.pop(0)
        cut = min(first.rows, rows)
        if cut < first.rows:
            waiting.insert(0, OffsetRange(first.partition, first.start + cut, first.end))
        yield OffsetRange(first.partition, first.start, first.start + cut)
        rows -= cut
