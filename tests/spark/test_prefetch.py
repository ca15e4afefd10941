"""Rows of a small batch, which Spark gets together with its plan."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from mqttcore.errors import StreamRangeError
from mqttcore.spark import prefetch
from mqttcore.spark.options import parse_options
from mqttcore.spark.planning import schema_of
from mqttcore.spark.source import MqttcoreDataSource
from mqttcore.spark.streaming import MqttcoreStreamReader
from pyspark.serializers import SpecialLengths, read_int, write_with_length
from pyspark.sql.streaming import python_streaming_source_runner as runner

from tests.spark.conftest import SimulatedTime, numbered
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., StreamFolder]
Open = Callable[..., MqttcoreStreamReader]
START = {"0": 0, "1": 0}


@pytest.fixture
def endpoint(make_stream: Make) -> Iterator[FakeEndpoint]:
    """A stream of two partitions: ten rows in a file, five in the tail, and five in the other."""
    with FakeEndpoint(make_stream(partitions=2)) as running:
        running.write(numbered(10))
        running.seal()
        running.write(numbered(5, base=10))
        running.write(numbered(5, partition=1))
        yield running


@pytest.fixture
def open_reader(endpoint: FakeEndpoint) -> Iterator[Open]:
    """A reader as a query has it."""
    with contextlib.ExitStack() as stack:

        def open_with(**options: Any) -> MqttcoreStreamReader:  # noqa: ANN401 -- texts
            place = {"path": str(endpoint.stream.root), "columns": "partition,offset"}
            reader = MqttcoreStreamReader(parse_options({**place, **options}))
            stack.callback(reader.stop)
            return reader

        yield open_with


def planned(reader: MqttcoreStreamReader, end: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Partition and offset of the rows that Spark gets with the plan of a batch; None: no rows."""
    source = MqttcoreDataSource({"path": "", "columns": "partition,offset"})
    asked, answered = io.BytesIO(), io.BytesIO()
    for offset in ({"epoch": end["epoch"], **START}, end):
        write_with_length(json.dumps(offset).encode(), asked)
    asked.seek(0)

    runner.partitions_func(reader, source, schema_of(reader.options), 10_000, asked, answered)

    answered.seek(0)
    for _ in range(read_int(answered)):
        answered.read(read_int(answered))
    kind = read_int(answered)
    assert type(reader) is MqttcoreStreamReader
    if kind == runner.PREFETCHED_RECORDS_NOT_FOUND:
        return None
    if kind == runner.EMPTY_PYARROW_RECORD_BATCHES:
        return []
    assert read_int(answered) == SpecialLengths.START_ARROW_STREAM
    table = pa.ipc.open_stream(answered).read_all()
    return list(zip(*table.to_pydict().values(), strict=True))


def end_of(endpoint: FakeEndpoint, first: int, second: int) -> dict[str, Any]:
    """An offset as Spark has stored it."""
    return {"epoch": endpoint.epoch, "0": first, "1": second}


def test_few_rows_come_with_the_plan_sealed_or_not(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader()

    rows = planned(reader, end_of(endpoint, 15, 5))

    assert rows == [(0, n) for n in range(15)] + [(1, n) for n in range(5)]
    assert planned(reader, end_of(endpoint, 12, 0)) == [(0, n) for n in range(12)]
    assert planned(reader, end_of(endpoint, 0, 0)) is None


def test_rows_that_the_filter_drops_are_none_and_no_task_looks_for_them(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    assert planned(open_reader(topic="other/#"), end_of(endpoint, 15, 5)) == []


def test_many_rows_or_large_ones_or_several_tasks_are_left_to_tasks(
    endpoint: FakeEndpoint, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = end_of(endpoint, 15, 5)
    assert planned(open_reader(minPartitions="2"), end) is None

    monkeypatch.setattr(prefetch, "FEW_ROWS", 20)
    assert planned(open_reader(), end) is not None
    monkeypatch.setattr(prefetch, "FEW_ROWS", 19)
    assert planned(open_reader(), end) is None

    monkeypatch.setattr(prefetch, "FEW_ROWS", 20)
    monkeypatch.setattr(prefetch, "FEW_BYTES", 100)
    assert planned(open_reader(), end) is None


def test_a_spark_that_takes_no_rows_has_them_read_by_tasks(
    endpoint: FakeEndpoint, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.spark.streaming.TAKES_ROWS", False)

    assert planned(open_reader(), end_of(endpoint, 15, 5)) is None
    assert not any("/rows?" in one for one in endpoint.asked)


def test_a_broker_that_is_away_is_waited_for_by_the_task(
    endpoint: FakeEndpoint, open_reader: Open, patience: SimulatedTime
) -> None:
    reader = open_reader()
    reader.latestOffset(reader.initialOffset())
    endpoint.close()

    assert planned(reader, end_of(endpoint, 15, 5)) is None
    assert planned(reader, end_of(endpoint, 10, 0)) == [(0, n) for n in range(10)]
    assert patience.waits == []


def test_rows_that_are_lost_are_reported_by_the_task(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader()
    reader.latestOffset(reader.initialOffset())
    endpoint.earliest[1] = 3
    end = end_of(endpoint, 15, 5)

    assert planned(reader, end) is None
    (task,) = reader.partitions({"epoch": endpoint.epoch, **START}, end)
    with pytest.raises(StreamRangeError, match="partition 1, offsets 0 to 5"):
        list(reader.read(task))


@pytest.mark.timeout(300)  # Spark itself may need a minute to begin
@pytest.mark.parametrize("tasks", ["1", "2"])
def test_a_query_has_the_same_rows_whoever_reads_them(
    spark: SparkSession, endpoint: FakeEndpoint, tmp_path: pathlib.Path, tasks: str
) -> None:
    asked = len(endpoint.asked)
    rows = (
        spark.readStream.format("mqttcore")
        .options(stream="plant", startingOffsets="earliest", minPartitions=tasks)
        .load(str(tmp_path))
    )
    query = (
        rows.writeStream.format("memory")
        .queryName(f"copied_{tasks}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    copied = spark.sql(f"SELECT partition, offset, payload FROM copied_{tasks}").collect()  # noqa: S608
    assert sorted((row[0], row[1]) for row in copied) == [
        *((0, n) for n in range(15)),
        *((1, n) for n in range(5)),
    ]
    assert all(bytes(row[2]) == str(row[1]).encode() for row in copied)
    read = [one for one in endpoint.asked[asked:] if "/rows?" in one]
    assert len(read) == 2, "each row of the tail is asked for once"
