"""Limits a micro-batch to a number of rows or bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from mqttcore.spark.offsets import lag_rows

__all__ = ["Admission", "limited"]


def limited(start: Sequence[int], end: Sequence[int], max_rows: int) -> tuple[int, ...]:
    """The end of a batch of at most ``max_rows`` rows; a partition gets a share by its lag.

    If more rows wait, the batch has exactly ``max_rows``. Shares are rounded down; the remaining
    rows go to the partitions with the largest remainders, so that no partition starves.
    """
    lags = [last - first for first, last in zip(start, end, strict=True)]
    waiting = lag_rows(start, end)
    if waiting <= max_rows:
        return tuple(end)
    shares = [lag * max_rows // waiting for lag in lags]
    by_remainder = sorted(
        range(len(lags)), key=lambda number: (-(lags[number] * max_rows % waiting), number)
    )
    for number in by_remainder[: max_rows - sum(shares)]:
        shares[number] += 1
    return tuple(first + share for first, share in zip(start, shares, strict=True))


@dataclass(slots=True, kw_only=True)
class Admission:
    """The limits of the batches of one query, and the time of its last rows."""

    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_s: float
    waits_since_s: float | None = None
    """Time since which too few rows for a batch are waiting."""

    def end(
        self, start: Sequence[int], end: Sequence[int], *, row_bytes: float, now_s: float
    ) -> tuple[int, ...]:
        """The end of the next batch; ``start`` if the batch should wait for more rows.

        ``row_bytes`` is the average size of a row; ``now_s`` is a monotonic clock.
        """
        if self.waits_for_more(lag_rows(start, end), now_s):
            return tuple(start)
        self.waits_since_s = None
        most = self.most_rows(row_bytes)
        return tuple(end) if most is None else limited(start, end, most)

    def waits_for_more(self, waiting: int, now_s: float) -> bool:
        """Whether too few rows wait, and the maximum wait has not passed."""
        if self.min_rows is None or waiting == 0 or waiting >= self.min_rows:
            return False
        if self.waits_since_s is None:
            self.waits_since_s = now_s
        return now_s - self.waits_since_s < self.max_delay_s

    def most_rows(self, row_bytes: float) -> int | None:
        """The lower of both limits, but at least one row, so that the query makes progress."""
        limits = []
        if self.max_rows is not None:
            limits.append(self.max_rows)
        if self.max_bytes is not None:
            limits.append(max(1, int(self.max_bytes / max(row_bytes, 1.0))))
        return min(limits, default=None)
