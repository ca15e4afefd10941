"""``spark.read.format("mqttcore")``: the data source that Spark finds by itself.

Its class name is part of every checkpoint and does not change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from mqttcore.errors import StreamOptionError, StreamRangeError
from mqttcore.spark.log import State, StreamLog, open_log
from mqttcore.spark.options import SourceOptions, parse_options
from mqttcore.spark.planner import Range, plan, ranges_between, task_count
from mqttcore.spark.positions import Position, resolve
from mqttcore.spark.pushdown import Narrowing, is_planned_with_filters
from mqttcore.spark.reading import RowReader, Task
from mqttcore.spark.schema import column_types, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "MqttcoreDataSource", "PushingBatchReader"]


class MqttcoreDataSource(DataSource):
    """Streams of an mqttcore broker as rows; `mqttcore.spark.options` lists the options."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)`` and behind ``USING``."""
        return "mqttcore"

    def schema(self) -> str:
        """The columns of these options."""
        return ddl(columns_of(parse_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what there is now."""
        options = with_schema(parse_options(self.options), schema)
        pushes = options.push_filters
        if pushes is None:
            pushes = is_planned_with_filters()
        return PushingBatchReader(options) if pushes else BatchReader(options)


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        if options.starting == "latest":
            raise StreamOptionError(
                "option startingOffsets = 'latest': a batch begins at earliest, offsets or a time"
            )
        self.options = options
        self.log = open_log(options)
        self.narrowing = Narrowing(topic=options.topic)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of this read."""
        state = self.log.state()
        ranges = self.ranges(state)
        tasks = tasks_of(ranges, self.options)
        return [Task(state.epoch, task) for task in tasks] or [Task(state.epoch, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        reader = RowReader(
            log=self.log, arguments=reader_arguments(self.options, self.narrowing.topic)
        )
        return reader.read(task_of(partition))

    def ranges(self, state: State) -> list[Range]:
        """What the options and the filters leave of the stream."""
        start = self.place("startingOffsets", self.options.starting or "earliest", state)
        end = self.place("endingOffsets", self.options.ending or "latest", state)
        start = not_before_earliest(start, state, self.options)
        narrowed = self.narrowed(start, end)
        check_ends(narrowed, state)
        return narrowed

    def place(self, option: str, position: Position, state: State) -> tuple[int, ...]:
        """Offsets of a position."""
        return place_of(option, position, state, self.log)

    def narrowed(self, start: Sequence[int], end: Sequence[int]) -> list[Range]:
        """Less what pushed filters leave out."""
        pushed = self.narrowing
        if pushed.nothing:
            return []
        if pushed.first_us is not None:
            start = [
                max(pair) for pair in zip(start, self.log.offsets_at(pushed.first_us), strict=True)
            ]
        if pushed.end_us is not None:
            end = [min(pair) for pair in zip(end, self.log.offsets_at(pushed.end_us), strict=True)]
        start = [max(first, pushed.first_offset) for first in start]
        if pushed.end_offset is not None:
            end = [min(last, pushed.end_offset) for last in end]
        return [
            one
            for one in ranges_between(start, end)
            if pushed.partitions is None or one.partition in pushed.partitions
        ]


class PushingBatchReader(BatchReader):
    """The same where Spark pushes filters down; elsewhere it refuses readers that could."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 -- Spark's name
        """Takes up what narrows offsets or topics; the rest is Spark's."""
        return self.narrowing.push(filters)


def columns_of(options: SourceOptions) -> dict[str, str]:
    """Names and types of the columns of a query."""
    corrupt = options.decode != "none" and options.on_error == "null"
    try:
        return column_types(columns=options.columns, fields=options.payload_schema, corrupt=corrupt)
    except ValueError as error:
        raise StreamOptionError(f"option columns: {error}") from error


def with_schema(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with ``columns`` as Spark's schema has them: a user may have given one.

    Raises:
        StreamOptionError: the user's schema has a column that there is not, or of another type.
    """
    known = columns_of(options)
    for field in schema.fields:
        have = known.get(field.name)
        if have is None or same_type(have) != same_type(field.dataType.simpleString()):
            raise StreamOptionError(
                f"schema: {field.name} {field.dataType.simpleString()} is no column of this source;"
                f" it has {ddl(known)}. Option payloadSchema adds typed ones, option columns leaves"
                " some out"
            )
    import dataclasses

    return dataclasses.replace(options, columns=tuple(schema.fieldNames()))


def same_type(text: str) -> str:
    """A type in one spelling."""
    return text.lower().replace(" ", "")


def reader_arguments(options: SourceOptions, topic: str) -> dict[str, Any]:
    """What the reader in Rust is told."""
    return {"columns": list(options.columns or ())}


def place_of(option: str, position: Position, state: State, log: StreamLog) -> tuple[int, ...]:
    """Offsets of a position; what is wrong with it is said with the option's name."""
    try:
        return resolve(position, earliest=state.earliest, end=state.end, at_time=log.offsets_at)
    except ValueError as error:
        raise StreamOptionError(f"option {option}: {error}") from error


def not_before_earliest(
    start: Sequence[int], state: State, options: SourceOptions
) -> tuple[int, ...]:
    """Where reading can begin; rows that retention deleted are an error unless loss is allowed."""
    if options.fail_on_data_loss:
        for partition, (wanted, first) in enumerate(zip(start, state.earliest, strict=True)):
            if wanted < first:
                raise StreamRangeError(
                    f"stream {state.name}: partition {partition}, offsets {wanted} to {first}"
                    " (exclusive) are deleted; failOnDataLoss=false goes on behind them"
                )
    return tuple(max(pair) for pair in zip(start, state.earliest, strict=True))


def check_ends(ranges: Sequence[Range], state: State) -> None:
    """Refuses what is not there yet."""
    for one in ranges:
        if one.end > state.end[one.partition]:
            raise StreamRangeError(
                f"stream {state.name}: partition {one.partition} ends at"
                f" {state.end[one.partition]}, offsets up to {one.end} were asked for"
            )


def tasks_of(ranges: Sequence[Range], options: SourceOptions) -> list[tuple[Range, ...]]:
    """Deals ranges to tasks."""
    tasks = task_count(
        sum(one.rows for one in ranges),
        cores=len(os.sched_getaffinity(0)),
        min_partitions=options.min_partitions,
        max_rows_per_task=options.max_rows_per_task,
    )
    return plan(ranges, tasks)


def task_of(partition: InputPartition) -> Task:
    """What `partitions` made, back from Spark."""
    if not isinstance(partition, Task):
        raise TypeError(f"{partition!r} was not made by this source")
    return partition
