"""The streaming queries of a pipeline: bronze, silver, and one for each gold table.

Every query reads the stream for itself, so each has its own place in it and none waits for another.
What a query computes follows from the source's offsets alone, so a batch that Spark repeats has the
same rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqttcore.errors import PipelineError
from mqttcore.pipeline.alerts import alert_messages
from mqttcore.pipeline.config import Alert, Gold, Pipeline, Silver
from mqttcore.pipeline.progress import NEWEST
from mqttcore.spark.options import CORRUPT
from mqttcore.streams.settings import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Output", "Stage", "check_source", "stages"]

FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A table that a query feeds, and what of the query's rows goes there."""

    table: str
    select: "Callable[[DataFrame], DataFrame]"
    by_day: bool = False
    alerts: tuple[Alert, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One streaming query."""

    name: str
    rows: "DataFrame"
    outputs: tuple[Output, ...]


def stages(spark: "SparkSession", pipeline: Pipeline) -> tuple[Stage, ...]:
    """The queries of a pipeline, not started.

    Args:
        spark: The session.
        pipeline: What they do.

    Raises:
        PipelineError: an expression does not fit the columns.
    """

    def read(stage: str) -> "DataFrame":
        return judged(source(spark, pipeline, stage), pipeline.silver)

    def read_valid(stage: str) -> "DataFrame":
        return deduplicated(valid(read(stage)), pipeline.silver)

    made = [
        Stage(name="bronze", rows=read("bronze"), outputs=raw_outputs(pipeline)),
        Stage(name="silver", rows=read_valid("silver"), outputs=(output(pipeline, "silver"),)),
    ]
    for gold in pipeline.gold:
        rows = windows(read_valid(gold.name), pipeline.silver, gold)
        made.append(Stage(name=gold.name, rows=rows, outputs=(output(pipeline, gold.name),)))
    for stage in made:
        check_alerts(stage)
    return tuple(made)


def check_source(pipeline: Pipeline) -> None:
    """Has the source look at what it will be asked, as Spark does later.

    Raises:
        StreamFolderError: there is no such stream.
        EndpointError: the broker does not answer, or has no such stream.
        StreamOptionError: the columns of ``[silver]`` are none.
    """
    from mqttcore.spark.source import MqttcoreDataSource

    MqttcoreDataSource(source_options(pipeline, "bronze")).schema()


def source(spark: "SparkSession", pipeline: Pipeline, stage: str) -> "DataFrame":
    """The stream as one query reads it, payloads decoded."""
    from pyspark.sql import functions as f

    options = source_options(pipeline, stage)
    messages = spark.readStream.format("mqttcore").options(**options).load()
    return messages.observe(NEWEST, f.max("timestamp").alias("at"))


def source_options(pipeline: Pipeline, stage: str) -> dict[str, str]:
    """What one query asks of ``format("mqttcore")``; the broker keeps what it has not read yet."""
    given, silver = pipeline.source, pipeline.silver
    protobuf = {
        "descriptorFile": str(silver.descriptor.absolute()) if silver.descriptor else None,
        "messageName": silver.message,
    }
    return {
        **given.place(),
        **{name: value for name, value in protobuf.items() if value is not None},
        "topic": given.topic,
        "startingOffsets": given.starting,
        "maxRowsPerTrigger": str(given.rows_per_batch),
        "decode": silver.decode,
        "payloadSchema": silver.schema,
        "onError": "null",
        "consumer": f"{pipeline.name}.{stage}",
    }


def judged(messages: "DataFrame", silver: Silver) -> "DataFrame":
    """Each message with what is wrong with it, or null, as the column ``fault``."""
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


def first_of(cases: "Sequence[tuple[Column, str]]") -> "Column":
    """The text of the first condition that holds, or null."""
    from pyspark.sql import functions as f

    return f.coalesce(*(f.when(condition, f.lit(text)) for condition, text in cases))


def deduplicated(rows: "DataFrame", silver: Silver) -> "DataFrame":
    """Each message once, within the watermark."""
    rows = rows.withWatermark(silver.event_time, silver.watermark)
    with naming("silver.dedupe"):
        return rows.dropDuplicatesWithinWatermark(list(silver.dedupe)) if silver.dedupe else rows


def windows(rows: "DataFrame", silver: Silver, gold: Gold) -> "DataFrame":
    """Aggregates of ``rows`` a window and group."""
    from pyspark.sql import functions as f

    with naming(f"gold {gold.name}"):
        window = f.window(silver.event_time, gold.window, gold.slide)
        groups = rows.groupBy(window.alias("_window"), *gold.group_by)
        counted = groups.agg(*(f.expr(sql) for sql in gold.columns))
        times = (f.col("_window.start").alias("window_start"), f.col("_window.end"))
        return counted.select(times[0], times[1].alias("window_end"), "*").drop("_window")


def raw_outputs(pipeline: Pipeline) -> tuple[Output, ...]:
    """Everything as it came, and what is not good enough for silver."""
    quarantine = Output(table="quarantine", select=faulty)
    if not pipeline.bronze.keep:
        return (quarantine,)
    return Output(table="bronze", select=as_it_came, by_day=True), quarantine


def as_it_came(rows: "DataFrame") -> "DataFrame":
    """Messages without what was made of them, and their day."""
    from pyspark.sql import functions as f

    return rows.select(*OWN_COLUMNS).withColumn("day", f.to_date("timestamp"))


def faulty(rows: "DataFrame") -> "DataFrame":
    """Messages that have a fault, and which."""
    return rows.where(f"{FAULT} IS NOT NULL").select(*OWN_COLUMNS, FAULT)


def valid(rows: "DataFrame") -> "DataFrame":
    """Messages without a fault."""
    return rows.where(f"{FAULT} IS NULL").drop(FAULT, CORRUPT)


def same(rows: "DataFrame") -> "DataFrame":
    """All of it."""
    return rows


def output(pipeline: Pipeline, table: str) -> Output:
    """All rows of a query into ``table``, with the alerts on it."""
    alerts = tuple(alert for alert in pipeline.alerts if alert.table == table)
    return Output(table=table, select=same, alerts=alerts)


def check_alerts(stage: Stage) -> None:
    """Has Spark look at the expressions of alerts before anything runs."""
    for output in stage.outputs:
        for alert in output.alerts:
            with naming(f"alert {alert.name}"):
                alert_messages(output.select(stage.rows), alert)


@contextmanager
def naming(part: str) -> Iterator[None]:
    """Says which part of the pipeline an expression belongs to that Spark refuses."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise PipelineError(f"{part}: {error}") from error
