"""Runs the queries of a pipeline; each batch is written to its tables exactly once."""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttcore.errors import EndpointError, PipelineError
from mqttcore.pipeline.alerts import AlertPublisher
from mqttcore.pipeline.config import Pipeline
from mqttcore.pipeline.files import locked
from mqttcore.pipeline.progress import Reporter, telling
from mqttcore.pipeline.stages import Output, Stage, stages
from mqttcore.pipeline.supervisor import Restarts, may_pass, retried, wait_until_planned
from mqttcore.pipeline.tables import Batch, DeltaTable, ParquetTable, PipelineTable
from mqttcore.spark.checkpoint import done_offsets, read_offsets
from mqttcore.spark.offsets import UNRESOLVED, SourceOffset, split_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Runner"]

logger = logging.getLogger(__name__)

# How long one query is waited for before the next is looked at: one that failed ends the others.
LOOK_S = 1
# How long the batch under way may take when the queries are to end; it comes again otherwise.
LAST_BATCH_S = 30
PAUSE_S = 0.02
# After so many batches the files of a table are made fewer.
TIDY_BATCHES = 100


class Runner:
    """The queries of one pipeline, from `start` on.

    A second runner of the same checkpoints is refused, in this process or another.
    """

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, reporter: Reporter | None = None
    ) -> None:
        """Plans the queries, starts none. ``reporter`` gets every batch before `stop` returns.

        Raises:
            PipelineError: an expression does not fit the columns.
        """
        self.pipeline = pipeline
        self._restarts = Restarts()
        # when each query that failed starts again, by its place in `queries`
        self._due: dict[int, float] = {}
        self._is_over = threading.Event()
        plan = partial(stages, spark, pipeline)
        self.stages = retried(plan, pipeline.name, self._restarts, self._is_over)
        self.queries: list[StreamingQuery] = []
        self._spark = spark
        self._reporter = reporter
        self._checkpoints = pipeline.checkpoints or pipeline.tables / "_checkpoints"
        self._alerts = AlertPublisher(pipeline.source)
        self._open = contextlib.ExitStack()
        self._is_once = False

    def table(self, output: Output) -> PipelineTable:
        """The table that an output goes to."""
        path = self.pipeline.tables / output.table
        if self.pipeline.format == "parquet":
            return ParquetTable(path)
        return DeltaTable(path, partitioned=output.by_day)

    def start(self, *, once: bool = False) -> None:
        """Starts every query; with ``once`` they end when they have read what there is now.

        The next one starts when the first batch of the last one is planned.

        Raises:
            PipelineError: another process runs on these checkpoints, or a query does not start.
        """
        self._is_once = once
        busy = "another pipeline uses this folder; stop it first"
        self._open.enter_context(locked(self._checkpoints, busy))
        self._open.callback(self._tell_holds)
        if self._reporter is not None:
            told = telling(self._spark, f"{self.pipeline.name}.", self._reporter, self.queries)
            self._open.enter_context(told)
        for stage in self.stages:
            query = None if self._is_over.is_set() else self._start(stage)
            if query is None:
                break
            self.queries.append(query)
            wait_until_planned(query, self._is_over.is_set)

    def wait(self) -> None:
        """Returns when all queries have ended, `end` was called, or one has failed for good.

        Those that run still are stopped then. A query that fails for a reason that may pass starts
        again where it was, within a budget.

        Raises:
            PipelineError: what a query failed with.
        """
        running = list(range(len(self.queries)))
        try:
            while running and not self._is_over.is_set():
                running = [place for place in running if not self._has_ended(place)]
        finally:
            self.stop()

    def end(self) -> None:
        """Has `wait` return soon; for signal handlers and other threads."""
        self._is_over.set()

    def stop(self) -> None:
        """Stops what runs still, each query between two batches if that comes soon.

        The broker hears then how far each query is: Spark tells the source of a batch when it
        plans the next one, and of the last batch never.
        """
        deadline = time.monotonic() + LAST_BATCH_S
        for query in self.queries:
            while is_at_work(query) and time.monotonic() < deadline:
                time.sleep(PAUSE_S)  # Spark tells nobody when a batch ends
            query.stop()
        self._open.close()

    def _has_ended(self, place: int) -> bool:
        """Whether a query has read all that it should; one that failed starts again when due."""
        from pyspark.errors import StreamingQueryException

        if place in self._due:
            self._start_when_due(place)
            return False
        try:
            return bool(self.queries[place].awaitTermination(LOOK_S))
        except StreamingQueryException as error:
            self._put_off(place, error)
            return False

    def _start_when_due(self, place: int) -> None:
        """Starts a query that failed, or waits a moment: the others are looked at meanwhile."""
        left_s = self._due[place] - time.monotonic()
        if self._is_over.wait(min(max(left_s, 0), LOOK_S)) or left_s > 0:
            return
        try:
            # in its place: the reporter waits for the queries of this list
            self.queries[place] = self._started(self.stages[place])
        except Exception as error:
            if not may_pass(error):
                raise
            self._put_off(place, error)
        else:
            del self._due[place]

    def _put_off(self, place: int, error: BaseException) -> None:
        wait_s = self._restarts.take(self._name(self.stages[place]), error)
        self._due[place] = time.monotonic() + wait_s

    def _start(self, stage: Stage) -> "StreamingQuery | None":
        """A query of this stage; None if it failed to start until the pipeline was to end."""
        make, name = partial(self._started, stage), self._name(stage)
        try:
            return retried(make, name, self._restarts, self._is_over)
        except Exception as error:
            if self._is_over.is_set() and may_pass(error):
                return None
            raise

    def _started(self, stage: Stage) -> "StreamingQuery":
        folder = self._checkpoints / stage.name
        writer = stage.rows.writeStream.queryName(self._name(stage))
        writer = writer.option("checkpointLocation", str(folder)).outputMode("append")
        if self._is_once or self.pipeline.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        return writer.foreachBatch(partial(self._write, stage, folder)).start()

    def _tell_holds(self) -> None:
        """Has the broker keep what no batch that is done with has read, and no more."""
        stream = self.pipeline.source.stream
        with self.pipeline.source.client() as broker:
            try:
                epoch = broker.stream(stream).epoch
                for stage in self.stages:
                    for done in done_ends(self._checkpoints / stage.name, epoch):
                        broker.hold(stream, self._name(stage), done)
            except EndpointError as error:
                # the first batch of the next run reports it
                logger.warning("query %s: cannot place a hold: %s", self.pipeline.name, error)

    def _name(self, stage: Stage) -> str:
        return f"{self.pipeline.name}.{stage.name}"

    def _write(self, stage: Stage, folder: Path, rows: "DataFrame", number: int) -> None:
        batch = read_batch(self._name(stage), folder, number)
        is_full = number % TIDY_BATCHES == TIDY_BATCHES - 1
        is_read_again = len(stage.outputs) > 1 or any(output.alerts for output in stage.outputs)
        if is_read_again:
            rows = rows.persist()
        try:
            for output in stage.outputs:
                table = self.table(output)
                table.append(output.select(rows), batch)
                if output.alerts:
                    # also for a batch that the table has: the process may have died in between
                    self._alerts.publish(output.select(rows), output.alerts, batch)
                if is_full:
                    table.tidy()
        finally:
            if is_read_again:
                rows.unpersist()


def is_at_work(query: "StreamingQuery") -> bool:
    """Whether a batch is running."""
    return query.isActive and bool(query.status["isTriggerActive"])


def read_batch(name: str, checkpoint: Path, number: int) -> Batch:
    """What Spark planned for a batch, as it noted before the batch ran."""
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    planned = read_offset(checkpoint, number)
    before = read_offset(checkpoint, number - 1) if number else UNRESOLVED
    end, starts = split_start(before, planned)
    return Batch(name=name, query=query, number=number, starts=starts, ends=end.ends)


def read_offset(checkpoint: Path, number: int) -> dict[str, Any]:
    """The source's offset behind a batch."""
    try:
        offset: dict[str, Any] = read_offsets(checkpoint, number)[0]
    except ValueError as error:
        raise PipelineError(str(error)) from error
    return offset


def done_ends(checkpoint: Path, epoch: str) -> Iterator[tuple[int, ...]]:
    """The offsets at which a query continues, if they are known and of this epoch of the stream."""
    for value in done_offsets(checkpoint):
        offset = SourceOffset.parse(value)
        if offset is not None and offset.epoch == epoch:
            yield offset.ends
