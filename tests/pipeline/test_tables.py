"""Tables take each batch once, whatever Spark repeats."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mqttcore.errors import PipelineError
from mqttcore.pipeline.parquet_table import ParquetTable
from mqttcore.pipeline.tables import Batch, DeltaTable, Seen, is_next

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

FIRST = Batch(name="p.silver", query="one", number=0, starts=(0, 0), ends=(60, 40))
SECOND = dataclasses.replace(FIRST, number=1, starts=(60, 40), ends=(90, 50))


def at(**changes: object) -> Batch:
    return dataclasses.replace(FIRST, **changes)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("batch", "last", "ends"),
    [
        (FIRST, None, None),
        (SECOND, 0, (60, 40)),
        # another checkpoint that goes on where the table ends
        (at(query="two", starts=(60, 40), ends=(70, 40)), None, (60, 40)),
    ],
)
def test_a_batch_that_follows_is_taken(
    batch: Batch, last: int | None, ends: tuple[int, ...] | None
) -> None:
    assert is_next(Path("t"), batch, last, ends)


@pytest.mark.parametrize(("batch", "last"), [(FIRST, 0), (FIRST, 7)])
def test_rule_9_a_batch_that_comes_again_is_not_taken_twice(batch: Batch, last: int) -> None:
    assert not is_next(Path("t"), batch, last, (60, 40))


@pytest.mark.parametrize(
    ("batch", "last", "fault"),
    [
        (at(ends=(60, 41)), 0, r"batch 0 of p.silver comes again up to \[60, 41\]"),
        (at(number=1, starts=(61, 40)), 0, r"batch 1 of p.silver begins at \[61, 40\]"),
        (at(number=1, starts=(59, 40)), 0, r"batch 1 of p.silver begins at \[59, 40\]"),
        (at(query="two"), None, r"batch 0 of p.silver begins at \[0, 0\]"),
    ],
    ids=["another end", "a gap", "rows twice", "a new checkpoint"],
)
def test_rule_9_a_batch_that_neither_follows_nor_repeats_is_refused(
    batch: Batch, last: int | None, fault: str
) -> None:
    with pytest.raises(PipelineError, match=fault):
        is_next(Path("t"), batch, last, (60, 40))


@pytest.mark.parametrize("batch", [FIRST, SECOND], ids=["repeated", "next"])
def test_rule_9_a_batch_of_a_renamed_pipeline_is_refused(batch: Batch) -> None:
    renamed = dataclasses.replace(batch, name="new.silver")

    with pytest.raises(PipelineError, match=r"none of the name new.silver: .* Give it that name"):
        is_next(Path("t"), renamed, 0, None)


def test_a_parquet_table_knows_its_query_under_another_name(tmp_path: Path) -> None:
    book = tmp_path / "_batches" / "p.silver.json"
    book.parent.mkdir()
    book.write_text('{"query": "one", "batch": 3, "ends": [60, 40], "watermark": 7}')
    table = ParquetTable(tmp_path)

    assert table.seen(FIRST) == Seen(number=3, ends=(60, 40), mark_us=7)
    assert table.seen(at(name="new.silver")) == Seen(number=3)
    assert table.seen(at(query="two")) == Seen(ends=(60, 40), mark_us=7)


def test_a_batch_that_comes_again_does_not_read_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`append` removes them: a crash before the note of the batch left them."""
    table, read = ParquetTable(tmp_path), list[list[str]]()
    for name in ("one-0000000000-00000", "one-0000000001-00000", "two-0000000001-00000"):
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"{name}.parquet")

    def rows_between(_: object, files: list[Path], *__: object, **___: object) -> None:
        read.append([file.stem for file in files])

    monkeypatch.setattr("mqttcore.pipeline.parquet_table.rows_between", rows_between)
    like: Any = None
    table.rows(like, "id", since_us=None, until_us=None, before=SECOND)
    table.rows(like, "id", since_us=None, until_us=None)

    assert read == [
        ["one-0000000000-00000", "two-0000000001-00000"],
        ["one-0000000000-00000", "one-0000000001-00000", "two-0000000001-00000"],
    ]


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=1)


def test_a_parquet_table_takes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    table = ParquetTable(tmp_path / "table")

    assert table.append(rows(spark, 100), FIRST) == 100
    assert table.append(rows(spark, 100), FIRST) is None
    before = (table.path / "_batches" / "p.silver.json").read_text()
    assert table.append(rows(spark, 40), SECOND) == 40
    # as if the process had died before it noted that
    (table.path / "_batches" / "p.silver.json").write_text(before)
    assert table.append(rows(spark, 40), SECOND) == 40

    assert spark.read.parquet(str(table.path)).count() == 140


def test_a_delta_table_takes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "table", partitioned=True)
    days = rows(spark, 90).selectExpr("id", "date_add(DATE'2026-01-30', int(id % 3)) AS day")

    assert table.append(days, FIRST) == 90
    assert table.append(days, FIRST) is None
    assert table.append(days.limit(0), SECOND) == 0
    assert table.append(days, SECOND) is None
    with pytest.raises(PipelineError, match=r"comes again up to \[90, 51\]"):
        table.append(days, dataclasses.replace(SECOND, ends=(90, 51)))

    made = deltalake.DeltaTable(table.path)
    one_day = made.to_pyarrow_table(filters=[("day", "=", datetime.date(2026, 2, 1))])
    assert sorted(one_day["id"].to_pylist()) == list(range(2, 90, 3))
    assert made.to_pyarrow_dataset().count_rows() == 90
    files = pa.table(made.get_add_actions(flatten=True)).to_pylist()
    bounds = sorted((file["num_records"], file["min.id"], file["max.id"]) for file in files)
    assert bounds == [(30, 0, 87), (30, 1, 88), (30, 2, 89)]


def test_a_tidy_table_has_the_same_rows_in_fewer_files(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "table")
    batches = [FIRST, SECOND, at(number=2, starts=(90, 50), ends=(95, 50))]
    for batch in batches:
        table.append(rows(spark, 10), batch)

    table.tidy()

    made = deltalake.DeltaTable(table.path)
    assert len(made.file_uris()) == 1
    assert sorted(made.to_pyarrow_table()["id"].to_pylist()) == sorted([*range(10)] * 3)
    assert table.append(rows(spark, 10), batches[-1]) is None
    assert table.append(rows(spark, 5), at(number=3, starts=(95, 50), ends=(96, 50))) == 5


def test_what_is_no_table_yet_is_tidy(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "table")

    table.tidy()

    assert not table.path.exists()
