"""A stream's sealed files as a Delta table."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.errors import PipelineError
from mqttcore.pipeline.__main__ import main
from mqttcore.pipeline.lake import Change, refresh
from mqttcore.spark.folder import StreamFolder as Folder
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream

from tests.stream_folder import StreamFolder, rows


@pytest.fixture
def plant(tmp_path: pathlib.Path) -> StreamFolder:
    """A stream of two partitions."""
    return StreamFolder(root=tmp_path / "streams" / "plant", partitions=2).create()


def offsets(stream: StreamFolder) -> list[tuple[int, int]]:
    """What the table has."""
    held = deltalake.DeltaTable(stream.root / "delta").to_pyarrow_table()
    return sorted(zip(held["partition"].to_pylist(), held["offset"].to_pylist(), strict=True))


def some(count: int, *, base: int = 0, partition: int = 0) -> pa.Table:
    return rows([{"payload": b"x"}] * count, base=base, partition=partition)


def change_index(stream: StreamFolder, entries: list[dict[str, Any]], *, earliest: int) -> None:
    """What the broker's sealer writes of partition 0."""
    index = {"partitions": [entries, []], "earliest": [earliest, 0]}
    stream.index_path.write_text(json.dumps(index))


def test_a_table_follows_what_is_sealed(plant: StreamFolder) -> None:
    stream = Folder(plant.root)
    assert refresh(stream) == Change(0, 0, 0)
    plant.seal(some(10))
    plant.seal(some(5, partition=1))

    assert refresh(stream) == Change(added=2, removed=0, rows=15)
    assert refresh(stream) == Change(added=0, removed=0, rows=15)
    plant.seal(some(3, base=10))
    assert refresh(stream) == Change(added=1, removed=0, rows=18)

    assert offsets(plant) == [*((0, at) for at in range(13)), *((1, at) for at in range(5))]
    table = deltalake.DeltaTable(plant.root / "delta")
    assert (table.transaction_version("plant/0"), table.transaction_version("plant/1")) == (12, 4)
    files = [*(plant.root / "delta").glob("*.parquet")]
    assert [file.stat().st_nlink for file in files] == [2, 2, 2]


def test_a_broker_does_not_mind_the_table_in_its_folder(tmp_path: pathlib.Path) -> None:
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(tmp_path),
        streams=(Stream(name="plant", filter=("plant/#",)),),
    )
    for run in (1, 2):
        with Broker(settings) as broker, StreamClient(broker.settings.data) as endpoint:
            for number in range(10):
                broker.publish("plant/m1", str(number), qos=1)
            while endpoint.stream("plant").partitions[0].end < 10 * run:
                """Rows are seen a little after they are safe."""
            endpoint.seal("plant")
            change = refresh(Folder(tmp_path / "streams" / "plant"))
        assert change == Change(added=1, removed=0, rows=10 * run)


def test_merged_and_retired_files_leave_in_the_commit_that_replaces_them(
    plant: StreamFolder,
) -> None:
    for base in range(0, 40, 10):
        plant.seal(some(10, base=base))
    stream = Folder(plant.root)
    refresh(stream)
    first, second, _, last = plant.index()[0]
    # a merge gives the first of its files all of their rows
    plant.seal(some(20, base=10))
    merged = plant.index()[0][-1]
    assert merged["file"] == second["file"]
    change_index(plant, [first, merged, last], earliest=10)

    assert refresh(stream) == Change(added=1, removed=3, rows=30)

    assert offsets(plant) == [(0, at) for at in range(10, 40)]
    version = deltalake.DeltaTable(plant.root / "delta").version()
    log = plant.root / "delta" / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    changes = {
        kind: sorted(action[kind]["dataChange"] for action in actions if kind in action)
        for kind in ("add", "remove")
    }
    # who follows the table is not told rows again that only moved
    assert changes == {"add": [False], "remove": [False, False, True]}


def test_delta_shortens_a_tables_log_by_itself(tmp_path: pathlib.Path) -> None:
    """Every hundred commits: a checkpoint, and what is older than its retention goes."""
    kept = {"delta.logRetentionDuration": "interval 0 days"}
    schema = pa.schema([("offset", pa.int64())])
    table = deltalake.DeltaTable.create(tmp_path, schema=schema, configuration=kept)

    for version in range(1, 101):
        seen = [deltalake.Transaction(app_id="plant/0", version=version)]
        properties = deltalake.CommitProperties(app_transactions=seen)
        table.create_write_transaction([], "append", schema, commit_properties=properties)
        table.update_incremental()

    log = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert "_last_checkpoint" in log
    assert len(log) < 10, sorted(log)
    assert deltalake.DeltaTable(tmp_path).transaction_version("plant/0") == 100


def test_a_column_that_comes_later_is_null_before(plant: StreamFolder) -> None:
    plant.seal(some(2))
    refresh(Folder(plant.root))
    plant.seal(some(2, base=2).append_column("machine", [["a", "b"]]))

    refresh(Folder(plant.root))

    table = deltalake.DeltaTable(plant.root / "delta").to_pyarrow_table()
    machines = dict(zip(table["offset"].to_pylist(), table["machine"].to_pylist(), strict=True))
    assert machines == {0: None, 1: None, 2: "a", 3: "b"}


def test_another_epoch_is_refused(plant: StreamFolder) -> None:
    plant.seal(some(2))
    refresh(Folder(plant.root))
    described = json.loads((plant.root / "stream.json").read_text())
    (plant.root / "stream.json").write_text(json.dumps(described | {"epoch": 2}))

    with pytest.raises(PipelineError, match=r"epoch .*:1, but the stream has epoch .*:2"):
        refresh(Folder(plant.root))


def test_a_file_that_is_not_what_the_index_says_is_named(plant: StreamFolder) -> None:
    path = plant.seal(some(10))
    (entry,) = plant.index()[0]
    change_index(plant, [entry | {"last": 8}], earliest=0)

    with pytest.raises(PipelineError, match=f"{path}: differs from the file in"):
        refresh(Folder(plant.root))

    assert not list((plant.root / "delta").glob("*.parquet"))


def test_the_command_says_what_it_did(
    plant: StreamFolder, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant.seal(some(10))

    assert main(["delta", str(tmp_path), "plant"]) == 0
    assert main(["delta", str(tmp_path), "nothing"]) == 1

    said = capsys.readouterr()
    assert said.out == f"{plant.root}/delta: 10 rows; files added 1, removed 0\n"
    assert "no stream nothing" in said.err
