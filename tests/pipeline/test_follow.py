"""A broker keeps the Delta tables of its streams current."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from typing import Any

import deltalake
import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.pipeline.follow import follow
from mqttcore.streams import delta
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream

from tests.eventually import eventually
from tests.stream_folder import StreamFolder, rows

pytestmark = pytest.mark.timeout(120)


def settings(folder: pathlib.Path) -> Settings:
    return Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(folder),
        streams=(
            Stream(name="plant", filter=("plant/#",), delta=True),
            Stream(name="other", filter=("plant/#",)),
        ),
    )


def table(folder: pathlib.Path) -> list[int]:
    """The offsets in the table of `plant`."""
    path = folder / "streams" / "plant" / "delta"
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    held: list[int] = deltalake.DeltaTable(path).to_pyarrow_table()["offset"].to_pylist()
    return sorted(held)


def sealed(broker: Broker, client: StreamClient, count: int) -> None:
    """Has ``count`` messages more in a file."""
    end = client.stream("plant").partitions[0].end + count
    for number in range(count):
        broker.publish("plant/m1", str(number), qos=1)
    eventually(lambda: client.stream("plant").partitions[0].end >= end)
    client.seal("plant")


def test_what_is_sealed_is_in_the_table_also_what_a_stop_seals(tmp_path: pathlib.Path) -> None:
    with Broker(settings(tmp_path)) as broker, StreamClient(broker.settings.data) as client:
        sealed(broker, client, 10)
        eventually(lambda: table(tmp_path) == list(range(10)), within_s=60)
        broker.publish("plant/m1", b"last", qos=1)
        eventually(lambda: client.stream("plant").partitions[0].end == 11)

    assert table(tmp_path) == list(range(11))
    assert not (tmp_path / "streams" / "other" / "delta").exists()


def test_a_process_that_is_killed_is_started_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delta, "BACKOFF_S", (0.01, 0.01))
    with Broker(settings(tmp_path)) as broker, StreamClient(broker.settings.data) as client:
        sealed(broker, client, 3)
        eventually(lambda: table(tmp_path) == [0, 1, 2], within_s=60)
        assert broker._tables is not None
        process = broker._tables._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        sealed(broker, client, 2)

        eventually(lambda: table(tmp_path) == [0, 1, 2, 3, 4], within_s=60)

    assert "delta: the process has ended; it is started again in 0.01 s" in caplog.text


def test_a_process_that_does_not_end_is_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = "import time; print('deaf', flush=True); time.sleep(600)"
    monkeypatch.setattr(delta, "command", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(delta, "LAST_S", 0.01)
    caplog.set_level("INFO", logger="mqttcore")
    tables = delta.DeltaTables(tmp_path, ["plant"])
    eventually(lambda: "delta: deaf" in caplog.text)
    process = tables._process

    tables.stop()

    assert process is not None
    assert process.returncode == -signal.SIGKILL
    assert "delta: not up to date within 0.01 s; the next start continues" in caplog.text


def test_a_stream_that_cannot_be_followed_is_reported_once_and_holds_up_no_other(
    tmp_path: pathlib.Path,
) -> None:
    plant = StreamFolder(root=tmp_path / "streams" / "plant").create()
    plant.seal(rows([{"payload": b"x"}] * 4))
    broken = StreamFolder(root=tmp_path / "streams" / "broken").create()
    broken.seal(rows([{"payload": b"x"}])).write_bytes(b"PAR1")
    lines: list[str] = []
    looks = iter([False, False, True])

    def is_over() -> bool:
        """A file more before the last look."""
        if over := next(looks):
            plant.seal(rows([{"payload": b"x"}], base=4))
        return over

    follow(str(tmp_path), ["gone", "broken", "plant"], is_over=is_over, tell=lines.append)

    assert [line for line in lines if not line.startswith(("gone: ", "broken: "))] == [
        "plant: 4 rows; files added 1, removed 0",
        "plant: 5 rows; files added 1, removed 0",
    ]
    assert len(lines) == 4


def test_a_repaired_index_is_taken_in(tmp_path: pathlib.Path) -> None:
    plant = StreamFolder(root=tmp_path / "streams" / "plant").create()
    path = plant.seal(rows([{"payload": b"x"}] * 4))
    (entry,) = plant.index()[0]

    def change(**more: Any) -> None:  # noqa: ANN401 -- JSON
        index = {"partitions": [[entry | more]], "earliest": [0]}
        plant.index_path.write_text(json.dumps(index))

    lines: list[str] = []
    looks = iter([False, True])

    def is_over() -> bool:
        """The index is mended before the last look."""
        if over := next(looks):
            change()
        return over

    change(last=2)
    follow(str(tmp_path), ["plant"], is_over=is_over, tell=lines.append)

    wrong = f"plant: {path}: differs from the file in {plant.root}/sealed.json"
    assert lines == [wrong, "plant: 4 rows; files added 1, removed 0"]
