"""Streaming queries of Spark over a stream: restarts, limits, what comes meanwhile."""

from __future__ import annotations

import json
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.spark import lag
from pyspark.errors import StreamingQueryException

from tests.spark.conftest import numbered, takes_limits
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

Make = Callable[..., StreamFolder]
Run = Callable[..., "StreamingQuery"]


@pytest.fixture
def endpoint(make_stream: Make) -> Iterator[FakeEndpoint]:
    """A broker with a stream of two partitions, a few rows sealed and a few in the tail."""
    with FakeEndpoint(make_stream(partitions=2)) as running:
        running.write(numbered(20))
        running.seal()
        running.write(numbered(5, base=20))
        running.write(numbered(15, partition=1))
        yield running


@pytest.fixture
def run(spark: SparkSession, tmp_path: pathlib.Path) -> Run:
    """Copies what is there now to Parquet, with one checkpoint for all runs of the test."""

    def run_once(**options: Any) -> StreamingQuery:  # noqa: ANN401 -- texts
        source = spark.readStream.format("mqttcore").options(
            path=str(tmp_path), stream="plant", startingOffsets="earliest", **options
        )
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "copy"))
        )
        query.awaitTermination()
        return query

    return run_once


@pytest.fixture
def copied(spark: SparkSession, tmp_path: pathlib.Path) -> Callable[[], list[tuple[int, int]]]:
    """Partition and offset of each row that was copied, sorted: what is there twice shows."""

    def read() -> list[tuple[int, int]]:
        rows = spark.read.parquet(str(tmp_path / "copy")).collect()
        return sorted((row["partition"], row["offset"]) for row in rows)

    return read


def everything(first: int, second: int) -> list[tuple[int, int]]:
    """The rows of both partitions."""
    return [(0, n) for n in range(first)] + [(1, n) for n in range(second)]


def ends(checkpoint: pathlib.Path) -> list[dict[str, Any]]:
    """The offsets that Spark stored for each batch."""
    logged = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in logged]


@takes_limits
def test_a_query_goes_on_where_it_stopped(
    endpoint: FakeEndpoint, run: Run, copied: Callable[[], object], tmp_path: pathlib.Path
) -> None:
    run(maxRowsPerTrigger=16, consumer="copy")
    assert copied() == everything(25, 15)
    assert len(ends(tmp_path / "checkpoint")) == 3

    endpoint.seal()
    endpoint.write(numbered(10, base=25))
    run(maxRowsPerTrigger=16, consumer="copy")

    assert copied() == everything(35, 15)
    logged = ends(tmp_path / "checkpoint")
    assert logged[0]["from"] == {"0": 0, "1": 0}
    told = {"epoch": endpoint.epoch, "reads": ["#"], "stream": "plant"}
    assert logged[-1] == {"0": 35, "1": 15, **told}
    assert endpoint.holds["copy"] == [25, 15]


@takes_limits
def test_a_batch_that_was_not_committed_is_read_again_the_same(
    endpoint: FakeEndpoint, run: Run, copied: Callable[[], object], tmp_path: pathlib.Path
) -> None:
    run()
    # as if the driver had died between the sink and the commit, and before the sink's own log
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    shutil.rmtree(tmp_path / "copy")
    endpoint.seal()
    endpoint.write(numbered(9, base=25))

    run()

    assert copied() == everything(34, 15)
    first = ends(tmp_path / "checkpoint")[0]
    assert (first["0"], first["1"]) == (25, 15)


@takes_limits
def test_progress_shows_what_is_behind(endpoint: FakeEndpoint, run: Run) -> None:
    progress = run().lastProgress

    assert progress is not None
    (source,) = progress["sources"]
    assert source["numInputRows"] == 40
    told = {"epoch": endpoint.epoch, "stream": "plant"}
    assert json.loads(source["latestOffset"]) == {"0": 25, "1": 15, **told}
    (behind,) = lag(progress)
    assert (behind["stream"], behind["maxOffsetsBehindLatest"]) == ("plant", 0)


def test_a_query_without_a_folder_outlives_its_broker_and_can_be_stopped_while_it_waits(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    def until(condition: Callable[[], bool]) -> None:
        while not condition():
            assert query.isActive, query.exception()
            time.sleep(0.02)

    def is_asking() -> bool:
        return "Getting offsets" in query.status["message"]

    def count() -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    with FakeEndpoint(make_stream()) as endpoint:
        endpoint.write(numbered(5))
        place = {"endpoint": f"unix:{endpoint.path}", "stream": "plant", "files": "endpoint"}
        rows = spark.readStream.format("mqttcore").options(**place, startingOffsets="earliest")
        writer = rows.load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        until(lambda: count() == 5)

        endpoint.close()
        until(is_asking)
        endpoint.open()
        endpoint.write(numbered(4, base=5))
        until(lambda: count() == 9)
        endpoint.close()
        until(is_asking)
        query.stop()

    assert query.exception() is None


def test_rule_4_a_restored_stream_ends_the_query_with_what_to_do(
    endpoint: FakeEndpoint, run: Run
) -> None:
    run()
    description = endpoint.stream.root / "stream.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "epoch": 7}))
    endpoint.epoch = endpoint.epoch.rpartition(":")[0] + ":7"

    with pytest.raises(StreamingQueryException, match="new checkpointLocation"):
        run()
