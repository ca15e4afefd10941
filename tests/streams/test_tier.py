"""Sealed files in object storage: a mounted folder, and an S3-compatible server (moto)."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from mqttcore._core import has_object_stores
from mqttcore._socket_path import short
from mqttcore.errors import StreamFileError
from mqttcore.spark import sealed_files
from mqttcore.spark.folder import StreamFolder
from mqttcore.spark.objects import opened
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.eventually import eventually
from tests.operations.api import UnixConnection
from tests.pipeline import store_server
from tests.streams.conftest import CONFIG, PATIENCE_S, Plant
from tests.streams.tier_kills import Verdict, verdict
from tests.wire import Wire

TIER = """
[streams.tier]
url = "{url}"
storage = {storage}
upload_after = "1s"
local_age = "1s"
grace = "1s"
"""


@contextmanager
def running(folder: pathlib.Path, url: str, storage: Mapping[str, str]) -> Iterator[Plant]:
    """A broker in ``folder`` whose files go to ``url``."""
    config = folder / "mqttcore.toml"
    options = json.dumps([f"{name}={value}" for name, value in storage.items()])
    config.write_text(CONFIG.format(partitions=1) + TIER.format(url=url, storage=options))
    server = ServerProcess(data=folder / "data", config=config)
    server.start()
    plant = Plant(server=server, partitions=1)
    try:
        yield plant
    finally:
        plant.client.close()
        server.kill()


def publish(plant: Plant, numbers: range) -> None:
    """One acknowledged message for each number."""
    with Wire(plant.server.port) as wire:
        wire.connect("writer")
        for number in numbers:
            wire.publish("plant/1", b"%d" % number, qos=1)


def moved(plant: Plant) -> pathlib.Path:
    """Seals, and waits until all files are in object storage only; the folder of the stream."""
    info = plant.client.seal("plant")
    deadline = time.monotonic() + PATIENCE_S
    while list((info.path / "data").glob("*.parquet")):
        tier = plant.client.tier("plant")
        assert time.monotonic() < deadline, tier
        time.sleep(0.1)
    return info.path


def numbers(table: pa.Table) -> list[int]:
    """The payloads in the order of their offsets, which are dense."""
    table = table.sort_by("offset")
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    return [int(payload) for payload in table["payload"].to_pylist()]


def by_endpoint(client: StreamClient) -> pa.Table:
    """What the broker reads of objects for others."""
    files = client.files("plant")["partitions"][0]
    parts = []
    for file in files:
        with client.file("plant", file["file"]) as body:
            parts.append(pq.read_table(pa.BufferReader(body.read())))
    return pa.concat_tables(parts)


def by_folder(folder: pathlib.Path) -> pa.Table:
    """What the Spark source reads in a worker that sees the data folder."""
    found = StreamFolder(folder)
    parts = []
    for file in found.index().files[0]:
        with found.at_hand(file, file.base, file.last + 1) as path:
            parts.append(pq.read_table(path))
    return pa.concat_tables(parts)


def by_url(url: str) -> pa.Table:
    """What other tools read: Parquet at URLs."""
    parts = []
    for place in sealed_files(f"{url}/plant"):
        filesystem, path = (
            (pafs.LocalFileSystem(), place) if place.startswith("/") else opened(place)
        )
        parts.append(pq.read_table(path, filesystem=filesystem))
    return pa.concat_tables(parts)


def check(tmp_path: pathlib.Path, url: str, storage: Mapping[str, str]) -> None:
    """Files move and are read; the disk is lost, and the stream goes on."""
    with running(tmp_path, url, storage) as plant:
        publish(plant, range(5))
        folder = moved(plant)
        publish(plant, range(5, 9))
        moved(plant)
        old = plant.client.stream("plant").epoch
        for table in (by_endpoint(plant.client), by_folder(folder), by_url(url)):
            assert numbers(table) == list(range(9))
    shutil.rmtree(tmp_path / "data")
    assert numbers(by_url(url)) == list(range(9))
    with running(tmp_path, url, storage) as plant:
        info = plant.client.stream("plant")
        assert (info.partitions[0].earliest, info.partitions[0].end) == (0, 9)
        assert info.epoch != old
        publish(plant, range(9, 12))
        moved(plant)
        for table in (by_endpoint(plant.client), by_folder(info.path), by_url(url)):
            assert numbers(table) == list(range(12))


def test_files_move_to_a_folder_and_a_lost_disk_loses_no_row_of_them(
    tmp_path: pathlib.Path,
) -> None:
    # the URL of a folder names its streams there
    (tmp_path / "store").mkdir()
    check(tmp_path, f"file://{tmp_path}/store", {})


@pytest.mark.skipif(not has_object_stores, reason="this build has no object stores")
@pytest.mark.skipif(store_server.is_missing(), reason="moto is not installed: make .make/moto")
def test_the_same_holds_for_an_s3_compatible_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_server.store("lake", tmp_path / "store.log") as options:
        for name, value in options.items():
            monkeypatch.setenv(name, value)
        check(tmp_path, "s3://lake/tier", options)


def test_an_object_that_cannot_be_reached_says_what_to_do(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    with pytest.raises(StreamFileError, match="read through the broker: option endpoint"):
        sealed_files("s3://lake/plant")


def test_the_endpoint_tells_of_object_storage(tmp_path: pathlib.Path) -> None:
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store"
    with running(tmp_path, url, {}) as plant, closing(StreamClient(plant.server.data)) as client:
        assert client.tier("plant") == {
            "url": f"{url}/plant/data",
            "waiting_files": 0,
            "remote_files": 0,
            "uploaded_bytes": 0,
            "problem": None,
        }


def tier_metrics(plant: Plant) -> dict[str, float]:
    """The families of object storage, without the start of their names."""
    with short(plant.server.data / "http") as place, closing(UnixConnection(place)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.findall(r"^mqttcore_stream_tier_(\w+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_metrics_tell_of_files_that_do_not_move(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with running(tmp_path, f"file://{store}", {}) as plant:
        publish(plant, range(3))
        moved(plant)
        uploaded = tier_metrics(plant)
        store.rename(tmp_path / "not mounted")
        publish(plant, range(3, 6))
        plant.client.seal("plant")
        eventually(lambda: tier_metrics(plant)["failing"] == 1)
        failing = tier_metrics(plant)

    assert uploaded.pop("uploaded_bytes_total") > 0
    assert uploaded == {"waiting_files": 0, "failing": 0}
    assert failing["waiting_files"] == 1


def test_the_books_of_the_run_with_kills_notice_losses_repeats_and_gaps() -> None:
    def found(offsets: list[int], numbers: list[int]) -> Verdict:
        payloads = [b"%d" % number for number in numbers]
        return verdict(pa.table({"offset": offsets, "payload": payloads}), {0, 1, 2})

    assert found([0, 1, 2, 3], [0, 1, 3, 2]).is_good
    assert found([0, 1], [0, 1]).lost == 1
    assert found([0, 1, 2, 3], [0, 1, 2, 2]).doubled == 1
    assert found([0, 1, 3], [0, 1, 2]).gaps == 1
    assert not found([], []).is_good
