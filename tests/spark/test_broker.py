"""A real broker, its stream, and Spark: what clients publish is what queries read."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.collector import collecting
from tests.eventually import eventually
from tests.spark.sinks import listen
from tests.wire import Wire

if TYPE_CHECKING:
    from mqttcore import Broker
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "rows.py"


def example() -> Any:  # noqa: ANN401 -- a module
    """The example as a module."""
    specification = importlib.util.spec_from_file_location("rows_example", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    """The broker of the example, with two rounds of messages."""
    with example().start_broker(str(tmp_path)) as running:
        example().publish(running, 2)
        wait_for_rows(tmp_path, 40)
        yield running


def wait_for_rows(data: pathlib.Path, count: int) -> None:
    """Waits until the stream `plant` has so many rows for readers: they are durable then."""
    from mqttcore.streams.client import StreamClient

    with StreamClient(str(data)) as client:
        eventually(lambda: sum(one.end for one in client.stream("plant").partitions) == count)


def test_the_example_shows_a_mean_for_each_device(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    table = example().temperatures(spark, str(tmp_path)).collect()

    assert len(table) == 20
    assert {row["topic"]: round(row[1], 2) for row in table}["plant/7"] == 27.05


def test_the_example_warns_once(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    with listen(broker.port, "warm/#") as heard:
        for _ in range(2):
            example().warn(spark, str(tmp_path))
        broker.publish("warm/end", "")
        topics = [heard.next().topic for _ in range(10)]

    assert sorted(topics[:9]) == ["warm/plant/15", *(f"warm/plant/{n // 2}" for n in range(32, 40))]
    assert topics[9] == "warm/end"


def test_the_readme_shows_the_example() -> None:
    blocks = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    assert blocks
    assert all(block in EXAMPLE.read_text() for block in blocks)


def test_a_query_copies_each_message_once_while_the_broker_seals_and_stops(
    broker: Broker, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    from mqttcore.streams.client import StreamClient

    def copy() -> list[str]:
        source = spark.readStream.format("mqttcore").options(
            path=str(tmp_path), stream="plant", startingOffsets="earliest", consumer="copy"
        )
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "copy"))
        )
        query.awaitTermination()
        return payloads(spark.read.parquet(str(tmp_path / "copy")))

    assert len(copy()) == 40
    with StreamClient(str(tmp_path)) as client:
        client.seal("plant")
    broker.publish("plant/1", "after the seal")
    wait_for_rows(tmp_path, 41)
    assert len(copy()) == 41
    broker.publish("plant/1", "before the stop")
    broker.stop()

    assert copy()[:2] == ["after the seal", "before the stop"]
    assert len(copy()) == 42


def payloads(frame: DataFrame) -> list[str]:
    """What was published, sorted."""
    return sorted(bytes(row["payload"]).decode() for row in frame.select("payload").collect())


def test_the_typed_columns_of_a_stream_are_columns_of_tail_and_files_alike(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    from mqttcore import Broker, Settings
    from mqttcore.config import Listener
    from mqttcore.spark import read
    from mqttcore.streams.client import StreamClient
    from mqttcore.streams.settings import Column, Stream

    typed = (Column(name="celsius", type="double"), Column(name="count", type="long"))
    stream = Stream(name="typed", filter=("t/#",), decode="json", schema=typed)
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(tmp_path),
        streams=(stream,),
    )

    def of_typed() -> DataFrameReader:
        return spark.read.format("mqttcore").options(path=str(tmp_path), stream="typed")

    source = of_typed()

    def seen(frame: DataFrame) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in frame.select("offset", "celsius", "count").collect())

    with Broker(settings) as running, StreamClient(str(tmp_path)) as client:
        running.publish("t/1", '{"celsius":21.5,"count":7,"unit":"K"}')
        running.publish("t/1", '{"celsius":"warm","count":8}')
        while client.stream("typed").partitions[0].end < 2:
            pass
        expected = [(0, 21.5, 7), (1, None, 8)]

        assert seen(source.load()) == expected
        client.seal("typed")
        assert seen(source.load()) == expected
        running.publish("t/1", "no JSON")
        while client.stream("typed").partitions[0].end < 3:
            pass
        for frame in (source.load(), read(spark, path=str(tmp_path), stream="typed")):
            assert seen(frame) == [*expected, (2, None, None)]
            assert frame.columns[-2:] == ["celsius", "count"]
        few = source.option("columns", "count,offset").load()
        assert sorted(map(tuple, few.collect()), key=repr) == [(7, 0), (8, 1), (None, 2)]

    # what is sealed by now is older than this column
    unit = Column(name="unit", type="string")
    stream = dataclasses.replace(stream, schema=(*typed, unit))
    with Broker(dataclasses.replace(settings, streams=(stream,))) as running:
        running.publish("t/1", '{"celsius":1.5,"unit":"C"}')
    whole = read(spark, path=str(tmp_path), stream="typed")
    for frame in (of_typed().load(), whole):
        units = sorted(map(tuple, frame.select("offset", "celsius", "unit").collect()))
        assert units == [(0, 21.5, "K"), (1, None, None), (2, None, None), (3, 1.5, "C")]
    assert read(spark, path=str(tmp_path), stream="typed", columns="count").count() == 4


def test_a_row_of_a_query_has_the_span_of_the_broker_as_parent(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    from mqttcore import Broker, Settings
    from mqttcore.config import Listener
    from mqttcore.otel import OpenTelemetry
    from mqttcore.streams.settings import Stream

    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(tmp_path),
        streams=(Stream(name="orders", filter=("orders/#",)),),
    )
    with collecting() as collector:
        config = OpenTelemetry.Config(
            endpoint=collector.endpoint, figures=False, log=False, trace="propagate"
        )
        with Broker(settings, plugins=[OpenTelemetry(config)]) as broker, Wire(broker.port) as wire:
            wire.connect("publisher")
            given = {"user_property": [("traceparent", f"00-{trace}-{parent}-01")]}
            wire.publish("orders/1", b"x", qos=1, props=given)

    rows = spark.read.format("mqttcore").options(path=str(tmp_path), stream="orders").load()
    [row] = rows.selectExpr(
        "filter(user_properties, p -> p.key = 'traceparent')[0].value AS traceparent"
    ).collect()
    deliver, publish = [span for span in collector.spans() if not span.name.startswith("store")]
    assert row["traceparent"] == f"00-{trace}-{deliver.span_id.hex()}-01"
    assert deliver.parent_span_id == publish.span_id
    assert publish.parent_span_id.hex() == parent
