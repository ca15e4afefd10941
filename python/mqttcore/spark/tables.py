"""Whole streams as DataFrames: sealed files, then the tail."""

from __future__ import annotations

import dataclasses
import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as sql

from mqttcore.errors import StreamFileError, StreamOptionError
from mqttcore.spark.folder import FileMovedError
from mqttcore.spark.kafka import from_kafka
from mqttcore.spark.log import State, StreamLog, open_log
from mqttcore.spark.native import by_spark, native_schemes, scheme_of
from mqttcore.spark.offsets import SourceOffset
from mqttcore.spark.options import SourceOptions, parse_options
from mqttcore.spark.planner import OffsetRange, ranges_between
from mqttcore.spark.planning import check_ends, place_of, reader_options, schema_of
from mqttcore.spark.positions import parse_position
from mqttcore.spark.reading import TRIES, RowReader, tasks_for
from mqttcore.spark.retry import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqttcore.spark.folder import SealedFile, SealedIndex

__all__ = ["Retained", "read", "read_stream", "retained", "retained_stream"]

AT_HAND: Final = 100_000
"""Rows of a tail that are sent with the plan: for so few rows, a Python task costs more. Their
bytes are limited, too: a broker seals its tail before it exceeds its memory."""
ROWS_A_TASK: Final = 50_000
OF_READ: Final = frozenset({"path", "endpoint", "token", "ca", "files", "topic", "columns"})


def read(spark: SparkSession, stream: str | None = None, **options: object) -> DataFrame:
    """The rows of a stream, each once, as a batch DataFrame.

    Spark itself reads the sealed rows, from exactly the files that contain them. The source reads
    the tail (at once if it is short), and files that are older than a typed column of the stream.
    If this machine does not see the files, the source reads everything. Options are ``path``,
    ``endpoint``, ``token``, ``files``, ``topic`` and ``columns``, as for the source.

    Raises:
        StreamFolderError: there is no such stream.
        StreamOptionError: an option cannot be used, or not here.
        StreamFileError: files of the stream are missing.
    """
    others = sorted(set(options) - OF_READ)
    if others:
        raise StreamOptionError(
            f"option {others[0]}: read() has {', '.join(sorted(OF_READ))};"
            ' spark.read.format("mqttcore") has them all'
        )
    parsed = parse_options(texts(options, stream))
    log = open_log(parsed)
    try:
        full = dataclasses.replace(parsed, typed=log.typed())
        return with_new_index(lambda: whole(spark, log, full), what=f"stream {log.name}")
    finally:
        log.close()


def with_new_index(make: Callable[[], DataFrame], *, what: str) -> DataFrame:
    """Calls ``make``, again if files were merged or deleted since it read the index.

    Raises:
        StreamFileError: files of the index are missing each time.
    """
    tries = 0
    while True:
        try:
            return make()
        except FileMovedError as error:
            tries += 1
            if tries > TRIES:
                raise StreamFileError(f"{what}: {error}") from error
            pause(0.025 * 2**tries)


def read_stream(spark: SparkSession, url: str, **options: object) -> DataFrame:
    """A streaming DataFrame with the columns of a stream, wherever it is stored.

    ``mqttcore:///data/folder?stream=plant`` and ``http://broker:8884?stream=plant`` are a broker of
    mqttcore, ``kafka://host:9092/topic`` is a Kafka topic that a broker writes (needs Spark's Kafka
    connector), ``delta:///table`` a Delta table with these columns (needs Delta's jar). Options go
    to the source. Keywords override options in the URL; the place of the stream is always that of
    the URL.

    Raises:
        StreamOptionError: the URL is none of these.
    """
    parsed = urllib.parse.urlsplit(url)
    place = READERS.get(parsed.scheme)
    if place is None:
        raise StreamOptionError(
            f"{url!r}: allowed are {', '.join(f'{scheme}://' for scheme in sorted(READERS))}"
        )
    given: dict[str, str] = dict(urllib.parse.parse_qsl(parsed.query))
    return place(spark, parsed, {**given, **texts(options, None)})


@dataclass(frozen=True, slots=True)
class Retained:
    """The retained messages of a stream's topics at an exact position."""

    frame: DataFrame
    """One row for each topic, with the columns of the stream."""
    offsets: str
    """``startingOffsets`` of a query that reads everything after it, each row once."""


def retained(
    spark: SparkSession, stream: str | None = None, *, at: str = "latest", **options: object
) -> Retained:
    """The last retained message of each topic, computed from the stream.

    ``at`` is a position as in ``endingOffsets``. An empty retained message deletes, as in the
    broker. Messages that were retained before the stream began, or were deleted since, are not
    included.

    Raises:
        StreamRangeError: the position is not in the stream.
    """
    given = texts(options, stream)
    parsed = parse_options(given)
    log = open_log(parsed)
    try:
        state = log.state()
        end = place_of("at", parse_position(at), state, log)
        check_ends(ranges_between((0,) * len(end), end), state)
    finally:
        log.close()
    place = place_text(end, state.epoch)
    frame = spark.read.format("mqttcore").options(**{**given, "endingOffsets": place}).load()
    return Retained(newest(frame).where("length(payload) > 0"), place)


def retained_stream(spark: SparkSession, url: str, **options: object) -> DataFrame:
    """The last retained message of each topic as a streaming DataFrame, for output mode ``update``.

    Each batch has the changed topics, with the columns of the stream; an empty payload means that
    the message was deleted. Options are those of `read_stream`; a query that begins with
    ``startingOffsets = retained(...).offsets`` continues from that table. The state has one message
    for each topic, deleted ones included.
    """
    return newest(read_stream(spark, url, **options))


def newest(frame: DataFrame) -> DataFrame:
    """The last retained message of each topic; rows of a topic may be in any order."""
    last = sql.max_by(sql.struct("*"), sql.struct("timestamp", "offset"))
    return frame.where("retain").groupBy("topic").agg(last.alias("row")).select("row.*")


def place_text(offsets: Sequence[int], epoch: str) -> str:
    """Offsets in the form of ``startingOffsets``, with their epoch."""
    return json.dumps(SourceOffset(epoch=epoch, ends=tuple(offsets)).to_dict())


def whole(spark: SparkSession, log: StreamLog, options: SourceOptions) -> DataFrame:
    """Both tiers, divided at one position."""
    state = log.state()
    if log.folder is None:
        return by_source(spark, options, state, state.earliest, state.end)
    # requested after the state, so it has all files that the state calls sealed
    index = log.folder.index()
    end = [max(pair) for pair in zip(index.ends, state.end, strict=True)]
    tail = ranges_between(index.ends, end)
    is_short = 0 < sum(one.rows for one in tail) <= AT_HAND
    with ThreadPoolExecutor(max_workers=1) as beside:
        # a short tail is fetched while Spark lists the files
        short = beside.submit(tail_at_hand, spark, log, state, options, tail) if is_short else None
        parts = list(sealed_rows(spark, index, state, options))
    if short is not None:
        parts.append(short.result())
    elif tail:
        parts.append(by_source(spark, options, state, index.ends, end))
    if not parts:
        return spark.createDataFrame([], schema_of(options))
    return reduce(lambda one, other: one.union(other), parts)


def sealed_rows(
    spark: SparkSession, index: SealedIndex, state: State, options: SourceOptions
) -> Iterator[DataFrame]:
    """The rows in files; the source reads files that are older than a column, to decode it."""
    held = index.standing()
    own = native_schemes(spark, held)

    def is_for_source(file: SealedFile) -> bool:
        return is_late(file, options) or (file.is_remote and scheme_of(file) not in own)

    late = [[file for file in files if is_for_source(file)] for files in held]
    for start, end in late_ranges(late, index.earliest):
        yield by_source(spark, options, state, start, end)
    files = [file for files in held for file in files if not is_for_source(file)]
    if files:
        yield by_spark(spark, files, index, options)


def is_late(file: SealedFile, options: SourceOptions) -> bool:
    """Whether a file lacks a column that the query needs."""
    return options.typed is not None and options.typed.lacking(file.typed, options.columns)


def late_ranges(
    late: Sequence[Sequence[SealedFile]], earliest: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Ranges of these files in all partitions; further ranges for the gaps between them."""
    runs = [list(runs_of(files, first)) for files, first in zip(late, earliest, strict=True)]
    for at_once in itertools.zip_longest(*runs):
        spans = [span or (first, first) for span, first in zip(at_once, earliest, strict=True)]
        yield [start for start, _ in spans], [end for _, end in spans]


def runs_of(files: Sequence[SealedFile], earliest: int) -> Iterator[tuple[int, int]]:
    """Ranges of files; adjacent files have one range."""
    span: tuple[int, int] | None = None
    for file in files:
        start, end = max(file.base, earliest), file.last + 1
        if span is not None and span[1] != start:
            yield span
            span = None
        span = (span[0] if span else start, end)
    if span is not None:
        yield span


def by_source(
    spark: SparkSession,
    options: SourceOptions,
    state: State,
    start: Sequence[int],
    end: Sequence[int],
) -> DataFrame:
    """The rows that the source reads later, if the stream is still the same then."""
    given = {
        "path": options.path,
        "endpoint": options.endpoint,
        "stream": options.stream,
        "token": options.token,
        "ca": options.ca,
        "files": options.files,
        "topic": options.topic,
        "columns": ",".join(options.columns) if options.columns is not None else None,
        "startingOffsets": place_text(start, state.epoch),
        "endingOffsets": place_text(end, state.epoch),
    }
    named = {name: value for name, value in given.items() if value is not None}
    return spark.read.format("mqttcore").options(**named).load()


def tail_at_hand(
    spark: SparkSession,
    log: StreamLog,
    state: State,
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
) -> DataFrame:
    """Reads rows at once, as a task would; they go to few tasks.

    Spark would make one task for every 10,000 rows.
    """
    [task] = tasks_for(state, [tuple(ranges)], log)
    try:
        batches = RowReader(log=log, options=options, topic=options.topic).read(task)
        schema = pa.schema(reader_options(options, options.topic).schema)
        table = pa.Table.from_batches(batches, schema=schema)
    finally:
        # the connection of this thread
        log.close()
    tasks = max(1, -(-table.num_rows // ROWS_A_TASK))
    return spark.createDataFrame(table, schema_of(options)).coalesce(tasks)


def texts(options: Mapping[str, object], stream: str | None) -> dict[str, str]:
    """Options in the form that Spark passes; columns may be a list."""
    given = options if stream is None else {**options, "stream": stream}
    return {
        name: ",".join(value) if isinstance(value, list | tuple) else str(value)
        for name, value in given.items()
    }


Reader = Callable[["SparkSession", urllib.parse.SplitResult, dict[str, str]], "DataFrame"]


def of_folder(
    spark: SparkSession, url: urllib.parse.SplitResult, options: dict[str, str]
) -> DataFrame:
    """The data folder of a broker on this machine."""
    path = urllib.parse.unquote(url.path)
    return spark.readStream.format("mqttcore").options(**options).load(path)


def of_endpoint(
    spark: SparkSession, url: urllib.parse.SplitResult, options: dict[str, str]
) -> DataFrame:
    """A broker's endpoint."""
    named = {**options, "endpoint": f"{url.scheme}://{url.netloc}"}
    return spark.readStream.format("mqttcore").options(**named).load()


def of_kafka(
    spark: SparkSession, url: urllib.parse.SplitResult, options: dict[str, str]
) -> DataFrame:
    """A topic of Kafka that a broker fills."""
    named = {
        "kafka.bootstrap.servers": url.netloc,
        "subscribe": url.path.strip("/"),
        "includeHeaders": "true",
        **options,
    }
    return from_kafka(spark.readStream.format("kafka").options(**named).load())


def of_delta(
    spark: SparkSession, url: urllib.parse.SplitResult, options: dict[str, str]
) -> DataFrame:
    """A Delta table."""
    return spark.readStream.format("delta").options(**options).load(urllib.parse.unquote(url.path))


READERS: Final[Mapping[str, Reader]] = {
    "delta": of_delta,
    "http": of_endpoint,
    "kafka": of_kafka,
    "mqttcore": of_folder,
}
