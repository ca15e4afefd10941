"""Writes the batches of a pipeline's query to its tables, each batch once (ADR 0054).

A batch is read and decoded once. Its rows go to bronze as they came, and then each of them to
quarantine, with its fault, or to silver, unless silver has it already: a repeat. Gold tables are
computed from silver when the watermark passes the end of their windows. So bronze has as many rows
as silver, quarantine and repeats together, and a gold table is a function of silver.

Nothing is kept beside the tables. The state of the deduplication is silver itself, and each table
holds the watermark up to which it is complete: after a crash Spark repeats the last batch, and each
table takes what it lacks. Which of its rows are faulty is what quarantine says, if it has the
batch: the rules may have changed since.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mqttcore.errors import PipelineError
from mqttcore.pipeline.alerts import AlertPublisher, alert_messages
from mqttcore.pipeline.config import Gold, Pipeline, microseconds
from mqttcore.pipeline.definitions import check_tables
from mqttcore.pipeline.stages import (
    FAULT,
    LATE,
    as_it_came,
    before_batch,
    closed,
    faulty,
    first_of_each,
    judged_late,
    unknown,
    valid,
    windows,
    with_known_faults,
)
from mqttcore.pipeline.tables import Batch, PipelineTable, Seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from mqttcore.spark.log import StreamLog

__all__ = ["BatchWriter", "Written"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Results for the rows of a batch."""

    quarantined: int
    """Messages in quarantine, including late ones."""
    late: int
    repeats: int | None
    """Repeated messages; None: silver already had this batch."""
    watermark_us: int | None
    """The watermark in Unix microseconds; None: there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a batch."""

    rows: int
    valid: int
    late: int
    oldest_us: int | None
    """The first event time of a valid row."""
    newest_us: int | None
    """The last event time of a valid row."""
    reached_us: int | None
    """The time up to which the partitions with valid rows are read; see `totals_of`."""
    received_us: int | None
    """The broker's time up to which these partitions are read."""
    timed: frozenset[int]
    """These partitions."""


class BatchWriter:
    """Writes batches, one at a time: each one depends on silver after the previous ones."""

    def __init__(
        self,
        pipeline: Pipeline,
        table: Callable[[str], PipelineTable],
        log: "StreamLog | None" = None,
    ) -> None:
        """``table`` opens a table by its name; it need not exist. ``log`` is the stream's.

        Raises:
            PipelineError: the file with the token cannot be read.
        """
        self._pipeline = pipeline
        names = ["bronze"] if pipeline.bronze.keep else []
        names += ["quarantine", "silver", *(gold.name for gold in pipeline.gold)]
        self._tables = {name: table(name) for name in names}
        self._delay_us = microseconds(pipeline.silver.watermark)
        self._alerts = AlertPublisher(pipeline.source)
        self._log = log
        self._is_first = True
        """Whether no batch is written yet: only the first one may be known to a table."""

    def check(self, made: "dict[str, DataFrame]") -> dict[str, list[str]]:
        """Compares the columns of the tables with those of ``made``; see `check_tables`."""
        return check_tables(self._pipeline, made, self._tables)

    def adopt(self, made: "dict[str, DataFrame]") -> None:
        """Adds the new columns of the file to existing tables.

        Raises:
            TablesChangedError: something else has changed.
        """
        added = self.check(made)
        for name, rows in made.items():
            if self._tables[name].found() is not None:
                self._tables[name].adopt(rows, added.get(name, ()))
                for column in added.get(name, ()):
                    logger.info("table %s has the new column %s", self._tables[name].place, column)

    def write(self, messages: "DataFrame", batch: Batch) -> Written:
        """Writes one batch of `messages`; a repeated batch adds only what a table lacks.

        Raises:
            PipelineError: the batch does not follow the ones that a table has.
        """
        seen = self._tables["silver"].seen(self._for("silver", batch))
        mark_us = seen.before(batch)
        rows = judged_late(messages, self._pipeline.silver, mark_us if self._has_late() else None)
        rows = self._as_known(rows, batch)
        rows.persist()
        try:
            written = self._write(rows, batch, seen)
        finally:
            rows.unpersist()
        self._is_first = False
        return written

    def tidy(self) -> None:
        """See `PipelineTable.tidy`."""
        for table in self._tables.values():
            table.tidy()

    def _has_late(self) -> bool:
        """Whether a message can be late: there are windows, or repeats are recognised."""
        return bool(self._pipeline.gold or self._pipeline.silver.dedupe)

    def _as_known(self, rows: "DataFrame", batch: Batch) -> "DataFrame":
        """The rows with the faults that quarantine has, if it has the batch.

        The pipeline that wrote them may have had other rules. By new ones, a row could be in
        neither quarantine nor silver, or in both.
        """
        table, known = self._tables["quarantine"], self._for("quarantine", batch)
        if not self._is_first or table.seen(known).number != batch.number:
            return rows
        faults = table.rows(faulty(rows), "timestamp", since_us=None, until_us=None)
        return with_known_faults(rows, faults, batch.starts, batch.ends)

    def _write(self, rows: "DataFrame", batch: Batch, seen: Seen) -> Written:
        totals, mark_us = self._totals(rows), seen.before(batch)
        if self._pipeline.bronze.keep:
            self._tables["bronze"].append(as_it_came(rows), self._for("bronze", batch))
        quarantine = self._for("quarantine", batch)
        self._tables["quarantine"].append(faulty(rows), quarantine)
        if seen.number == batch.number:
            new_us = seen.mark_us  # a repeat: the stream may have other rows by now
        else:
            reached_us = None if self._is_behind(batch, totals) else totals.reached_us
            new_us = advanced(mark_us, reached_us, self._delay_us)
        fresh = self._fresh(rows, batch, mark_us, totals)
        is_read_twice = any(alert.table == "silver" for alert in self._pipeline.alerts)
        if is_read_twice:
            fresh.persist()
        try:
            silver = self._for("silver", batch)
            added = self._tables["silver"].append(fresh, silver, mark_us=new_us)
            messages = self._messages("silver", fresh)
            for gold in self._pipeline.gold:
                messages += self._close(gold, valid(rows), batch, mark_us, new_us)
            self._alerts.publish(messages, batch)
        finally:
            if is_read_twice:
                fresh.unpersist()
        return Written(
            quarantined=totals.rows - totals.valid,
            late=totals.late,
            repeats=None if added is None else totals.valid - added,
            watermark_us=new_us,
        )

    def _for(self, table: str, batch: Batch) -> Batch:
        """The batch as a table identifies it."""
        return dataclasses.replace(batch, name=f"{self._pipeline.name}.{table}")

    def _totals(self, rows: "DataFrame") -> Totals:
        """Reads the batch; its rows are in memory afterwards."""
        from pyspark.sql import functions as f

        time_us = f.unix_micros(f.col(self._pipeline.silver.event_time).cast("timestamp"))
        is_valid = f.col(FAULT).isNull()
        parts = (
            rows.groupBy("partition")
            .agg(
                f.count("*").alias("rows"),
                f.count_if(is_valid).alias("valid"),
                f.count_if(f.col(FAULT).startswith(LATE)).alias("late"),
                f.min(f.when(is_valid, time_us)).alias("oldest"),
                f.max(f.when(is_valid, time_us)).alias("newest"),
                f.max(f.when(is_valid, f.unix_micros("timestamp"))).alias("received"),
            )
            .collect()
        )
        return totals_of(parts, self._delay_us)

    def _is_behind(self, batch: Batch, totals: Totals) -> bool:
        """Whether partitions without a valid row in the batch have unread rows of its time.

        Such rows would be late if the watermark followed the other partitions. The broker received
        them before the last rows of these, by more than the delay of the watermark.
        """
        others = set(range(len(batch.ends))) - totals.timed
        if self._log is None or not self._has_late() or totals.received_us is None or not others:
            return False
        there = self._log.with_retries(self._log.state).end
        if not unread(there, batch.ends, others):
            return False
        due_us = totals.received_us - self._delay_us
        due = self._log.with_retries(partial(self._log.offsets_at, due_us))
        return unread(due, batch.ends, others)

    def _fresh(
        self, rows: "DataFrame", batch: Batch, mark_us: int | None, totals: Totals
    ) -> "DataFrame":
        """The valid rows that silver does not have from earlier batches.

        The event times of a repeat and the first message differ by at most the delay of the
        watermark. If the event time is one of the identifying columns, they are equal.
        """
        silver, good = self._pipeline.silver, valid(rows)
        if not silver.dedupe:
            return good
        since_us = mark_us - self._delay_us if mark_us is not None else None
        until_us = None
        if silver.event_time in silver.dedupe and totals.newest_us is not None:
            since_us, until_us = totals.oldest_us, totals.newest_us + 1
        known = self._tables["silver"].rows(
            good, silver.event_time, since_us=since_us, until_us=until_us, before=batch
        )
        once = first_of_each(good, silver.dedupe)
        return unknown(once, before_batch(known, batch.starts), silver.dedupe)

    def _close(
        self,
        gold: Gold,
        silver: "DataFrame",
        batch: Batch,
        mark_us: int | None,
        up_to_us: int | None,
    ) -> "list[DataFrame]":
        """Appends the windows that end at or before the watermark; returns messages of alerts.

        ``silver`` has the columns of silver, whose watermark was ``mark_us`` and is ``up_to_us``.
        A table that was added later has no alerts for windows that had ended before.

        Raises:
            PipelineError: the table has windows behind the watermark of silver.
        """
        table = self._tables[gold.name]
        own = dataclasses.replace(self._for(gold.name, batch), starts=(), ends=())
        seen = table.seen(own)
        after_us = seen.before(own)
        if after_us is not None and (up_to_us is None or up_to_us < after_us):
            raise PipelineError(
                f"{table.place}: has windows of which silver has no rows: the two tables do not"
                f" belong together. Restore both, or remove {gold.name}: it is computed from silver"
            )
        if up_to_us == after_us and seen.number is not None:
            return []
        since_us = None if after_us is None else after_us - microseconds(gold.window)
        kept = self._tables["silver"].rows(
            silver, self._pipeline.silver.event_time, since_us=since_us, until_us=up_to_us
        )
        made = windows(kept, self._pipeline.silver, gold)
        if up_to_us is None:
            table.append(made.limit(0), own)
            return []
        table.append(closed(made, after_us, up_to_us), own, mark_us=up_to_us)
        return self._messages(gold.name, closed(made, mark_us, up_to_us))

    def _messages(self, table: str, rows: "DataFrame") -> "list[DataFrame]":
        """The messages of the alerts on a table for these rows."""
        alerts = (alert for alert in self._pipeline.alerts if alert.table == table)
        return [alert_messages(rows, alert) for alert in alerts]


def unread(there: Sequence[int], ends: Sequence[int], partitions: set[int]) -> bool:
    """Whether one of these partitions has rows between the end of a batch and other offsets."""
    return any(there[number] > ends[number] for number in partitions)


def totals_of(parts: "Sequence[Row]", delay_us: int) -> Totals:
    """The sums over the partitions of a batch.

    Batches are read up to the newest event time of the slowest partition: during a backlog,
    partitions may be at different times. The difference is at most that of the times at which the
    broker received their messages, plus the delay of the watermark. An older event time is a fault
    of a device's clock, for which other partitions do not wait.
    """
    timed = [part for part in parts if part.newest is not None]
    newest_us = max((part.newest for part in timed), default=None)
    received_us = max((part.received for part in timed), default=None)

    def reached_us(part: "Row") -> int:
        newest: int = part.newest
        held: int = newest_us - (received_us - part.received) - delay_us
        return max(newest, held)

    return Totals(
        rows=sum(part["rows"] for part in parts),
        valid=sum(part.valid for part in parts),
        late=sum(part.late for part in parts),
        oldest_us=min((part.oldest for part in timed), default=None),
        newest_us=newest_us,
        reached_us=min(map(reached_us, timed), default=None),
        received_us=min((part.received for part in timed), default=None),
        timed=frozenset(part.partition for part in timed),
    )


def advanced(mark_us: int | None, reached_us: int | None, delay_us: int) -> int | None:
    """The watermark after a batch; it never goes back."""
    if reached_us is None:
        return mark_us
    new_us = reached_us - delay_us
    return new_us if mark_us is None else max(mark_us, new_us)
