"""Histograms of times with about 1 % precision, in constant memory."""

import math
from typing import Final

BUCKETS_AN_OCTAVE: Final = 64
"""Neighbouring buckets differ by a factor of 2 ** (1 / 64), which is 1.1 %."""


class Histogram:
    """Counts times, in nanoseconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.maximum_ns = 0

    def add(self, time_ns: int) -> None:
        """Counts a time."""
        time_ns = max(time_ns, 1)
        bucket = int(math.log2(time_ns) * BUCKETS_AN_OCTAVE)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.maximum_ns = max(self.maximum_ns, time_ns)

    def percentile_ns(self, percent: float) -> int:
        """The time that ``percent`` of the times do not exceed; 0 without times."""
        wanted, seen = math.ceil(self.count * percent / 100), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(int(2 ** ((bucket + 1) / BUCKETS_AN_OCTAVE)), self.maximum_ns)
        return 0
