"""``spark.read.format("mqttcore")``: the batch data source.

Its class name is part of every checkpoint and does not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from mqttcore.errors import StreamOptionError
from mqttcore.spark.log import State, open_log
from mqttcore.spark.options import SourceOptions, parse_options
from mqttcore.spark.planner import OffsetRange, ranges_between
from mqttcore.spark.planning import (
    check_ends,
    check_order,
    not_before_earliest,
    place_of,
    schema_of,
    tasks_of,
    with_schema,
)
from mqttcore.spark.positions import Position
from mqttcore.spark.pushdown import Narrowing, is_planned_with_filters
from mqttcore.spark.reading import RowReader, tasks_for
from mqttcore.spark.sink_options import parse_sink_options
from mqttcore.spark.streaming import MqttcoreStreamReader
from mqttcore.spark.workers import spare_collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "MqttcoreDataSource", "PushingBatchReader"]


class MqttcoreDataSource(DataSource):
    """Streams of an mqttcore broker as rows, and rows as messages.

    `mqttcore.spark.options` lists the options of reading, `mqttcore.spark.sink_options` those of
    writing.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)`` and ``USING``."""
        return "mqttcore"

    def schema(self) -> StructType:
        """The columns of these options, and the typed columns of the stream."""
        return schema_of(self.parsed())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Makes a reader of the present rows."""
        options = with_schema(self.parsed(), schema)
        pushes = options.push_filters
        if pushes is None:
            pushes = is_planned_with_filters()
        return PushingBatchReader(options) if pushes else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Makes a reader of new rows, batch after batch."""
        return MqttcoreStreamReader(with_schema(self.parsed(), schema))

    def parsed(self) -> SourceOptions:
        """The options, and the stream that they name."""
        options = parse_options(self.options)
        log = open_log(options)
        try:
            return dataclasses.replace(options, typed=log.typed())
        finally:
            log.close()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Makes a writer that publishes all rows or none."""
        from mqttcore.spark.sink import BatchSink

        return BatchSink(parse_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Makes a writer that publishes all rows of a batch or none."""
        from mqttcore.spark.sink import StreamSink

        return StreamSink(parse_sink_options(self.options), schema, overwrite=overwrite)


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
        try:
            state = self.log.state()
            return tasks_for(state, tasks_of(self.ranges(state), self.options), self.log)
        finally:
            self.log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        spare_collector()
        rows = RowReader(log=self.log, options=self.options, topic=self.narrowing.topic)
        try:
            yield from rows.read(partition)
        finally:
            self.log.close()

    def ranges(self, state: State) -> list[OffsetRange]:
        """The ranges after the options and the filters are applied."""
        start = self.place("startingOffsets", self.options.starting or "earliest", state)
        end = self.place("endingOffsets", self.options.ending or "latest", state)
        check_order(start, end, state)
        start = not_before_earliest(start, state, self.options)
        narrowed = self.narrowed(start, end)
        check_ends(narrowed, state)
        return narrowed

    def place(self, option: str, position: Position, state: State) -> tuple[int, ...]:
        """Offsets of a position."""
        return place_of(option, position, state, self.log)

    def narrowed(self, start: Sequence[int], end: Sequence[int]) -> list[OffsetRange]:
        """The ranges without the rows that pushed filters exclude."""
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
    """A `BatchReader` with filter pushdown, for settings in which Spark accepts one."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 -- Spark's name
        """Applies filters of offsets or topics; the others are left to Spark."""
        return self.narrowing.push(filters)
