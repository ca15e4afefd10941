"""Whole streams as DataFrames: `read`, `read_stream`, `retained`, `from_kafka`."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mqttcore import TopicFilter
from mqttcore.errors import StreamFileError, StreamOptionError, StreamRangeError
from mqttcore.pipeline.table_files import arrow_schema
from mqttcore.spark import (
    from_kafka,
    read,
    read_stream,
    retained,
    retained_stream,
    sealed_files,
)
from mqttcore.spark.folder import SealedFile
from mqttcore.spark.native import matches, topic_pattern
from mqttcore.spark.reading import TRIES
from mqttcore.spark.tables import late_ranges
from pyspark.errors import PySparkException

from tests.spark.conftest import numbered
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder, row_schema, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

Make = Callable[..., StreamFolder]


@pytest.fixture
def endpoint(make_stream: Make) -> Iterator[FakeEndpoint]:
    """A broker with a stream of two partitions, nothing in it."""
    with FakeEndpoint(make_stream(partitions=2)) as running:
        yield running


def test_offsets_of_late_files_are_one_range_unless_there_is_a_gap() -> None:
    def file(base: int, last: int) -> SealedFile:
        return SealedFile(path="", base=base, last=last, min_us=0, max_us=0, size_bytes=1)

    late = [[file(0, 9), file(10, 19), file(40, 49)], [], [file(5, 6)]]

    assert list(late_ranges(late, (3, 7, 5))) == [([3, 7, 5], [20, 7, 7]), ([40, 7, 5], [50, 7, 5])]
    assert list(late_ranges([[], []], (0, 0))) == []


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of each row, sorted."""
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


@pytest.mark.parametrize("at_hand", [8, 7], ids=["at once", "when Spark asks"])
def test_history_and_tail_are_one_table(
    endpoint: FakeEndpoint,
    spark: SparkSession,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    at_hand: int,
) -> None:
    monkeypatch.setattr("mqttcore.spark.tables.AT_HAND", at_hand)
    endpoint.write(numbered(20))
    endpoint.seal()
    endpoint.write(numbered(5, base=20))
    endpoint.write(numbered(3, partition=1))

    frame = read(spark, "plant", path=tmp_path)
    asked = [one for one in endpoint.asked if "/rows?" in one]

    assert len(asked) == (2 if at_hand == 8 else 0)
    assert offsets(frame) == [(0, n) for n in range(25)] + [(1, n) for n in range(3)]
    assert frame.schema == spark.read.parquet(str(endpoint.stream.root / "data")).schema


def test_rule_4_a_table_of_a_stream_that_was_restored_meanwhile_is_refused(
    endpoint: FakeEndpoint,
    spark: SparkSession,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqttcore.spark.tables.AT_HAND", 0)
    endpoint.write(numbered(5))
    made = [read(spark, "plant", path=tmp_path), retained(spark, "plant", path=tmp_path).frame]

    endpoint.epoch = f"{endpoint.epoch}9"

    for frame in made:
        with pytest.raises(PySparkException, match=r"Offsets is of epoch .*, the stream has epoch"):
            frame.count()


def test_the_broker_need_not_run(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    stream = make_stream()
    assert read(spark, "plant", path=tmp_path).isEmpty()
    stream.seal(numbered(4, topics=("plant/1", "plant/2")))

    frame = read(spark, "plant", path=tmp_path, topic="plant/2", columns=["offset", "topic"])

    assert frame.collect() == [(1, "plant/2"), (3, "plant/2")]


def test_files_in_object_storage_are_read_with_those_that_are_here(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    stream = make_stream()
    first, second = stream.seal(numbered(4)), stream.seal(numbered(3, base=4))
    moved = stream.move(first, tmp_path / "lake")
    every = [(0, offset) for offset in range(7)]

    assert offsets(read(spark, "plant", path=tmp_path)) == every
    assert sealed_files(tmp_path, "plant") == [str(moved), str(second)]
    by_source = spark.read.format("mqttcore").options(path=str(tmp_path), stream="plant").load()
    assert offsets(by_source) == every


def test_merged_and_deleted_rows_are_not_read_twice_or_at_all(
    make_stream: Make, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    stream = make_stream()
    stream.seal(numbered(4))
    stream.seal(numbered(4, base=4))
    stream.seal(numbered(9, base=8))
    index = stream.index()
    # the first two were merged, and the reader meets both forms
    merged = stream.root / "data" / "merged.parquet"
    small = stream.index_path.read_text()
    stream.write_index([[]])
    stream.seal(numbered(8)).rename(merged)
    entry = {**stream.index()[0][0], "file": merged.name}
    stream.write_index([[entry, *index[0][1:]]])
    assert small != stream.index_path.read_text()
    described = json.loads(stream.index_path.read_text())
    stream.index_path.write_text(json.dumps({**described, "earliest": [2]}))

    assert offsets(read(spark, "plant", path=tmp_path)) == [(0, n) for n in range(2, 17)]


def test_only_files_of_the_index_are_read(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "{a,b} [c]*?" / "streams" / "plant"
    stream = StreamFolder(root=root, name="plant", partitions=1).create()
    stream.seal(numbered(4))
    shutil.copy(next((stream.root / "data").iterdir()), stream.root / "data" / "other.parquet")

    frame = read(spark, "plant", path=tmp_path / "{a,b} [c]*?")

    assert offsets(frame) == [(0, n) for n in range(4)]


@pytest.mark.parametrize("is_merged", [True, False])
def test_a_file_that_is_gone_is_searched_in_the_next_index(
    make_stream: Make,
    spark: SparkSession,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    is_merged: bool,
) -> None:
    stream = make_stream()
    file = stream.seal(numbered(4))
    merged = file.rename(file.with_name("merged.parquet"))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if is_merged:
            stream.write_index([[{**stream.index()[0][0], "file": merged.name}]])

    monkeypatch.setattr("mqttcore.spark.tables.pause", pause)

    if is_merged:
        assert offsets(read(spark, "plant", path=tmp_path)) == [(0, n) for n in range(4)]
        assert len(pauses) == 1
    else:
        fault = rf"stream plant: 0 of the 1 files of the index are in {file.parent}: restore the "
        with pytest.raises(StreamFileError, match=fault):
            read(spark, "plant", path=tmp_path)
        assert len(pauses) == TRIES


def test_read_names_options_that_it_does_not_have(spark: SparkSession) -> None:
    with pytest.raises(StreamOptionError, match=r"option startingOffsets: read\(\) has ca, "):
        read(spark, "plant", path="/data", startingOffsets="earliest")


TOPICS = (
    "a", "a/b", "a/b/c", "a//c", "a//", "A/b", "ab", "/a", "/", "//", "$SYS/a", "$SYS", "$SYS//a",
    "a.b", "a\u2028b", "a/b\u2028", "a/\u2029/c", "\u2028", "\\Qa\\E", "a/(b)", "a/b c",
    "\U0001f600/b",
)  # fmt: skip
FILTERS = (
    "#",
    "+",
    "+/+",
    "a",
    "a/#",
    "a/+",
    "a/+/c",
    "+/b",
    "+/b/#",
    "/+",
    "$SYS/#",
    "+/a",
    "a.b",
    "a//#",
    "/#",
    "+/+/+",
    "+//+",
    "+/#",
    "$SYS/+",
    "$SYS//+",
    "a/+/#",
    "+/b\u2028",
    "+/b\u2028/#",
    "\\Qa\\E",
    "+/(b)",
    "+/b c",
    "\U0001f600/+",
)
LEVELS = st.text(st.sampled_from("ab$.\u2028\u2029\\QE^|*?()[]{}-& \U0001f600"), max_size=3)


@given(st.data(), st.lists(st.one_of(st.just("+"), LEVELS), min_size=1, max_size=4), st.booleans())
def test_topic_filters_as_patterns_are_those_of_mqtt(
    data: st.DataObject, levels: list[str], everything_below: bool
) -> None:
    text = "/".join([*levels, "#"] if everything_below else levels)
    topic = "/".join(data.draw(LEVELS) if level == "+" else level for level in levels)
    topic += data.draw(st.one_of(st.just(""), LEVELS, st.just("/"), LEVELS.map("/".__add__)))
    assume(text and topic)

    # Python has no \z before 3.14: its \Z is that, and Java's is another one
    pattern = topic_pattern(text).removesuffix("z") + "Z"

    assert bool(re.search(pattern, topic)) == TopicFilter(text).matches(topic)


def test_topic_filters_of_spark_are_those_of_mqtt(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(topic,) for topic in TOPICS], "topic STRING")

    found = frame.select("topic", *(matches(one).alias(f"f{n}") for n, one in enumerate(FILTERS)))

    for row in found.collect():
        expected = [TopicFilter(one).matches(row["topic"]) for one in FILTERS]
        assert list(row[1:]) == expected, row["topic"]


def test_a_stream_by_its_url(
    endpoint: FakeEndpoint, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    url = f"mqttcore://{tmp_path}?stream=plant&columns=offset"
    assert read_stream(spark, url).columns == ["offset"]

    frame = read_stream(spark, url, columns=["topic"])

    assert (frame.isStreaming, frame.columns) == (True, ["topic"])
    with pytest.raises(StreamOptionError, match="allowed are delta://, http://, kafka://"):
        read_stream(spark, "mqtt://broker:1883")


def test_rule_11_retained_messages_are_the_last_of_each_topic_at_one_place(
    endpoint: FakeEndpoint, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    def keep(topic: str, payload: bytes, *, retain: bool = True) -> dict[str, Any]:
        return {"topic": topic, "payload": payload, "retain": retain}

    endpoint.write(
        rows([keep("a", b"1"), keep("b", b"1"), keep("a", b"2"), keep("a", b"x", retain=False)])
    )
    endpoint.seal()
    endpoint.write(rows([keep("b", b""), keep("c", b"3")], base=4))

    now = retained(spark, "plant", path=tmp_path)
    before = retained(spark, "plant", path=tmp_path, at='{"0": 4, "1": 0}')

    assert sorted((row.topic, bytes(row.payload)) for row in now.frame.collect()) == [
        ("a", b"2"), ("c", b"3"),
    ]  # fmt: skip
    assert sorted((row.topic, row.offset) for row in before.frame.collect()) == [("a", 2), ("b", 1)]
    assert json.loads(before.offsets) == {"0": 4, "1": 0, "epoch": endpoint.epoch}
    after = spark.read.format("mqttcore").options(startingOffsets=before.offsets, stream="plant")
    assert offsets(after.load(str(tmp_path))) == [(0, 4), (0, 5)]


def test_retained_messages_as_a_stream_go_on_from_their_table(
    endpoint: FakeEndpoint, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    def keep(topic: str, payload: bytes, *, retain: bool = True) -> dict[str, Any]:
        return {"topic": topic, "payload": payload, "retain": retain}

    def take(changed: DataFrame, _: int) -> None:
        found.extend((row.topic, bytes(row.payload), row.offset) for row in changed.collect())

    endpoint.write(rows([keep("a", b"1"), keep("b", b"1"), keep("c", b"1")]))
    table = retained(spark, "plant", path=tmp_path)
    endpoint.write(rows([keep("a", b"2"), keep("a", b"3"), keep("b", b"x", retain=False)], base=3))
    endpoint.write(rows([keep("b", b""), keep("a", b"x", retain=False)], base=6))
    found: list[tuple[str, bytes, int]] = []

    frame = retained_stream(
        spark,
        f"mqttcore://{tmp_path}?stream=plant",
        startingOffsets=table.offsets,
        maxRowsPerTrigger=3,
    )
    writer = frame.writeStream.outputMode("update").foreachBatch(take)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()

    assert sorted(found) == [("a", b"3", 4), ("b", b"", 6)]


def test_a_place_that_is_not_there_yet_has_no_retained_messages(
    endpoint: FakeEndpoint, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(StreamRangeError, match="partition 0 ends at 0, offsets up to 4"):
        retained(spark, "plant", path=tmp_path, at='{"0": 4, "1": 0}')


def test_records_of_kafka_have_the_columns_of_a_stream(spark: SparkSession) -> None:
    headers = [
        ("qos", b"1"), ("retain", b"true"), ("client_id", b"device"), ("expiry", b"60"),
        ("timestamp_us", b"1700000000000001"), ("correlation_data", b"\xff"),
        ("user.unit", b"C"), ("user.unit", b"K"),
    ]  # fmt: skip
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    records = spark.createDataFrame(
        [
            (bytearray(b"a/b"), bytearray(b"21"), 3, 17, moment, headers),
            (bytearray(b"c"), None, 0, 1, moment, None),
        ],
        "key BINARY, value BINARY, partition INT, offset LONG, timestamp TIMESTAMP,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )

    frame = from_kafka(records)

    types = [(field.name, field.type) for field in arrow_schema(frame)]
    assert types == [(field.name, field.type) for field in row_schema()]
    full, bare = frame.collect()
    assert (full.topic, bytes(full.payload), full.qos, full.retain) == ("a/b", b"21", 1, True)
    assert full.timestamp == datetime(2023, 11, 14, 22, 13, 20, 1, UTC).replace(tzinfo=None)
    assert (bytes(full.correlation_data), full.expiry) == (b"\xff", 60)
    assert full.user_properties == [("unit", "C"), ("unit", "K")]
    assert (bare.qos, bare.retain, bare.client_id, bare.expiry) == (0, False, "", None)
    assert (bytes(bare.payload), bare.user_properties) == (b"", [])
