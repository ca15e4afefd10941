"""Tables in an object store: the same rows, each once, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest
from mqttcore.errors import ConfigError, PipelineError
from mqttcore.pipeline.config import load
from mqttcore.pipeline.locations import Location
from mqttcore.pipeline.tables import Batch, DeltaTable
from pyarrow import fs

from tests.kafka.jars import S3A
from tests.pipeline import store_server
from tests.pipeline.test_batches import GOLD, NOISY, WATERMARK, kept_windows, windows_of
from tests.pipeline.test_config import LEAST, written
from tests.pipeline.test_kill import FILE
from tests.pipeline.test_run import Make
from tests.stream_folder import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # two JVMs start, one after another
needs_store = pytest.mark.skipif(
    store_server.is_missing(), reason="moto is missing: make .make/moto installs it"
)

needs_s3a = pytest.mark.skipif(
    not S3A.folder.is_dir(),
    reason="the jars of s3a are missing: make .make/kafka/jars/s3a (700 MB)",
)
READ = """
import json, sys
from mqttcore.spark import read, session
spark = session(**json.loads(sys.argv[2]))
frame = read(spark, "plant", path=sys.argv[1])
print(json.dumps(sorted(frame.inputFiles())))
print(json.dumps(sorted(row.offset for row in frame.collect())))
"""


def s3a_settings(storage: dict[str, str]) -> dict[str, str]:
    """What Spark itself needs for a store."""
    settings = {
        "jars": ",".join(map(str, S3A.folder.glob("*.jar"))),
        "hadoop.fs.s3a.endpoint": storage["AWS_ENDPOINT_URL"],
        "hadoop.fs.s3a.path.style.access": "true",
        "hadoop.fs.s3a.access.key": storage["AWS_ACCESS_KEY_ID"],
        "hadoop.fs.s3a.secret.key": storage["AWS_SECRET_ACCESS_KEY"],
    }
    return {f"spark.{name}": value for name, value in settings.items()}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options of a store with the bucket ``lake``."""
    with store_server.store("lake", tmp_path_factory.mktemp("store") / "log") as options:
        yield options


@needs_store
def test_a_table_of_a_store_takes_each_batch_once(
    spark: SparkSession, storage: dict[str, str]
) -> None:
    place = Location("s3a://lake/once", storage)
    table = DeltaTable(place, partitioned=True)
    first = Batch(name="p.silver", query="one", number=0, starts=(0,), ends=(90,))
    days = spark.range(90).selectExpr("id", "date_add(DATE'2026-01-30', int(id % 3)) AS day")

    assert table.append(days, first) == 90
    assert table.append(days, first) is None
    with pytest.raises(PipelineError, match="s3a://lake/once: has the source up to"):
        table.append(days, Batch(name="p.silver", query="one", number=1, starts=(80,), ends=(91,)))

    made = deltalake.DeltaTable(str(place), storage_options=storage)
    assert sorted(made.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == list(range(90))


@needs_store
def test_the_second_of_two_writers_of_a_batch_is_refused(
    spark: SparkSession, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store has no lock of a folder: the log of the table decides."""
    place = Location("s3a://lake/twice", storage)
    batches = [
        Batch(name="p.silver", query="one", number=number, starts=(number,), ends=(number + 1,))
        for number in range(2)
    ]
    DeltaTable(place).append(spark.range(1), batches[0])

    def overtaken(*_: object) -> list[object]:
        """While the files of one are written, the other one commits."""
        monkeypatch.undo()
        assert DeltaTable(place).append(spark.range(1), batches[1]) == 1
        return []

    monkeypatch.setattr("mqttcore.pipeline.tables.write_all", overtaken)
    with pytest.raises(deltalake.exceptions.DeltaError, match="oncurrent transaction"):
        DeltaTable(place).append(spark.range(1), batches[1])

    made = deltalake.DeltaTable(str(place), storage_options=storage)
    assert made.to_pyarrow_dataset().count_rows() == 2


def start(file: Path) -> subprocess.Popen[str]:
    """A pipeline that reads all rows, and then ends."""
    command = [sys.executable, "-m", "mqttcore.pipeline", str(file), "--once", "--json"]
    return subprocess.Popen(  # noqa: S603 -- our own command
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def held(table: str, storage: dict[str, str], of: str = "factory") -> list[dict[str, object]]:
    """The rows of a table of the store."""
    made = deltalake.DeltaTable(f"s3a://lake/{of}/{table}", storage_options=storage)
    found: list[dict[str, object]] = made.to_pyarrow_table().to_pylist()
    return found


@needs_store
def test_rule_9_rows_are_in_each_table_of_a_store_once_after_a_kill(
    tmp_path: Path, make_stream: Make, storage: dict[str, str]
) -> None:
    options = json.dumps([f"{name}={value}" for name, value in storage.items()])
    places = f'tables = "s3a://lake/factory"\ncheckpoints = "state"\nstorage = {options}'
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE.replace('tables = "tables"', places))
    make_stream().seal(rows(NOISY))
    first = start(file)
    assert first.stdout is not None
    told = next(line for line in first.stdout if json.loads(line)["batch"] == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(60)
    first.stdout.close()

    with start(file) as second:
        assert second.stdout is not None
        lines = [json.loads(line) for line in second.stdout]

    assert told
    assert second.returncode == 0
    assert all(line["batch"] > 1 for line in lines)
    offsets = {
        name: sorted(row["offset"] for row in held(name, storage))  # type: ignore[type-var]
        for name in ("bronze", "silver", "quarantine")
    }
    assert offsets["bronze"] == list(range(len(NOISY)))
    repeats = set(offsets["bronze"]) - set(offsets["silver"]) - set(offsets["quarantine"])
    assert repeats == {2, 4, 10}
    assert len(offsets["silver"]) + len(offsets["quarantine"]) + len(repeats) == len(NOISY)
    silver = held("silver", storage)
    for gold in GOLD:
        found = kept_windows(held(gold.name, storage))
        assert found == windows_of(silver, gold, WATERMARK), gold.name
    assert not (tmp_path / "s3a:").exists()


@needs_store
@needs_s3a
def test_spark_itself_reads_sealed_files_in_a_store(
    tmp_path: Path, make_stream: Make, storage: dict[str, str]
) -> None:
    stream = make_stream()
    first = stream.seal(rows(NOISY[:4]))
    stream.seal(rows(NOISY[4:], base=4))
    moved = stream.move(first, tmp_path / "moved")
    url = "s3://lake/tier/{plant}"  # braces mean something in a glob
    store = fs.S3FileSystem(
        endpoint_override=storage["AWS_ENDPOINT_URL"],
        access_key=storage["AWS_ACCESS_KEY_ID"],
        secret_key=storage["AWS_SECRET_ACCESS_KEY"],
    )
    for name in (moved.name, "other.parquet"):
        with store.open_output_stream(f"{url.removeprefix('s3://')}/{name}") as out:
            out.write(moved.read_bytes())
    index = json.loads(stream.index_path.read_text())
    stream.index_path.write_text(json.dumps({**index, "tier": url}))

    command = [sys.executable, "-c", READ, str(tmp_path), json.dumps(s3a_settings(storage))]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603

    places, offsets = map(json.loads, found.stdout.splitlines()[-2:])
    assert offsets == list(range(len(NOISY)))
    assert [place.split(":")[0] for place in places] == ["file", "s3a"]


@needs_store
@needs_s3a
def test_a_checkpoint_in_a_store_goes_on_after_a_kill(
    tmp_path: Path, make_stream: Make, storage: dict[str, str]
) -> None:
    file = tmp_path / "pipeline.toml"
    options = json.dumps([f"{name}={value}" for name, value in storage.items()])
    conf = json.dumps([f"{name}={value}" for name, value in s3a_settings(storage).items()])
    places = f'tables = "s3a://lake/whole"\nstorage = {options}\n[spark]\nconf = {conf}'
    file.write_text(FILE.replace('tables = "tables"', places))
    make_stream().seal(rows(NOISY))
    first = start(file)
    assert first.stdout is not None
    told = next(line for line in first.stdout if json.loads(line)["batch"] == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(60)
    first.stdout.close()

    with start(file) as second:
        assert second.stdout is not None
        lines = [json.loads(line) for line in second.stdout]

    assert told
    assert second.returncode == 0
    assert lines
    assert all(line["batch"] >= 1 for line in lines)
    found = sorted(row["offset"] for row in held("bronze", storage, "whole"))  # type: ignore[type-var]
    assert found == list(range(len(NOISY)))
    assert not (tmp_path / "s3a:").exists()


def test_places_of_a_file(tmp_path: Path) -> None:
    remote = load(
        written(tmp_path, 'tables = "s3a://lake/factory/"\nstorage = ["A_B=c=d"]\n' + LEAST)
    )
    assert str(remote.table("silver")) == "s3a://lake/factory/silver"
    assert remote.table("silver").options == {"A_B": "c=d"}
    assert str(remote.checkpoint()) == "s3a://lake/factory/_checkpoints"
    assert "c=d" not in repr(remote.table("silver"))

    dotted = load(written(tmp_path, 'tables = "./main.factory"\n' + LEAST))
    assert dotted.table("silver").path == tmp_path / "main.factory" / "silver"
    local = load(written(tmp_path, 'tables = "lake"\ncheckpoints = "/state"\n' + LEAST))
    assert local.table("silver").path == tmp_path / "lake" / "silver"
    assert (local.checkpoint().path, local.checkpoint().is_remote) == (Path("/state"), False)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ('tables = "hdfs://host/lake"', "tables: hdfs:// is not supported; a path, or one of abfs"),
        ('tables = "s3a:///lake"', "tables: 's3a:///lake' names no bucket or container"),
        ('tables = "main.factory"', 'tables: "main.factory" is a name in a catalog, where no com'),
        ('tables = "lake.main.plant"', "CREATE TABLE lake.main.plant.silver USING delta LOCATION"),
        ('tables = "lake.main"', "or a folder: ./lake.main"),
        ('tables = ""', "tables: is empty; allowed: a folder, or a URI as s3a://"),
        (
            'storage = ["key"]\ntables = "s3://b"',
            "storage[0]: is not an option; allowed: an option",
        ),
        ('storage = ["A=b"]', "storage: has no effect: neither tables nor checkpoints are in an"),
        (
            'tables = "gs://b/t"\nformat = "parquet"',
            "format: Parquet tables are folders: an object",
        ),
    ],
)
def test_a_place_that_is_wrong_is_named(tmp_path: Path, more: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, f"{more}\n{LEAST}"))

    [line] = refused.value.faults
    assert fault in line
