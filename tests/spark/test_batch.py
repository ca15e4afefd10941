"""`spark.read.format("mqttcore")` over sealed files."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from mqttcore.pipeline.table_files import arrow_schema
from pyspark.errors import PySparkException

from tests.spark.conftest import SPARK, at, numbered
from tests.stream_folder import StreamFolder, row_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

Load = Callable[..., "DataFrame"]
Make = Callable[..., StreamFolder]


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of each row, sorted: a row that is there twice shows."""
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def test_each_row_of_each_partition_comes_once_with_all_its_columns(
    make_stream: Make, load: Load
) -> None:
    stream = make_stream(partitions=2)
    stream.seal(numbered(5))
    stream.seal(numbered(3, base=5))
    stream.seal(numbered(4, partition=1, base=10))

    frame = load()

    assert places(frame) == [(0, n) for n in range(8)] + [(1, n) for n in range(10, 14)]
    row = frame.where("partition = 1 and offset = 12").first()
    assert row is not None
    assert (row.topic, bytes(row.payload), row.qos, row.retain) == ("plant/1", b"12", 1, False)
    assert row.timestamp.timestamp() * 1e6 == 1_700_000_012_000_000
    assert (row.content_type, row.user_properties) == (None, [])


def test_the_columns_are_those_that_the_reader_yields(make_stream: Make, load: Load) -> None:
    make_stream()

    assert arrow_schema(load()).equals(row_schema())


def test_plain_parquet_reading_sees_the_same_rows(
    make_stream: Make, load: Load, spark: SparkSession
) -> None:
    stream = make_stream()
    stream.seal(numbered(9))

    plain = spark.read.parquet(str(stream.root / "data"))

    assert plain.schema == load().schema
    assert plain.exceptAll(load()).isEmpty()
    assert plain.count() == 9


def test_columns_are_left_out_before_they_are_read(make_stream: Make, load: Load) -> None:
    make_stream().seal(numbered(3))

    frame = load(columns="payload,offset")

    assert frame.columns == ["payload", "offset"]
    assert [(bytes(row[0]), row[1]) for row in frame.collect()] == [
        (b"0", 0), (b"1", 1), (b"2", 2),
    ]  # fmt: skip


def test_a_schema_of_the_user_leaves_columns_out_too(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    make_stream().seal(numbered(2))

    frame = spark.read.format("mqttcore").schema("offset BIGINT, topic STRING")

    assert frame.load(str(tmp_path / "streams" / "plant")).collect() == [
        (0, "plant/1"), (1, "plant/1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffsets": '{"0": 7}'}, range(7, 10)),
        ({"endingOffsets": '{"0": 3}'}, range(3)),
        ({"startingOffsets": '{"0": 4}', "endingOffsets": '{"0": 6}'}, range(4, 6)),
        ({"startingOffsets": '{"0": "latest"}'}, []),
        ({"startingTimestamp": at(8)}, [8, 9]),
        ({"startingTimestamp": at(4), "endingTimestamp": at(6)}, [4, 5]),
        ({"startingTimestamp": str(int(at(7)) + 1)}, [8, 9]),
        ({"startingTimestamp": "2000-01-01T00:00:00Z"}, range(10)),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, []),
    ],
)
def test_reading_begins_and_ends_where_it_was_told(
    make_stream: Make, load: Load, options: dict[str, str], offsets: range
) -> None:
    stream = make_stream()
    stream.seal(numbered(5))
    stream.seal(numbered(5, base=5))

    assert places(load(**options)) == [(0, offset) for offset in offsets]


def test_a_big_range_is_read_by_several_tasks(make_stream: Make, load: Load) -> None:
    stream = make_stream(partitions=2)
    stream.seal(numbered(100))
    stream.seal(numbered(30, partition=1))

    frame = load(minPartitions=7)

    assert frame.rdd.getNumPartitions() == 7
    assert len(places(frame)) == len(set(places(frame))) == 130


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("offset >= 7", range(7, 10)),
        ("timestamp >= timestamp'2023-11-14 22:13:28'", [8, 9]),
        ("timestamp < timestamp'2023-11-14 22:13:22.5'", [0, 1, 2]),
        ("partition in (0, 5)", range(10)),
        ("not offset = 1 and offset < 3", [0, 2]),
        ("qos = 0", []),
    ],
)
def test_filters_that_spark_pushes_down_leave_the_same_rows(
    make_stream: Make, load: Load, condition: str, offsets: range
) -> None:
    stream = make_stream(partitions=2)
    stream.seal(numbered(10))

    assert places(load().where(condition)) == [(0, offset) for offset in offsets]


def filters_rows(frame: DataFrame) -> bool:
    """Whether Spark looks at each row itself."""
    return "Filter (" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.skipif(SPARK < (4, 1), reason="filters are pushed down from Spark 4.1 on")
def test_pushed_filters_are_not_applied_again(make_stream: Make, load: Load) -> None:
    make_stream().seal(numbered(3))

    assert not filters_rows(load().where("offset >= 1 and partition = 0 and topic = 'plant/1'"))
    assert filters_rows(load().where("qos = 1"))


def test_where_spark_pushes_nothing_down_the_source_still_reads(
    make_stream: Make, load: Load, spark: SparkSession
) -> None:
    make_stream().seal(numbered(3))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert places(load().where("offset >= 1")) == [(0, 1), (0, 2)]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_sql_names_the_source_behind_using(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    make_stream().seal(numbered(4))
    spark.sql(
        f"CREATE TEMPORARY VIEW plant USING mqttcore OPTIONS (path '{tmp_path}', stream 'plant')"
    )

    assert spark.sql("SELECT count(*), max(offset) FROM plant").collect() == [(4, 3)]


def test_rule_5_a_file_that_is_missing_is_an_error_that_names_the_range(
    make_stream: Make, load: Load
) -> None:
    stream = make_stream()
    stream.seal(numbered(5))
    stream.seal(numbered(5, base=5)).unlink()

    with pytest.raises(PySparkException, match=r"plant: partition 0, offsets 5 to 10"):
        load().collect()


def test_rule_5_a_gap_in_the_index_is_an_error_that_names_the_range(
    make_stream: Make, load: Load
) -> None:
    stream = make_stream()
    stream.seal(numbered(5))
    stream.seal(numbered(5, base=8))

    with pytest.raises(PySparkException, match=r"plant: partition 0, offsets 5 to 13"):
        load().collect()


def test_rule_7_offsets_below_retention_are_an_error_unless_loss_is_allowed(
    make_stream: Make, load: Load
) -> None:
    make_stream().seal(numbered(5, base=100))
    options = {"startingOffsets": '{"0": 40}'}

    with pytest.raises(PySparkException, match=r"partition 0, offsets 40 to 100 .* are deleted"):
        load(**options).collect()
    assert places(load(**options, failOnDataLoss="false")) == [(0, n) for n in range(100, 105)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": '{"0": 6}'}, "partition 0 ends at 5, offsets up to 6"),
        ({"startingOffsets": '{"0": 1, "1": 2}'}, "option startingOffsets: names partitions 0, 1"),
        ({"startingOffsets": "latest"}, "option startingOffsets = 'latest'"),
        ({"columns": "topc"}, "option columns: topc is not a column"),
        ({"colums": "topic"}, "option 'colums' is unknown; did you mean columns?"),
        ({"stream": "plnt"}, "has no stream plnt: it has plant"),
    ],
)
def test_what_is_wrong_is_said_with_its_option(
    make_stream: Make, load: Load, options: dict[str, str], words: str
) -> None:
    make_stream().seal(numbered(5))

    with pytest.raises(PySparkException) as caught:
        load(**options).collect()

    assert words in str(caught.value)


def test_a_folder_without_streams_is_named(load: Load, tmp_path: pathlib.Path) -> None:
    with pytest.raises(PySparkException, match=f"{tmp_path} has no stream plant: nothing of that"):
        load().collect()


def test_rule_4_a_stream_of_another_epoch_is_noticed_between_planning_and_reading(
    make_stream: Make, load: Load
) -> None:
    stream = make_stream()
    stream.seal(numbered(5))
    frame = load()
    # Spark plans here; the rows are read below
    assert frame.rdd.getNumPartitions() == 1
    description = json.loads((stream.root / "stream.json").read_text())
    (stream.root / "stream.json").write_text(json.dumps({**description, "epoch": 2}))

    with pytest.raises(PySparkException, match=r"planned in epoch .*:1, it has .*:2 now"):
        frame.collect()
