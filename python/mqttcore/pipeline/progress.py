"""Progress of a running pipeline: one line for each batch, as text or JSON.

| key | what |
| --- | --- |
| query, batch, rows | which batch of which query, and how many messages it read |
| rows_per_s | messages a second of the time that the batch took |
| lag_messages, lag_s | what the stream held beyond the batch; how old the newest message read is |
| batch_ms | the batch's time, and ``phases_ms`` what of it went where, as Spark names it |
| quarantined, late_rows | messages that went to quarantine, and how many of them were late |
| repeats | messages that silver had already; null if it had the whole batch, before a crash |
| watermark | up to where event time is settled: windows that end there are in gold tables |
"""

import datetime
import json
import logging
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Protocol

from mqttcore.errors import EndpointError
from mqttcore.spark.offsets import lag_rows, offset_of
from mqttcore.streams.client import StreamClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from mqttcore.pipeline.batches import Written

__all__ = ["JsonLines", "Lines", "Progress", "Reporter", "Told", "telling"]

logger = logging.getLogger(__name__)

NEWEST = "newest"
"""Name of the metric that each query observes: the newest broker time among its messages."""
TOLD_S = 10.0
"""Seconds that Spark may take to report the last batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One batch of one query; the keys are those of the table above."""

    query: str
    batch: int
    rows: int
    rows_per_s: float
    lag_messages: int
    lag_s: float
    batch_ms: int
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    quarantined: int = 0
    late_rows: int = 0
    repeats: int | None = 0
    watermark: str = ""

    def figures(self) -> list[str]:
        """The progress of a batch as one line of text."""
        told = [
            f"{self.rows:9,} rows {self.rows_per_s:11,.0f}/s {self.batch_ms:6,} ms",
            f"lag {self.lag_messages:,} ({self.lag_s:,.1f} s)",
        ]
        if self.quarantined:
            late = f" ({self.late_rows:,} late)" if self.late_rows else ""
            told.append(f"quarantine {self.quarantined:,}{late}")
        if self.repeats:
            told.append(f"repeats {self.repeats:,}")
        if self.watermark:
            told.append(f"settled up to {self.watermark}")
        return told


class Reporter(Protocol):
    """Receives the progress of each batch."""

    def report(self, progress: Progress) -> None:
        """A batch has ended."""


class JsonLines:
    """Writes one JSON object in a line for each batch, for programs."""

    def __init__(self, to: IO[str] | None = None) -> None:
        """Writes to ``to``; None: to standard output."""
        self._to = to or sys.stdout

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        print(json.dumps(asdict(progress)), file=self._to, flush=True)


class Lines:
    """Writes one line for each batch, for people."""

    def __init__(self, to: IO[str] | None = None) -> None:
        """Writes to ``to``; None: to standard error."""
        self._to = to or sys.stderr

    def report(self, progress: Progress) -> None:
        """Writes one line."""
        batch = f"{progress.query:24} batch {progress.batch:5}"
        print(" | ".join([batch, *progress.figures()]), file=self._to, flush=True)


class Told:
    """Reports to the broker, which publishes ``$SYS/spark/<query>``, and to other reporters."""

    def __init__(self, broker: StreamClient, *others: Reporter) -> None:
        self._broker = broker
        self._others = others
        self._is_heard = True

    def report(self, progress: Progress) -> None:
        """Reports a batch. A broker that does not answer is logged once and delays nothing."""
        for other in self._others:
            other.report(progress)
        try:
            self._broker.report(progress.query, asdict(progress))
            self._is_heard = True
        except EndpointError as error:
            if self._is_heard:
                logger.warning("cannot report progress to the broker: %s", error)
            self._is_heard = False


def read(progress: "StreamingQueryProgress", written: "Written | None") -> Progress:
    """Combines Spark's report of a batch with the results for its rows, if known."""
    took = dict(progress.durationMs)
    batch_ms = int(took.pop("triggerExecution", 0))
    observed = (progress.observedMetrics or {}).get(NEWEST)
    lag = sum(behind(source.endOffset, source.latestOffset) for source in progress.sources)
    return Progress(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        rows=progress.numInputRows,
        rows_per_s=progress.numInputRows * 1000 / batch_ms if batch_ms else 0.0,
        lag_messages=lag,
        lag_s=age_s(observed[0] if observed else None) if lag else 0.0,
        batch_ms=batch_ms,
        phases_ms={name: int(value) for name, value in took.items()},
        quarantined=written.quarantined if written else 0,
        late_rows=written.late if written else 0,
        repeats=written.repeats if written else None,
        watermark=iso(written.watermark_us if written else None),
    )


def behind(end: str | None, latest: str | None) -> int:
    """Number of messages between two offsets of a source; 0 if one of them is unknown."""
    read_up_to, there = offset_of(end), offset_of(latest)
    return lag_rows(read_up_to.ends, there.ends) if read_up_to and there else 0


def age_s(newest: object) -> float:
    """Seconds since a time of the broker's clock."""
    if not isinstance(newest, datetime.datetime):
        return 0.0
    aware = newest if newest.tzinfo else newest.replace(tzinfo=datetime.UTC)
    return max(0.0, (datetime.datetime.now(datetime.UTC) - aware).total_seconds())


def iso(time_us: int | None) -> str:
    """A time in unix microseconds as text; empty if there is none."""
    if time_us is None:
        return ""
    time = EPOCH + datetime.timedelta(microseconds=time_us)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@contextmanager
def telling(
    spark: "SparkSession",
    name: str,
    reporter: Reporter,
    queries: "Iterable[StreamingQuery]",
    written: "MutableMapping[int, Written]",
) -> Iterator[None]:
    """Reports every batch of ``queries``, the runs of the query ``name``, to ``reporter``.

    At the end of the block the queries have stopped. Spark reports a batch after it has ended,
    perhaps after its query has; so this ends when Spark has reported the end of the queries.
    ``written`` has the results of batches by number; entries are removed.
    """
    ended = Ended()
    told = listener(name, reporter, ended, written)
    spark.streams.addListener(told)
    try:
        yield
    finally:
        if not ended.wait((str(query.runId) for query in queries), TOLD_S):
            logger.warning("%s: the last status reports may be missing", name)
        spark.streams.removeListener(told)


class Ended:
    """The runs of queries that have ended, as reported by Spark."""

    def __init__(self) -> None:
        self._runs: set[str] = set()
        self._more = threading.Condition()

    def add(self, run: str) -> None:
        """Adds a run that has ended."""
        with self._more:
            self._runs.add(run)
            self._more.notify_all()

    def wait(self, runs: Iterable[str], limit_s: float) -> bool:
        """Waits until all of ``runs`` have ended; returns False on timeout."""
        wanted = set(runs)
        with self._more:
            return self._more.wait_for(lambda: wanted <= self._runs, limit_s)


def listener(
    name: str, reporter: Reporter, ended: Ended, written: "MutableMapping[int, Written]"
) -> "StreamingQueryListener":
    """Reports the batches of the query ``name`` to ``reporter``."""
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listening(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 -- Spark's name
            """Does nothing: the first batch is reported."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            """A batch has ended."""
            if event.progress.name == name and event.progress.numInputRows:
                became = written.pop(event.progress.batchId, None)
                reporter.report(read(event.progress, became))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
            """Does nothing: there were no new rows."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            """Passes the error to the thread that waits for the query."""
            ended.add(str(event.runId))

    return Listening()
