"""`decode`: decodes payloads of any DataFrame into typed columns."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from mqttcore._core import StreamDecoder
from mqttcore.errors import StreamOptionError
from mqttcore.spark.options import BY_TOPIC, Format, OnError
from mqttcore.streams.avro import read_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["decode"]

Batches = Iterator[pa.RecordBatch]


def decode(
    frame: DataFrame,
    schema: str,
    *,
    using: Format = "json",
    on_error: OnError = "null",
    descriptor: bytes | None = None,
    message: str | None = None,
    schemas: str | pathlib.Path | None = None,
) -> DataFrame:
    """Adds the typed columns of ``payload`` to the rows of a batch or a stream.

    Use it for rows that do not come from the source, for example from Kafka with `from_kafka`, or
    from a Delta table; the options ``decode`` and ``payloadSchema`` of the source do the same with
    less work. All columns pass through Python as Arrow, so drop unneeded columns first.

    Args:
        frame: Has ``payload BINARY``. ``sparkplug`` and ``auto`` look at ``topic``, and know the
            names of metrics only from a BIRTH before them in the same partition of Spark.
            ``on_error="fail"`` names ``partition`` and ``offset``. ``protobuf`` looks at
            ``retain`` if it is there: an empty payload is a message of defaults unless retained.
        schema: Names and types of the columns, as in ``"temperature DOUBLE, unit STRING"``.
        using: What payloads are written in.
        on_error: What becomes of a payload that does not fit: ``null`` columns and the payload in
            ``_corrupt``, ``drop`` the row, or ``fail``.
        descriptor: For ``protobuf``: a FileDescriptorSet, as ``protoc --include_imports
            --descriptor_set_out=FILE`` writes it.
        message: The full name of the message in it.
        schemas: For ``avro``: a folder on this machine with ``<number>.avsc`` for each schema.

    Raises:
        StreamOptionError: a type that payloads cannot be decoded to, a column that exists
            already or is missing.
        ValueError: the folder has no schemas, or something else.
    """
    if schemas is not None:
        descriptor = read_schemas(pathlib.Path(schemas))
    make = partial(
        StreamDecoder, using, schema, on_error=on_error, descriptor=descriptor, message=message
    )
    made = from_arrow_schema(pa.schema(make().schema))
    check(frame.schema, made, needed(using, on_error))
    whole = StructType([*frame.schema.fields, *made.fields])
    return frame.mapInArrow(decoding(make), whole)


def needed(using: str, on_error: str) -> list[str]:
    """The columns that a decoder needs."""
    topic = ["topic"] if using in BY_TOPIC else []
    place = ["partition", "offset"] if on_error == "fail" else []
    return ["payload", *topic, *place]


def check(have: StructType, made: StructType, wanted: list[str]) -> None:
    """Refuses options that would fail in the workers."""
    for name in wanted:
        if name not in have.names:
            raise StreamOptionError(f"decode: unknown column {name}; columns: {have.names}")
    if (kind := have["payload"].dataType.simpleString()) != "binary":
        raise StreamOptionError(f"decode: column payload is {kind}; cast it to binary")
    for name in made.names:
        if name.lower() in map(str.lower, have.names):
            raise StreamOptionError(f"decode: column {name} exists already")


def decoding(make: Callable[[], StreamDecoder]) -> Callable[[Batches], Batches]:
    """The function of a task; it pickles as its options, and the worker makes the decoder."""

    def decode_task(batches: Batches) -> Batches:
        decoder = make()
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield from map(pa.record_batch, decoder.decode(sink.getvalue().to_pybytes()))

    return decode_task
