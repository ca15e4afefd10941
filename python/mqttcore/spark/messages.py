"""Prepares a DataFrame for publishing: columns are checked and cast, without work per row."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqttcore._core import TopicFilter
from mqttcore.errors import StreamOptionError
from mqttcore.spark.feedback import Guard

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mqttcore.spark.sink_options import SinkOptions

__all__ = ["Form", "RowPlace", "ipc", "rows_of"]

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
COLUMNS: Final = {
    "topic": (("string",), pa.string()),
    "payload": (("binary", "string"), pa.binary()),
    "qos": (INTEGERS, pa.int64()),
    "retain": (("boolean",), pa.bool_()),
    "content_type": (("string",), pa.string()),
    "response_topic": (("string",), pa.string()),
    "correlation_data": (("binary",), pa.binary()),
    "expiry": (INTEGERS, pa.int64()),
    "user_properties": (
        ("array<struct<key:string,value:string>>", "map<string,string>"),
        PAIRS,
    ),
}
"""Allowed Spark types of each column, and the type that the broker gets."""
PIECE_BYTES: Final = 4 << 20
"""Bytes of one batch on the wire; a larger message is a batch of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """The attempt and the task that rows belong to."""

    query: str
    """Name under which batches are counted."""
    batch: int
    partition: int
    attempt: int


class Form:
    """Converts Arrow batches of Spark to batches of messages. It pickles."""

    def __init__(self, options: SinkOptions, schema: StructType, guard: Guard) -> None:
        """Checks the columns.

        Raises:
            StreamOptionError: one is missing, unknown, of another type, or an option as well.
        """
        self.constants = options.constants()
        self.guard = guard
        self.prefix = options.prefix
        check_columns({field.name: field.dataType.simpleString() for field in schema})
        for name in self.constants:
            if name in schema.fieldNames():
                raise StreamOptionError(f"option {name} and column {name} exclude each other")
        for name in ("topic", "payload"):
            if name not in schema.fieldNames() and name not in self.constants:
                also = ", or option topic" if name == "topic" else ""
                raise StreamOptionError(f"column {name} is missing{also}")
        names = [*schema.fieldNames(), *self.constants]
        self.schema = pa.schema([(name, COLUMNS[name][1]) for name in names])

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of ``batches``, in batches of at most `PIECE_BYTES`; none of them is empty.

        Raises:
            LoopError: the query reads the topic of a row.
            StreamOptionError: a topic is not below option prefix.
        """
        for batch in batches:
            columns = [cast(batch[name], COLUMNS[name][1]) for name in batch.schema.names]
            columns += [
                pa.repeat(pa.scalar(value, COLUMNS[name][1]), batch.num_rows)
                for name, value in self.constants.items()
            ]
            formed = pa.record_batch(columns, schema=self.schema)
            self.check_topics(formed)
            yield from pieces(formed)

    def check_topics(self, batch: pa.RecordBatch) -> None:
        """Checks each topic once."""
        if not self.guard.reads and self.prefix is None:
            return
        topics = pc.unique(batch["topic"]).to_pylist()
        self.guard.check(topics)
        if self.prefix is None:
            return
        below = TopicFilter(f"{self.prefix}/#")
        for topic in topics:
            if topic is not None and not below.matches(topic):
                raise StreamOptionError(f"topic {topic!r} is not below option prefix {self.prefix}")


def check_columns(found: dict[str, str]) -> None:
    """Refuses columns that are unknown or of a wrong type."""
    for name, kind in found.items():
        if name not in COLUMNS:
            raise StreamOptionError(
                f"column {name} is not a column of messages; allowed are {', '.join(COLUMNS)}:"
                " select those"
            )
        if kind not in COLUMNS[name][0]:
            allowed = " or ".join(COLUMNS[name][0])
            raise StreamOptionError(f"column {name} is {kind}; allowed is {allowed}")


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts a column to the type of the broker."""
    if pa.types.is_map(column.type):
        values = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    return column.cast(kind)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divides a batch into halves, until each is small enough or has one row."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or batch.nbytes <= PIECE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half))
    yield from pieces(batch.slice(half))


def ipc(part: Sequence[pa.RecordBatch]) -> Iterator[bytes]:
    """Batches as an Arrow IPC stream, one chunk for each batch."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, part[0].schema) as writer:
        for batch in part:
            writer.write_batch(batch)
            yield taken(out)
    yield taken(out)


def taken(out: io.BytesIO) -> bytes:
    """Returns the output since the last call."""
    written = out.getvalue()
    out.seek(0)
    out.truncate()
    return written


def rows_of(rows: Iterable[Any], schema: StructType, size: int) -> Iterator[pa.RecordBatch]:
    """Makes batches from Spark's row objects, for versions of Spark that pass nothing else."""
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = to_arrow_schema(schema)
    rest = iter(rows)
    while taken := list(itertools.islice(rest, size)):
        columns = zip(*taken, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.types, strict=True)]
        yield pa.record_batch(arrays, schema=kinds)
