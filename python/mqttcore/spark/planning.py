"""Resolves the options of a query to its columns, offsets and tasks."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from mqttcore._core import StreamOptions
from mqttcore.errors import StreamOptionError, StreamRangeError
from mqttcore.spark.offsets import check_epoch
from mqttcore.spark.options import BY_TOPIC, CORRUPT
from mqttcore.spark.planner import OffsetRange, plan, task_count
from mqttcore.spark.positions import AtOffsets, Position, resolve

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mqttcore.spark.folder import SealedFile
    from mqttcore.spark.log import State, StreamLog
    from mqttcore.spark.options import SourceOptions

__all__ = [
    "check_ends",
    "check_order",
    "not_before_earliest",
    "place_of",
    "reader_options",
    "remembers",
    "schema_of",
    "tasks_of",
    "tell_loss",
    "with_schema",
]

logger = logging.getLogger(__name__)
SPARKS_WORDS: Final = {
    "payload_schema": "payloadSchema",
    "on_error": "onError",
    "descriptor": "descriptorFile",
    "schemas": "schemasFolder",
}


def reader_options(
    options: SourceOptions, topic: str | None, *, aliases: str | None = None, tail: bool = False
) -> StreamOptions:
    """Options for the reader in Rust, which checks columns and types.

    ``aliases`` are those of Sparkplug that an earlier reader told. Typed columns of the stream
    itself are in its files, but not in its ``tail``, nor in files that are older than they are.

    Raises:
        StreamOptionError: a column, a type or a format that there is not.
    """
    told: dict[str, Any] = {"filter": topic, **decoding(options, aliases=aliases, tail=tail)}
    try:
        known = pa.schema(StreamOptions(**told).schema).names
    except StreamOptionError as error:
        raise StreamOptionError(in_sparks_words(str(error))) from error
    if options.typed is not None and options.decode == "none":
        # neither the stream nor its files have such a column
        known = [name for name in known if name != CORRUPT]
    for name in options.columns or ():
        if name not in known:
            raise StreamOptionError(
                f"option columns: {name} is not a column; allowed are {', '.join(known)}"
            )
    return StreamOptions(columns=options.columns or known, **told)


def remembers(options: SourceOptions, file: SealedFile) -> bool:
    """Whether decoding rows of a file depends on earlier rows."""
    typed = options.typed
    if options.decode != "none" or typed is None:
        return options.decode in BY_TOPIC
    return typed.decode in BY_TOPIC and typed.lacking(file.typed, options.columns)


def decoding(options: SourceOptions, *, aliases: str | None, tail: bool) -> dict[str, Any]:
    """Decoder options: those of the query, or those of the stream."""
    if options.decode != "none":
        return {
            "decode": options.decode,
            "payload_schema": options.payload_schema,
            "on_error": options.on_error,
            "aliases": aliases,
            "descriptor": options.descriptor or options.schemas,
            "message": options.message,
        }
    typed = options.typed
    if typed is None:
        return {}
    told = {"aliases": aliases, "descriptor": typed.descriptor, "message": typed.message}
    if not tail:
        return {**told, "typed": typed.ddl, "typed_decode": typed.decode}
    return {**told, "decode": typed.decode, "payload_schema": typed.ddl}


def in_sparks_words(text: str) -> str:
    """An error of the reader, with the name of the option in Spark."""
    for ours, theirs in SPARKS_WORDS.items():
        text = text.replace(f"option {ours}", f"option {theirs}")
    return text


def schema_of(options: SourceOptions) -> StructType:
    """The columns of a query, as the reader yields them."""
    return from_arrow_schema(pa.schema(reader_options(options, options.topic).schema))


def with_schema(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with ``columns`` as Spark's schema has them: a user may have given one.

    Raises:
        StreamOptionError: the user's schema has a column that there is not, or of another type.
    """
    known = {field.name: field.dataType for field in schema_of(options).fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            have = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise StreamOptionError(
                f"schema: {field.name} {field.dataType.simpleString()} is not a column of this"
                f" source, which has {have}. Option payloadSchema adds typed columns, option"
                f" columns selects some"
            )
    return dataclasses.replace(options, columns=tuple(schema.fieldNames()))


def place_of(option: str, position: Position, state: State, log: StreamLog) -> tuple[int, ...]:
    """The offsets of a position; errors name the option.

    Raises:
        StreamEpochError: the offsets are of another epoch of the stream.
        StreamOptionError: the partitions are not those of the stream.
    """
    if isinstance(position, AtOffsets) and position.epoch is not None:
        check_epoch(f"option {option}", position.epoch, stream=state.name, has=state.epoch)
    try:
        return resolve(position, earliest=state.earliest, end=state.end, at_time=log.offsets_at)
    except ValueError as error:
        raise StreamOptionError(f"option {option}: {error}") from error


def not_before_earliest(
    start: Sequence[int], state: State, options: SourceOptions
) -> tuple[int, ...]:
    """The first readable offsets, after rows that retention deleted; deleted rows are reported.

    Raises:
        StreamRangeError: there are such rows, and loss is not allowed.
    """
    for partition, (wanted, first) in enumerate(zip(start, state.earliest, strict=True)):
        if wanted >= first:
            continue
        lost = OffsetRange(partition, wanted, first)
        if options.fail_on_data_loss:
            raise StreamRangeError(
                f"{deleted(state.name, lost)}; with failOnDataLoss=false the query continues"
                f" after them and gets each row at most once"
            )
        tell_loss(state.name, lost)
    return tuple(max(pair) for pair in zip(start, state.earliest, strict=True))


def deleted(stream: str, lost: OffsetRange) -> str:
    """The rows that retention removed."""
    return (
        f"stream {stream}: partition {lost.partition}, offsets {lost.start} to {lost.end}"
        " (exclusive) are deleted"
    )


def tell_loss(stream: str, lost: OffsetRange) -> None:
    """Logs a warning about lost rows of a query that may lose rows."""
    logger.warning(
        "%s and were not read: with failOnDataLoss=false a query gets each row at most once",
        deleted(stream, lost),
    )


def check_order(start: Sequence[int], end: Sequence[int], state: State) -> None:
    """Refuses a range whose begin is after its end.

    Raises:
        StreamRangeError: there is one, and not because retention deleted what it had.
    """
    for partition, (first, last) in enumerate(zip(start, end, strict=True)):
        if first > last and first != state.earliest[partition]:
            raise StreamRangeError(
                f"stream {state.name}: partition {partition} begins at offset {first}, behind its"
                f" end, {last}: see options startingOffsets and endingOffsets"
            )


def check_ends(ranges: Sequence[OffsetRange], state: State) -> None:
    """Refuses offsets that do not exist yet."""
    for one in ranges:
        if one.end > state.end[one.partition]:
            raise StreamRangeError(
                f"stream {state.name}: partition {one.partition} ends at"
                f" {state.end[one.partition]}, offsets up to {one.end} were requested"
            )


def tasks_of(
    ranges: Sequence[OffsetRange], options: SourceOptions
) -> list[tuple[OffsetRange, ...]]:
    """Distributes ranges to tasks."""
    tasks = task_count(
        sum(one.rows for one in ranges),
        cores=len(os.sched_getaffinity(0)),
        min_partitions=options.min_partitions,
        max_rows_per_task=options.max_rows_per_task,
    )
    return plan(ranges, tasks)
