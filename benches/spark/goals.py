"""The goals, and what a row of the report says of one."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mqttcore.errors import MqttError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from benches.spark.cost import Cost, median
from tests.kafka.jars import MissingToolError
from tests.kafka.node import NodeError

FAULTS = (
    MqttError, NodeError, OSError, Py4JError, PySparkException, RuntimeError,
    subprocess.SubprocessError,
)  # fmt: skip
"""What a row may end with without taking the others along."""


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
    S9 = Goal("S9", "kills of a run without a row lost or doubled", 100)
    S10 = Goal("S10", "sealed bytes / bytes of topic, client and payload", 0.15, at_least=False)
    S10_KAFKA = Goal("S10", "sealed bytes / bytes of Kafka's log by zstd", 1.0, at_least=False)
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
    sides: Mapping[str, float] = field(default_factory=dict)
    """What the ratio is of: rows a second, or milliseconds where less is better; ours first."""

    @property
    def verdict(self) -> str:
        """Met or not met."""
        goal: Goal = self.row.value
        return goal.verdict(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A row without a value, and why it has none."""

    row: Row
    reason: str
    failed: bool
    """Something broke; otherwise something is not here that it takes."""

    @property
    def verdict(self) -> str:
        """Nothing was reached."""
        return "failed" if self.failed else "skipped"


Outcome = Measured | Unmeasured


class AbsentError(Exception):
    """What a row takes is not here; the text says what, and how to have it."""


def attempt(rows: Sequence[Row], measure: Callable[[], Iterator[Measured]]) -> Iterator[Outcome]:
    """What ``measure`` finds of these rows, and of each other one why it has no value."""
    left = list(rows)
    reason, failed = "nothing was measured", True
    try:
        for measured in measure():
            left.remove(measured.row)
            yield measured
    except (AbsentError, MissingToolError) as error:
        reason, failed = str(error), False
    except FAULTS as error:
        print(f"{rows[0].name}: {error}", file=sys.stderr, flush=True)
        reason = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[-1][:200]}"
    yield from (Unmeasured(row=row, reason=reason, failed=failed) for row in left)


def compared(
    row: Row, costs: Mapping[str, Sequence[Cost]], ours: float, others: float, *, by: str
) -> Measured:
    """How many times the rate of the other contender has ours; so many rows are in a turn of each.

    ``by`` the wall, which is what users wait for, or by the CPU, whose seconds mean something
    where others use the machine too.
    """
    (_, mine), (name, theirs) = ((name, median(turns)) for name, turns in costs.items())
    more = ours / others
    wall, cpu = more * theirs.wall_s / mine.wall_s, more * theirs.cpu_s / mine.cpu_s
    rates = {"mqttcore": ours / mine.wall_s, name: others / theirs.wall_s}
    said = [f"{side} {rate / 1e6:.3g} M rows/s" for side, rate in rates.items()]
    return Measured(
        row=row,
        value=wall if by == "wall" else cpu,
        figures=(
            f"{', '.join(said)} (wall {wall:.2f}); CPU s a million rows"
            f" {mine.cpu_s / ours * 1e6:.2f}, {theirs.cpu_s / others * 1e6:.2f} (CPU {cpu:.2f})"
        ),
        sides=rates,
    )
