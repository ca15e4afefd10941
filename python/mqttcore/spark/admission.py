"""Limits a micro-batch to a number of rows or bytes, or to about a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mqttcore.spark.offsets import lag_rows

__all__ = ["FEW_ROWS", "Admission", "Pace", "limited"]

FEW_ROWS: Final = 100_000
"""Rows of the first batch with a target time. No such limit is lower: a batch has costs that do not
depend on its rows, so with fewer rows a query would read fewer rows a second."""
FASTER: Final = 2.0
SLOWER: Final = 0.5
"""Bounds of the change from one batch to the next."""


def limited(start: Sequence[int], end: Sequence[int], max_rows: int) -> tuple[int, ...]:
    """The end of a batch of at most ``max_rows`` rows; a partition gets a share by its lag.

    If more rows wait, the batch has exactly ``max_rows``. Each partition with waiting rows has at
    least one of them, if ``max_rows`` allows that: otherwise rows of a small partition would be
    read long after those that the broker received at the same time. Shares are rounded down; the
    remaining rows go to the partitions with the largest remainders.
    """
    waiting = lag_rows(start, end)
    if waiting <= max_rows:
        return tuple(end)
    lags = [last - first for first, last in zip(start, end, strict=True)]
    shares = [min(lag, 1) for lag in lags]
    if sum(shares) > max_rows:
        shares = [0] * len(lags)
    room = max_rows - sum(shares)
    more = [lag - share for lag, share in zip(lags, shares, strict=True)]
    parts = [divmod(lag * room, sum(more)) for lag in more]
    shares = [share + part for share, (part, _) in zip(shares, parts, strict=True)]
    by_remainder = sorted(range(len(lags)), key=lambda number: (-parts[number][1], number))
    for number in by_remainder[: max_rows - sum(shares)]:
        shares[number] += 1
    return tuple(first + share for first, share in zip(start, shares, strict=True))


@dataclass(slots=True)
class Pace:
    """How many rows a batch may have so that it takes about ``target_s`` (ADR 0106).

    The measure is the time from one planned batch to the next, since Spark plans a batch when the
    one before has ended, or later if the interval of the trigger is longer.
    """

    target_s: float
    most_rows: int | None = None
    rows: int = field(init=False)
    """Maximum rows of the next batch."""
    planned: tuple[int, int, float] | None = field(init=False, default=None)
    """Rows of the last batch, rows that waited when it was planned, and when that was."""
    ended_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.rows = self.bounded(FEW_ROWS)

    def begin(self, rows: int, waiting: int, now_s: float) -> None:
        """A batch of so many of the ``waiting`` rows is planned."""
        self.planned, self.ended_s = (rows, waiting, now_s) if rows else None, None

    def end(self, now_s: float) -> None:
        """The planned batch has ended; only the first call after `begin` counts."""
        if self.ended_s is None:
            self.ended_s = now_s

    def adjust(self, waiting: int) -> None:
        """Adjusts the limit to the batch that has ended, if one has; ``waiting`` rows wait now."""
        if self.planned is None or self.ended_s is None:
            return
        (rows, before, began_s), self.planned = self.planned, None
        change = min(max(self.target_s / max(self.ended_s - began_s, 1e-3), SLOWER), FASTER)
        is_full = rows >= self.rows
        if is_full and waiting > before:
            change = FASTER  # it falls behind: a large batch needs less time for each of its rows
        # a quick batch that had fewer rows than it may have shows nothing about more
        if change < 1 or is_full:
            self.rows = self.bounded(int(self.rows * change))

    def bounded(self, rows: int) -> int:
        """At least `FEW_ROWS`, at most ``most_rows``."""
        rows = max(rows, FEW_ROWS)
        return rows if self.most_rows is None else min(rows, self.most_rows)


@dataclass(slots=True, kw_only=True)
class Admission:
    """The limits of the batches of one query, and the time of its last rows."""

    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_s: float
    pace: Pace | None = None
    waits_since_s: float | None = None
    """Time since which too few rows for a batch are waiting."""

    def end(
        self, start: Sequence[int], end: Sequence[int], *, row_bytes: float, now_s: float
    ) -> tuple[int, ...]:
        """The end of the next batch; ``start`` if the batch should wait for more rows.

        ``row_bytes`` is the average size of a row; ``now_s`` is a monotonic clock.
        """
        waiting = lag_rows(start, end)
        if self.waits_for_more(waiting, now_s):
            return tuple(start)
        self.waits_since_s = None
        if self.pace is not None:
            self.pace.adjust(waiting)
        most = self.most_rows(row_bytes)
        chosen = tuple(end) if most is None else limited(start, end, most)
        if self.pace is not None:
            self.pace.begin(lag_rows(start, chosen), waiting, now_s)
        return chosen

    def batch_ended(self, now_s: float) -> None:
        """The batch of the last `end` was written; ``now_s`` as there."""
        if self.pace is not None:
            self.pace.end(now_s)

    def waits_for_more(self, waiting: int, now_s: float) -> bool:
        """Whether too few rows wait, and the maximum wait has not passed."""
        if self.min_rows is None or waiting == 0 or waiting >= self.min_rows:
            return False
        if self.waits_since_s is None:
            self.waits_since_s = now_s
        return now_s - self.waits_since_s < self.max_delay_s

    def most_rows(self, row_bytes: float) -> int | None:
        """The lowest limit, but at least one row, so that the query makes progress."""
        limits = [] if self.pace is None else [self.pace.rows]
        if self.max_rows is not None:
            limits.append(self.max_rows)
        if self.max_bytes is not None:
            limits.append(max(1, int(self.max_bytes / max(row_bytes, 1.0))))
        return min(limits, default=None)
