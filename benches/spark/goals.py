"""The goals, and what a row of the report says of one."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benches.spark.cost import Cost, median


@dataclass(frozen=True, slots=True)
class Goal:
    """One ratio that must be reached."""

    number: str
    text: str
    must: float
    at_least: bool = True

    def verdict(self, value: float) -> str:
        """Whether a value reaches it."""
        reached = value >= self.must if self.at_least else value <= self.must
        return "met" if reached else "not met"


class Row(enum.Enum):
    """Every row of the report, measured here or not."""

    S1 = Goal("S1", "full scan through the source / Spark's own Parquet reader", 0.5)
    S2 = Goal("S2", "read(), sealed and 1 % tail / Spark's own Parquet reader", 0.9)
    S3 = Goal("S3", "JSON to 1-minute windows, decoded in the source / Parquet and from_json", 2.5)
    S4_TUPLES = Goal("S4", "source / a Python source that yields tuples in one partition", 25)
    S4_PAHO = Goal("S4", "source / paho, a list and createDataFrame", 100)
    S5 = Goal("S5", "catching up in batches of an eighth / Spark's own file stream", 0.35)
    S6_STATELESS = Goal("S6", "micro-batch, tuned / stock session, no state", 0.25, at_least=False)
    S6_WINDOW = Goal("S6", "micro-batch, tuned / stock session, window", 0.04, at_least=False)
    S7 = Goal("S7", "micro-batch / tuned file stream over 10,000 files", 0.6, at_least=False)
    S8 = Goal("S8", "rows/s / Spark's Kafka source", 2.0)
    S8_FLOOR = Goal("S8", "micro-batch, tuned / over Spark's Kafka source", 0.8, at_least=False)
    S9 = Goal("S9", "rows lost or doubled in 100 kills", 0, at_least=False)
    S10 = Goal("S10", "sealed bytes / bytes of topic, client and payload", 0.15, at_least=False)
    S11 = Goal("S11", "sink / paho in a loop", 15)
    S12 = Goal("S12", "seconds from the installation to the first rows", 30, at_least=False)
    S13 = Goal("S13", "memory of an idle pipeline with a heap of 512 MB, GiB", 1.0, at_least=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came out of one row."""

    row: Row
    value: float
    figures: str
    """The figures behind the ratio, in words."""

    @property
    def verdict(self) -> str:
        """Met or not met."""
        goal: Goal = self.row.value
        return goal.verdict(self.value)


def ratio(row: Row, value: float, figures: str) -> Measured:
    """A ratio that is one already."""
    return Measured(row=row, value=value, figures=figures)


def compared(
    row: Row, costs: Mapping[str, Sequence[Cost]], rows: int, *, by: str, more: float = 1.0
) -> Measured:
    """How many times the rate of ``native`` has ours, which read ``more`` times its ``rows``.

    ``by`` the wall, which is what users wait for, or by the CPU, whose seconds mean something
    where others use the machine too.
    """
    ours, native = median(costs["ours"]), median(costs["native"])
    wall, cpu = more * native.wall_s / ours.wall_s, more * native.cpu_s / ours.cpu_s
    return Measured(
        row=row,
        value=wall if by == "wall" else cpu,
        figures=(
            f"{more * rows / ours.wall_s / 1e6:.2f} to {rows / native.wall_s / 1e6:.2f} M rows/s"
            f" (wall {wall:.2f}), {ours.cpu_s:.2f} to {native.cpu_s:.2f} CPU s (CPU {cpu:.2f})"
        ),
    )
