"""Runs the query of a pipeline; each batch is written to its tables exactly once."""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from mqttcore.errors import EndpointError, PipelineError
from mqttcore.pipeline.batches import BatchWriter, Written
from mqttcore.pipeline.config import Pipeline
from mqttcore.pipeline.definitions import definition_of
from mqttcore.pipeline.files import locked
from mqttcore.pipeline.locations import Location
from mqttcore.pipeline.parquet_table import ParquetTable
from mqttcore.pipeline.progress import Reporter, telling
from mqttcore.pipeline.stages import messages, stream_log, tables
from mqttcore.pipeline.supervisor import Restarts, may_pass, retried
from mqttcore.pipeline.tables import Batch, DeltaTable, PipelineTable
from mqttcore.spark.checkpoint import done_offsets, read_offsets
from mqttcore.spark.offsets import UNRESOLVED, SourceOffset, split_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Runner", "open_table"]

logger = logging.getLogger(__name__)

# How long the query is waited for at once.
LOOK_S = 1
# How long the running batch may take when the query is to end; it comes again otherwise.
LAST_BATCH_S = 30
PAUSE_S = 0.02
# After so many batches the files of the tables are made fewer.
TIDY_BATCHES = 100


def open_table(pipeline: Pipeline, name: str) -> PipelineTable:
    """A table of a pipeline; it need not exist."""
    place, definition = pipeline.table(name), definition_of(pipeline, name)
    if pipeline.format == "parquet":
        return ParquetTable(place.path, definition=definition)
    return DeltaTable(place, partitioned=name == "bronze", definition=definition)


class Runner:
    """The query of one pipeline.

    A second runner of the same checkpoint is refused, in this process or another.
    """

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, reporter: Reporter | None = None
    ) -> None:
        """Plans the query, does not start it. ``reporter`` gets every batch before `stop` returns.

        Raises:
            PipelineError: an expression does not fit the columns.
        """
        self.pipeline = pipeline
        self._restarts = Restarts()
        self._is_over = threading.Event()
        self._rows, self._made = retried(
            partial(planned, spark, pipeline), pipeline.name, self._restarts, self._is_over
        )
        self.queries: list[StreamingQuery] = []
        """All runs of the query, the latest one last."""
        self._spark = spark
        self._reporter = reporter
        self._folder = pipeline.checkpoint()
        self._checkpoint = self._folder / "query"
        log = retried(partial(stream_log, pipeline), pipeline.name, self._restarts, self._is_over)
        self._writer = BatchWriter(pipeline, partial(open_table, pipeline), log)
        self._written: dict[int, Written] = {}
        self._open = contextlib.ExitStack()
        self._open.callback(log.close)
        self._is_once = False

    def start(self, *, once: bool = False) -> None:
        """Starts the query; with ``once`` it ends when it has read all present rows.

        Raises:
            PipelineError: another process runs on this checkpoint, the tables have changed or
                cannot be read, or the query does not start.
        """
        self._is_once = once
        busy = "another pipeline uses this folder; stop it first"
        if not self._folder.is_remote:
            # tables of an object store refuse a second writer themselves: see ADR 0061
            self._open.enter_context(locked(self._folder.path, busy))
        adopt = partial(self._writer.adopt, self._made)
        retried(adopt, self.pipeline.name, self._restarts, self._is_over)
        self._open.callback(self._tell_hold)
        if self._reporter is not None:
            name = self.pipeline.name
            told = telling(self._spark, name, self._reporter, self.queries, self._written)
            self._open.enter_context(told)
        self._start()

    def wait(self) -> None:
        """Returns when the query has ended, `end` was called, or it has failed permanently.

        After a transient failure, the query starts again at its checkpoint, within a budget.

        Raises:
            PipelineError: what the query failed with.
        """
        try:
            while self.queries and not self._is_over.is_set():
                if self._has_ended():
                    return
        finally:
            self.stop()

    def end(self) -> None:
        """Makes `wait` return soon; for signal handlers and other threads."""
        self._is_over.set()

    def stop(self) -> None:
        """Stops the query, if possible between two batches.

        The hold is updated then, since Spark reports a batch to the source only when it plans the
        next one, and never reports the last batch.
        """
        deadline = time.monotonic() + LAST_BATCH_S
        for query in self.queries[-1:]:
            while is_at_work(query) and time.monotonic() < deadline:
                time.sleep(PAUSE_S)  # Spark tells nobody when a batch ends
            query.stop()
        self._open.close()

    def _has_ended(self) -> bool:
        """Whether the query has read everything; a query that failed is started again."""
        from pyspark.errors import StreamingQueryException

        try:
            return bool(self.queries[-1].awaitTermination(LOOK_S))
        except StreamingQueryException as error:
            wait_s = self._restarts.take(self.pipeline.name, error)
        if not self._is_over.wait(wait_s):
            self._start()
        return False

    def _start(self) -> None:
        """Starts the query; if that fails, repeats it until the pipeline has to end."""
        try:
            query = retried(self._started, self.pipeline.name, self._restarts, self._is_over)
        except Exception as error:
            if self._is_over.is_set() and may_pass(error):
                return
            raise
        self.queries.append(query)

    def _started(self) -> "StreamingQuery":
        writer = self._rows.writeStream.queryName(self.pipeline.name).outputMode("append")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if self._is_once or self.pipeline.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        return writer.foreachBatch(self._write).start()

    def _tell_hold(self) -> None:
        """Updates the hold: the broker keeps all rows after the last completed batch."""
        stream = self.pipeline.source.stream
        with self.pipeline.source.client() as broker:
            try:
                epoch = broker.stream(stream).epoch
                for done in done_ends(self._checkpoint, epoch):
                    broker.hold(stream, self.pipeline.name, done)
            except EndpointError as error:
                # the first batch of the next run reports it
                logger.warning("query %s: cannot place a hold: %s", self.pipeline.name, error)

    def _write(self, rows: "DataFrame", number: int) -> None:
        batch = read_batch(self.pipeline.name, self._checkpoint, number)
        written = self._writer.write(rows, batch)
        if self._reporter is not None:
            self._written[number] = written
        if number % TIDY_BATCHES == TIDY_BATCHES - 1:
            self._writer.tidy()


def planned(spark: "SparkSession", pipeline: Pipeline) -> "tuple[DataFrame, dict[str, DataFrame]]":
    """The stream of a pipeline, and the tables that its expressions make from it.

    Raises:
        PipelineError: an expression does not fit the columns.
    """
    rows = messages(spark, pipeline)
    return rows, tables(rows, pipeline)


def is_at_work(query: "StreamingQuery") -> bool:
    """Whether a batch is running."""
    return query.isActive and bool(query.status["isTriggerActive"])


def read_batch(name: str, checkpoint: Location, number: int) -> Batch:
    """The plan of a batch, which Spark stored before it ran the batch."""
    query = json.loads(checkpoint.read_text("metadata"))["id"]
    planned = read_offset(checkpoint, number)
    before = read_offset(checkpoint, number - 1) if number else UNRESOLVED
    end, starts = split_start(before, planned)
    return Batch(name=name, query=query, number=number, starts=starts, ends=end.ends)


def read_offset(checkpoint: Location, number: int) -> dict[str, Any]:
    """The source's end offset of a batch."""
    try:
        offset: dict[str, Any] = read_offsets(checkpoint, number)[0]
    except ValueError as error:
        raise PipelineError(str(error)) from error
    return offset


def done_ends(checkpoint: Location, epoch: str) -> Iterator[tuple[int, ...]]:
    """The offsets at which a query continues, if they are known and of this epoch of the stream."""
    for value in done_offsets(checkpoint):
        offset = SourceOffset.parse(value)
        if offset is not None and offset.epoch == epoch:
            yield offset.ends
