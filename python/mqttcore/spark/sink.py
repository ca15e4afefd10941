"""``df.write`` and ``df.writeStream.format("mqttcore")``: rows become messages.

To an mqttcore broker exactly once: each attempt of a task stages its rows under a random name, the
driver's commit names those that count under (query, batch), and a commit that comes again changes
nothing. To any other broker at least once, `mqttcore.spark.mqtt`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mqttcore.errors import StreamOptionError
from mqttcore.spark.messages import RowPlace, rows_of
from mqttcore.spark.mqtt import Foreign
from mqttcore.spark.staging import BrokerAddress
from mqttcore.spark.workers import spare_collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import Row, StructType

    from mqttcore.spark.sink_options import SinkOptions

try:
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
    TAKES_ARROW = True
except AttributeError:  # Spark 4.0 hands each row of a stream over as an object
    StreamArrowWriter = datasource.DataSourceStreamWriter  # type: ignore[misc,assignment]  # as said
    TAKES_ARROW = False

__all__ = ["BatchSink", "StreamSink"]

logger = logging.getLogger(__name__)
ROWS_A_BATCH = 10_000
"""Maximum rows of a batch that is made from row objects."""


class Target(Protocol):
    """The target of messages."""

    def send(self, batches: Iterable[pa.RecordBatch], place: RowPlace) -> WriterCommitMessage:
        """Runs in a task: sends its messages."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver when all tasks are done."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver after the last retry of a task has failed."""


def target_of(
    options: SinkOptions, schema: StructType, *, overwrite: bool, is_first: bool = False
) -> Target:
    """Makes the target of the options; checks everything that can be checked without rows.

    ``is_first``: the broker was not used before, so it does not wait for a broker that does not
    answer.

    Raises:
        StreamOptionError: columns and options do not go together.
        LoopError: the query would feed itself.
        EndpointError: the broker does not answer, or refuses to say what its streams take in.
    """
    if overwrite != (options.prefix is not None):
        raise StreamOptionError(
            'mode("overwrite") and output mode complete replace the retained messages below option'
            " prefix: set it, or append"
            if overwrite
            else 'option prefix is for mode("overwrite")'
        )
    if overwrite and options.retain is not True:
        raise StreamOptionError('mode("overwrite") needs option retain = true')
    if options.broker is None:
        return BrokerAddress(options, schema, is_first=is_first)
    return Foreign(options, schema)


class BatchSink(DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self.target = target_of(options, schema, overwrite=overwrite, is_first=True)
        self.query = options.app_id or f"batch-{uuid.uuid4().hex}"
        self.number = options.version or 0

    def write(self, iterator: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        spare_collector()
        task = task_context()
        place = RowPlace(
            query=self.query,
            batch=self.number,
            partition=task.partitionId(),
            attempt=task.attemptNumber(),
        )
        return self.target.send(iterator, place)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes."""
        self.target.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Gives up."""
        self.target.abort(messages)


class StreamSink(StreamArrowWriter):
    """The batches of a query. Spark makes one for each batch, and another one for its commit."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if not TAKES_ARROW:
            logger.warning("Spark 4.0 passes streams row by row: 4.1 is several times faster")
        if options.app_id is not None:
            raise StreamOptionError("options txnAppId and txnVersion are for batches")
        self.schema = schema
        self.target = target_of(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterable[pa.RecordBatch] | Iterable[Row]) -> WriterCommitMessage:
        """Runs in a task."""
        spare_collector()
        task = task_context()
        place = RowPlace(
            query=str(task.getLocalProperty("sql.streaming.queryId")),
            batch=int(task.getLocalProperty("streaming.sql.batchId") or 0),
            partition=task.partitionId(),
            attempt=task.attemptNumber(),
        )
        batches: Iterable[Any] = iterator
        if not TAKES_ARROW:
            batches = rows_of(iterator, self.schema, ROWS_A_BATCH)
        return self.target.send(batches, place)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        """Publishes; the messages know their batch."""
        self.target.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        """Gives up."""
        self.target.abort(messages)


def task_context() -> TaskContext:
    """The current task."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a sink can write only in tasks of Spark")
    return context
