"""The rows of a pipeline's tables as DataFrames.

One streaming query decodes the messages and checks them for faults. `mqttcore.pipeline.batches`
writes its batches to the tables.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mqttcore.errors import PipelineError
from mqttcore.pipeline.alerts import alert_messages
from mqttcore.pipeline.config import Gold, Pipeline, Silver, microseconds
from mqttcore.pipeline.progress import NEWEST
from mqttcore.spark.options import CORRUPT
from mqttcore.streams.settings import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from mqttcore.spark.log import StreamLog

__all__ = ["check_source", "messages", "stream_log", "tables"]

FAULT = "fault"
LATE = "late: "
"""The beginning of the fault of a late message."""


def messages(spark: "SparkSession", pipeline: Pipeline) -> "DataFrame":
    """The stream of decoded messages, each with its fault or null; not started.

    Raises:
        PipelineError: a condition of ``[silver]`` does not fit the columns.
    """
    return judged(source(spark, pipeline), pipeline.silver)


def tables(rows: "DataFrame", pipeline: Pipeline) -> "dict[str, DataFrame]":
    """The tables of a pipeline by name, with their columns.

    Raises:
        PipelineError: an expression does not fit the columns.
    """
    made = {"bronze": as_it_came(rows)} if pipeline.bronze.keep else {}
    made |= {"quarantine": faulty(rows), "silver": valid(rows)}
    with naming("silver"):
        # refuses an event time that is not a time, and columns of `dedupe` that are not there
        deduplicated(made["silver"], pipeline.silver).schema  # noqa: B018 -- Connect looks now
    for gold in pipeline.gold:
        made[gold.name] = windows(made["silver"], pipeline.silver, gold)
    for alert in pipeline.alerts:
        with naming(f"alert {alert.name}"):
            alert_messages(made[alert.table], alert).schema  # noqa: B018 -- as above
    return made


def check_source(pipeline: Pipeline) -> None:
    """Checks that the source accepts the options, as Spark does later.

    Raises:
        StreamFolderError: there is no such stream.
        EndpointError: the broker does not answer, or has no such stream.
        StreamOptionError: the columns of ``[silver]`` are none.
    """
    from mqttcore.spark.source import MqttcoreDataSource

    MqttcoreDataSource(source_options(pipeline)).schema()


def stream_log(pipeline: Pipeline) -> "StreamLog":
    """The stream of a pipeline, as its source sees it.

    Raises:
        StreamFolderError: there is no such stream.
        EndpointError: the broker does not answer, or has no such stream.
    """
    from mqttcore.spark.log import open_log
    from mqttcore.spark.options import parse_options

    return open_log(parse_options(source_options(pipeline)))


def source(spark: "SparkSession", pipeline: Pipeline) -> "DataFrame":
    """The stream with decoded payloads."""
    from pyspark.sql import functions as f

    reader = spark.readStream.format("mqttcore").options(**source_options(pipeline))
    return reader.load().observe(NEWEST, f.max("timestamp").alias("at"))


def source_options(pipeline: Pipeline) -> dict[str, str]:
    """The options for ``format("mqttcore")``; the broker keeps unread rows."""
    given, silver = pipeline.source, pipeline.silver
    described = {
        "descriptorFile": str(silver.descriptor.absolute()) if silver.descriptor else None,
        "messageName": silver.message,
        "schemasFolder": str(silver.schemas.absolute()) if silver.schemas else None,
    }
    return {
        **given.place(),
        **{name: value for name, value in described.items() if value is not None},
        "topic": given.topic,
        "startingOffsets": given.starting,
        "maxRowsPerTrigger": str(given.rows_per_batch),
        **batch_time(pipeline),
        "decode": silver.decode,
        "payloadSchema": silver.schema,
        "onError": "null",
        "consumer": pipeline.name,
    }


def batch_time(pipeline: Pipeline) -> dict[str, str]:
    """The option with the target for the time of a batch, if the trigger allows one.

    The source measures from one batch to the next, which is never less than the interval of the
    trigger: with a target below it, a batch of any size would seem too long, and with one of the
    same length, a short batch would not get more rows.
    """
    target_us, trigger = microseconds(pipeline.source.batch_time), pipeline.trigger
    every_us = 0 if trigger == "available_now" else microseconds(trigger)
    if every_us > target_us:
        return {}
    return {"targetBatchTime": f"{max(target_us, 2 * every_us) // 1_000}ms"}


def judged(messages: "DataFrame", silver: Silver) -> "DataFrame":
    """Adds the column ``fault`` to each message: the fault, or null."""
    from pyspark.sql import functions as f

    time, broker_time = f.col(silver.event_time), f.col("timestamp")
    ahead = time > broker_time + f.expr(f"INTERVAL {silver.watermark}")
    faults = [
        (f.col(CORRUPT).isNotNull(), "does not decode"),
        (time.isNull(), f"{silver.event_time} is missing"),
        # one device clock that is ahead would make the messages of all others late
        (ahead, f"{silver.event_time} is more than {silver.watermark} ahead of the broker's clock"),
        *((~f.coalesce(f.expr(sql), f.lit(False)), f"not {sql}") for sql in silver.valid),
    ]
    with naming("silver"):
        return messages.withColumn(FAULT, first_of(faults))


def judged_late(rows: "DataFrame", silver: Silver, mark_us: int | None) -> "DataFrame":
    """Adds a fault to messages whose event time is before the watermark, if there is one.

    ``mark_us``: the watermark in Unix microseconds.
    """
    from pyspark.sql import functions as f

    if mark_us is None:
        return rows
    is_late = f.col(silver.event_time) < f.timestamp_micros(f.lit(mark_us))
    late = f"{LATE}{silver.event_time} is more than {silver.watermark} behind the newest messages"
    return rows.withColumn(FAULT, f.coalesce(FAULT, f.when(is_late, f.lit(late))))


def first_of(cases: "Sequence[tuple[Column, str]]") -> "Column":
    """The text of the first condition that holds, or null."""
    from pyspark.sql import functions as f

    return f.coalesce(*(f.when(condition, f.lit(text)) for condition, text in cases))


def deduplicated(rows: "DataFrame", silver: Silver) -> "DataFrame":
    """A stream with each message once, within the watermark."""
    rows = rows.withWatermark(silver.event_time, silver.watermark)
    with naming("silver.dedupe"):
        return rows.dropDuplicatesWithinWatermark(list(silver.dedupe)) if silver.dedupe else rows


def first_of_each(rows: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """The messages of a batch without repeats: of equal ones, the first in the stream."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.row_number().over(Window.partitionBy(*keys).orderBy("partition", "offset"))
    return rows.withColumn("_place", place).where("_place = 1").drop("_place")


def unknown(rows: "DataFrame", known: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """The rows whose ``keys`` are not those of any row of ``known``; null equals null."""
    from functools import reduce
    from operator import and_

    from pyspark.sql import functions as f

    names = {key: f"_known_{place}" for place, key in enumerate(keys)}
    found = known.select(*(f.col(key).alias(name) for key, name in names.items()))
    same = (f.col(key).eqNullSafe(f.col(name)) for key, name in names.items())
    return rows.join(found, reduce(and_, same), "left_anti")


def before_batch(rows: "DataFrame", starts: Sequence[int]) -> "DataFrame":
    """The rows of the stream before a batch, whose first offsets are ``starts``."""
    from pyspark.sql import functions as f

    first = f.array(*(f.lit(start).cast("long") for start in starts))
    return rows.where(f.col("offset") < f.element_at(first, f.col("partition") + 1))


def with_known_faults(
    rows: "DataFrame", known: "DataFrame", starts: Sequence[int], ends: Sequence[int]
) -> "DataFrame":
    """The rows of a batch with the faults that ``known`` has for them, and no others.

    ``starts`` and ``ends`` are the offsets of the batch.
    """
    from pyspark.sql import functions as f

    # spares reading most of the files
    near = known.where(f.col("offset").between(min(starts), max(ends)))
    faults = near.select("partition", "offset", FAULT)
    found = rows.drop(FAULT).join(faults, ["partition", "offset"], "left")
    return found.select(*rows.columns)


def windows(rows: "DataFrame", silver: Silver, gold: Gold) -> "DataFrame":
    """Aggregates of ``rows`` for each window and group."""
    from pyspark.sql import functions as f

    with naming(f"gold {gold.name}"):
        window = f.window(silver.event_time, gold.window, gold.slide)
        groups = rows.groupBy(window.alias("_window"), *gold.group_by)
        counted = groups.agg(*(f.expr(sql) for sql in gold.columns))
        times = (f.col("_window.start").alias("window_start"), f.col("_window.end"))
        made = counted.select(times[0], times[1].alias("window_end"), "*").drop("_window")
        made.schema  # noqa: B018 -- Connect looks now
        return made


def closed(windows: "DataFrame", after_us: int | None, up_to_us: int) -> "DataFrame":
    """The windows that end after one time and not after another, in unix microseconds."""
    from pyspark.sql import functions as f

    end = f.col("window_end")
    is_closed = end <= f.timestamp_micros(f.lit(up_to_us))
    if after_us is not None:
        is_closed &= end > f.timestamp_micros(f.lit(after_us))
    return windows.where(is_closed)


def as_it_came(rows: "DataFrame") -> "DataFrame":
    """Messages without derived columns, with their day."""
    from pyspark.sql import functions as f

    return rows.select(*OWN_COLUMNS).withColumn("day", f.to_date("timestamp"))


def faulty(rows: "DataFrame") -> "DataFrame":
    """Messages with a fault, and the fault."""
    return rows.where(f"{FAULT} IS NOT NULL").select(*OWN_COLUMNS, FAULT)


def valid(rows: "DataFrame") -> "DataFrame":
    """Messages without a fault."""
    return rows.where(f"{FAULT} IS NULL").drop(FAULT, CORRUPT)


@contextmanager
def naming(part: str) -> Iterator[None]:
    """Adds the part of the pipeline to Spark's error about an expression."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise PipelineError(f"{part}: {error}") from error
