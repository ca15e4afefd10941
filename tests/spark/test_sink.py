"""Spark's rows as messages: each once, whoever repeats what."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.sinks import Received, listen, open_broker, published

if TYPE_CHECKING:
    import pyarrow as pa
    from mqttcore import Broker
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

Run = Callable[..., Any]


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    with open_broker(tmp_path) as running:
        yield running


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Numbers in two tasks."""
    return spark.range(0, count, 1, 2).selectExpr("cast(id AS STRING) AS payload")


def staged(folder: pathlib.Path) -> list[str]:
    """Rows that wait for a commit."""
    return [path.name for path in (folder / "sink").iterdir()]


def test_a_data_frame_becomes_messages(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    frame = rows(spark, 6).selectExpr(
        "'out/' || payload AS topic",
        "payload",
        "cast(2 AS TINYINT) AS qos",
        "map('row', payload) AS user_properties",
        "60L AS expiry",
        "'text' AS content_type",
    )
    with listen(broker.port, "out/#") as heard:
        frame.write.format("mqttcore").mode("append").save(str(tmp_path))
        broker.publish("out/end", "")
        came = heard.take(7)

    assert sorted(came[:6], key=lambda one: one.topic) == [
        Received(f"out/{n}", b"%d" % n, 2, (("row", str(n)),), "text", 60) for n in range(6)
    ]
    assert came[6].topic == "out/end"
    assert staged(tmp_path) == []


def test_rule_8_a_task_that_comes_again_is_counted_once(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies behind its rows")

    frame = rows(spark, 10).mapInArrow(fail_once, "payload STRING")
    frame.write.format("mqttcore").mode("append").option("topic", "plant/1").save(str(tmp_path))

    assert sorted(published(tmp_path, 10)) == list(range(10))
    assert staged(tmp_path) == []


def test_rule_8_a_batch_with_a_name_and_a_number_is_published_once(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    def write(number: int) -> None:
        named = rows(spark, 3).write.format("mqttcore").mode("append")
        options = {"topic": "plant/1", "txnAppId": "nightly", "txnVersion": str(number)}
        named.options(**options).save(str(tmp_path))

    for number in (1, 1, 2):
        write(number)
    broker.publish("plant/1", "7")

    assert sorted(published(tmp_path, 7)) == [0, 0, 1, 1, 2, 2, 7]
    assert staged(tmp_path) == []


def test_nothing_is_published_when_a_task_fails_for_good(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    frame = spark.range(0, 4, 1, 2).selectExpr(
        "if(id = 3, '$SYS/x', 'plant/1') AS topic", "cast(id AS STRING) AS payload"
    )

    with pytest.raises(Exception, match=r"row 1: topic .*SYS/x.* begins with"):
        frame.write.format("mqttcore").mode("append").save(str(tmp_path))

    broker.publish("plant/1", "99")
    assert published(tmp_path, 1) == [99]
    assert staged(tmp_path) == []


def test_overwriting_replaces_what_is_retained_below_a_prefix(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    for topic in ("registry/a", "registry/b/c", "registry", "registries/a"):
        broker.publish(topic, "old", retain=True)
    frame = spark.createDataFrame(
        [("registry/a", "new"), ("registry/d", "new")], "topic STRING, payload STRING"
    )

    options = {"prefix": "registry/", "retain": "true"}
    frame.write.format("mqttcore").mode("overwrite").options(**options).save(str(tmp_path))

    with listen(broker.port, "registry/#", "registries/#", "end") as heard:
        broker.publish("end", "")
        kept = {}
        while (one := heard.next()).topic != "end":
            kept[one.topic] = one.payload
    assert kept == {"registry/a": b"new", "registry/d": b"new", "registries/a": b"old"}

    frame.where("false").write.format("mqttcore").mode("overwrite").options(**options).save(
        str(tmp_path)
    )
    broker.publish("registries/a", "", retain=True)
    assert broker.stats()["retained_messages"] == 0


def test_another_broker_gets_every_row(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    options = {"broker": f"mqtt://127.0.0.1:{broker.port}", "topic": "plant/1", "qos": "2"}

    rows(spark, 200).write.format("mqttcore").mode("append").options(**options).save()

    assert sorted(published(tmp_path, 200)) == list(range(200))


# --- streams


@pytest.fixture
def run(spark: SparkSession, tmp_path: pathlib.Path) -> Run:
    """Publishes what a stream of files holds, with one checkpoint for all runs of the test."""

    def run_once(source: DataFrame, **options: str) -> None:
        query = (
            source.writeStream.format("mqttcore")
            .queryName("publish")
            .options(**{"checkpointLocation": str(tmp_path / "checkpoint"), **options})
            .trigger(availableNow=True)
            .start(None if "broker" in options else str(tmp_path))
        )
        query.awaitTermination()

    return run_once


@pytest.fixture
def files(spark: SparkSession, tmp_path: pathlib.Path) -> Callable[[int, int], DataFrame]:
    """A source that gets a file of numbers."""

    def add(first: int, end: int) -> DataFrame:
        folder = tmp_path / "files"
        folder.mkdir(exist_ok=True)
        (folder / f"{first}.txt").write_text("\n".join(map(str, range(first, end))))
        return spark.readStream.text(str(folder)).selectExpr("value AS payload")

    return add


def test_a_query_publishes_each_batch_once(
    broker: Broker, files: Callable[[int, int], DataFrame], run: Run, tmp_path: pathlib.Path
) -> None:
    run(files(0, 10), topic="plant/1")
    run(files(10, 30), topic="plant/1")
    # as if the driver had died before it noted the last batch
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    run(files(30, 33), topic="plant/1")

    assert sorted(published(tmp_path, 33)) == list(range(33))
    assert staged(tmp_path) == []


def test_a_query_that_feeds_itself_is_stopped_before_it_publishes(
    broker: Broker, spark: SparkSession, run: Run, tmp_path: pathlib.Path
) -> None:
    broker.publish("plant/1", "5")
    assert published(tmp_path, 1) == [5]
    source = spark.readStream.format("mqttcore").options(stream="plant", startingOffsets="earliest")
    read = source.load(str(tmp_path)).select("topic", "payload")

    with pytest.raises(StreamingQueryException, match=r"'plant/1': the query reads 'plant/#'"):
        run(read)
    assert staged(tmp_path) == []
    assert published(tmp_path, 1) == [5]

    run(read, allowLoop="true")
    assert published(tmp_path, 2) == [5, 5]
