"""A file that changes under its tables: what is carried over, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from mqttcore.errors import PipelineError
from mqttcore.pipeline.__main__ import main
from mqttcore.pipeline.config import Gold, Pipeline, Silver
from mqttcore.pipeline.definitions import TablesChangedError, definition_of
from mqttcore.pipeline.run import run

from tests.pipeline.test_main import FILE, MORE, lent
from tests.pipeline.test_run import Make, held, message, pipeline
from tests.stream_folder import StreamFolder, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lent"]

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

GOLD = Gold(
    name="by_minute",
    window="1 minute",
    group_by=("machine",),
    columns=("count(*) AS measured", "max(temperature) AS highest"),
)
SILVER = Silver(
    schema="machine STRING, temperature DOUBLE, at TIMESTAMP",
    event_time="at",
    watermark="10 seconds",
)


def begun(folder: StreamFolder, spark: SparkSession, **changes: Any) -> Pipeline:  # noqa: ANN401
    """A pipeline whose tables have a minute."""
    folder.seal(rows([message(second, pressure=second) for second in (0, 10, 100)]))
    chosen = pipeline(folder.root.parents[1], silver=SILVER, gold=(GOLD,), **changes)
    run(chosen, spark=spark, once=True)
    return chosen


def changed(chosen: Pipeline, table: str, **changes: Any) -> Pipeline:  # noqa: ANN401
    """The pipeline with another ``[silver]``, or another gold table."""
    if table == "silver":
        return dataclasses.replace(chosen, silver=dataclasses.replace(chosen.silver, **changes))
    return dataclasses.replace(chosen, gold=(dataclasses.replace(GOLD, **changes),))


WIDER = "machine STRING, temperature DOUBLE, at TIMESTAMP, pressure BIGINT"


def test_new_columns_are_carried_over_into_delta_tables(
    spark: SparkSession, make_stream: Make
) -> None:
    folder = make_stream()
    chosen = begun(folder, spark)
    wider = changed(chosen, "silver", schema=WIDER)
    wider = changed(wider, "gold", columns=(*GOLD.columns, "max(pressure) AS pressed"))
    folder.seal(rows([message(second, pressure=second) for second in (130, 300)], base=3))

    run(wider, spark=spark, once=True)
    run(wider, spark=spark, once=True)

    home = folder.root.parents[1]
    silver = {row["offset"]: row["pressure"] for row in held(home, "silver")}
    assert silver == {0: None, 1: None, 2: None, 3: 130, 4: 300}
    gold = sorted(
        (row["window_start"], row["measured"], row["pressed"]) for row in held(home, "by_minute")
    )
    assert [row[1:] for row in gold] == [(2, None), (2, 130)]
    fields = deltalake.DeltaTable(home / "tables" / "silver").schema().fields
    assert [(field.name, field.nullable) for field in fields][-1] == ("pressure", True)
    with pytest.raises(TablesChangedError, match="has a column pressure, the file has none"):
        run(chosen, spark=spark, once=True)


REFUSED: list[tuple[str, dict[str, Any], set[str], str]] = [
    (
        "silver",
        {"schema": "machine STRING, temperature FLOAT, at TIMESTAMP"},
        {"silver.schema", "gold[0].columns"},
        "has the column temperature as double, the file as float",
    ),
    (
        "silver",
        {
            "schema": "machine STRING, temperature DOUBLE, at TIMESTAMP",
            "event_time": "timestamp",
        },
        {"silver.event_time"},
        "was made with event_time = at, the file has timestamp",
    ),
    (
        "gold",
        {"columns": ("count(*) AS measured", "min(temperature) AS highest")},
        {"gold[0].columns"},
        "made with columns = max(temperature) AS highest, the file has count(*) AS measured,"
        " min(temperature) AS highest",
    ),
    (
        "gold",
        {"group_by": ()},
        {"gold[0].group_by"},
        "group_by = machine, the file has nothing",
    ),
    (
        "gold",
        {"group_by": ("machine", "topic")},
        {"gold[0].group_by"},
        "was made with group_by = machine, the file has machine, topic",
    ),
    (
        "gold",
        {"window": "2 minutes"},
        {"gold[0].window", "gold[0].slide"},
        "window = 1 minute,",
    ),
]
"""Table, changes, the keys that the error names, and a part of its text."""


def test_other_changes_are_refused_and_nothing_is_written(
    spark: SparkSession, make_stream: Make
) -> None:
    folder = make_stream()
    home = folder.root.parents[1]
    chosen = begun(folder, spark)
    folder.seal(rows([message(second) for second in (130, 300)], base=3))
    before = {name: len(held(home, name)) for name in ("silver", "by_minute")}

    for table, changes, keys, what in REFUSED:
        with pytest.raises(TablesChangedError) as refused:
            run(changed(chosen, table, **changes), spark=spark, once=True)

        assert {each.key for each in refused.value.changes} == keys
        assert what in str(refused.value)
        assert str(home / "tables") in str(refused.value)
        assert {name: len(held(home, name)) for name in before} == before
    run(chosen, spark=spark, once=True)


def test_a_gold_table_that_is_removed_is_computed_again(
    spark: SparkSession, make_stream: Make
) -> None:
    """The cure that the error names."""
    import shutil

    folder = make_stream()
    chosen = begun(folder, spark)
    other = changed(chosen, "gold", columns=("min(temperature) AS lowest",))
    folder.seal(rows([message(300)], base=3))
    home = folder.root.parents[1]
    shutil.rmtree(home / "tables" / "by_minute")

    run(other, spark=spark, once=True)

    assert sorted(row["lowest"] for row in held(home, "by_minute")) == [20.0, 20.0]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_tables_of_an_earlier_version_are_held_against_their_columns(
    spark: SparkSession, make_stream: Make, kind: str
) -> None:
    folder = make_stream()
    chosen = begun(folder, spark, format=kind)
    tables = folder.root.parents[1] / "tables"
    for name in ("silver", "by_minute"):
        if kind == "delta":
            table = deltalake.DeltaTable(tables / name)
            table.alter.set_table_properties({"mqttcore.definition": ""}, raise_if_not_exists=False)
        else:
            (tables / name / "_definition.json").unlink()

    with pytest.raises(PipelineError, match=r"gold\[0\].group_by: .* that topic does not group"):
        run(changed(chosen, "gold", group_by=("machine", "topic")), spark=spark, once=True)
    with pytest.raises(PipelineError, match=r"gold\[0\].columns: .* a column measured, the file"):
        run(changed(chosen, "gold", columns=GOLD.columns[1:]), spark=spark, once=True)

    run(chosen, spark=spark, once=True)
    with pytest.raises(PipelineError, match="made with columns = max"):
        run(
            changed(chosen, "gold", columns=(GOLD.columns[0], "min(temperature) AS highest")),
            spark=spark,
            once=True,
        )


def test_a_parquet_table_gets_no_further_columns(spark: SparkSession, make_stream: Make) -> None:
    chosen = begun(make_stream(), spark, format="parquet")

    with pytest.raises(TablesChangedError, match="no column pressure, and only a Delta table"):
        run(changed(chosen, "silver", schema=WIDER), spark=spark, once=True)


@pytest.mark.usefixtures("lent")
@pytest.mark.parametrize("option", ["--once", "--dry-run"])
def test_the_error_names_file_and_line(
    tmp_path: Path, make_stream: Make, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    make_stream().seal(rows([message(0), message(100)]))
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE + MORE.partition("[[alerts]]")[0])
    assert main([str(file), "--once"]) == 0
    file.write_text(file.read_text().replace("DOUBLE", "FLOAT").replace("max(", "min("))

    assert main([str(file), option]) == 2

    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first.startswith(f"{file}:9:10: silver.schema: table silver ({tmp_path}/tables/silver) ")
    assert "; put it back, or give the pipeline another folder for its tables" in first
    assert second.startswith(f"{file}:15:11: gold[0].columns: table by_minute ")
    assert f"or remove {tmp_path}/tables/by_minute: the table is computed" in second


@pytest.mark.usefixtures("lent")
def test_a_dry_run_marks_new_columns(
    tmp_path: Path, make_stream: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stream().seal(rows([message(0)]))
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE)
    assert main([str(file), "--once"]) == 0
    file.write_text(FILE.replace("DOUBLE", "DOUBLE, pressure BIGINT"))

    assert main([str(file), "--dry-run"]) == 0

    new = [line.split() for line in capsys.readouterr().out.splitlines() if "(new)" in line]
    assert new == [["pressure", "bigint", "(new)"]]
    fields = deltalake.DeltaTable(tmp_path / "tables" / "silver").schema().fields
    assert "pressure" not in [field.name for field in fields]


def test_the_way_a_definition_is_written_has_no_meaning(tmp_path: Path) -> None:
    one = pipeline(tmp_path, gold=(GOLD,))
    other = dataclasses.replace(
        GOLD,
        window="1 minutes",
        slide="1 minute",
        columns=("max(temperature)  AS\n highest", "count(*) AS measured"),
    )

    found = definition_of(pipeline(tmp_path, gold=(other,)), "by_minute")

    assert found == definition_of(one, "by_minute")
    assert json.loads(json.dumps(found)) == found
