"""The index of a stream's folder: a snapshot, and a log of what was sealed since."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from mqttcore.spark.folder import StreamFolder as Folder
from mqttcore.spark.options import parse_options
from mqttcore.spark.source import BatchReader
from mqttcore.spark.streaming import MqttcoreStreamReader

from tests.spark.conftest import SimulatedTime, numbered
from tests.stream_folder import StreamFolder

Make = Callable[..., StreamFolder]


def sealed_lines(stream: StreamFolder, *, kept: int, snapshot: int = 5) -> list[str]:
    """Keeps so many files of each partition in the snapshot; the others as lines of its log."""
    index = stream.index()
    lines = [
        json.dumps({"snapshot": snapshot, "partition": partition, **file}) + "\n"
        for partition, files in enumerate(index)
        for file in files[kept:]
    ]
    stream.write_index([files[:kept] for files in index])
    snapshot_of(stream, snapshot)
    return lines


def snapshot_of(stream: StreamFolder, number: int) -> None:
    """Gives the snapshot a number."""
    described = json.loads(stream.index_path.read_text())
    stream.index_path.write_text(json.dumps({**described, "snapshot": number}))


@pytest.fixture
def stream(make_stream: Make) -> StreamFolder:
    """Two partitions with three files of five rows each."""
    made = make_stream(partitions=2)
    for partition in (0, 1):
        for base in (0, 5, 10):
            made.seal(numbered(5, partition=partition, base=base))
    return made


def test_files_in_the_log_of_the_index_count(stream: StreamFolder) -> None:
    lines = sealed_lines(stream, kept=1)
    folder = Folder(stream.root)
    assert folder.index().ends == (5, 5)

    (stream.root / "sealed.log").write_text("".join(lines[:1]))
    assert folder.index().ends == (10, 5)
    (stream.root / "sealed.log").write_text("".join(lines))
    assert folder.index().ends == (15, 15)
    assert [file.base for file in folder.index().files[1]] == [0, 5, 10]


@pytest.mark.parametrize("rest", ['{"snapshot": 5, "parti', "\0\0\0\n", '{"snapshot": 5}', ""])
def test_a_line_that_is_not_whole_does_not_count(stream: StreamFolder, rest: str) -> None:
    lines = sealed_lines(stream, kept=1)

    (stream.root / "sealed.log").write_text("".join(lines[:1]) + rest)

    assert Folder(stream.root).index().ends == (10, 5)


def test_lines_of_another_snapshot_do_not_count(stream: StreamFolder) -> None:
    lines = sealed_lines(stream, kept=2)
    (stream.root / "sealed.log").write_text("".join(lines))
    folder = Folder(stream.root)
    assert folder.index().ends == (15, 15)

    snapshot_of(stream, 6)

    assert folder.index().ends == (10, 10)


def test_a_snapshot_that_comes_while_the_index_is_read_is_read(
    stream: StreamFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sealed_lines(stream, kept=1)
    whole = stream.index_path.read_text()
    log = stream.root / "sealed.log"
    log.write_text("".join(lines))
    read = Folder.sealed_since

    def after_the_next_snapshot(self: Folder, snapshot: int) -> Any:  # noqa: ANN401 -- JSON
        if snapshot == 5:
            # the broker writes a snapshot with all files, and removes the log
            found = json.loads(whole)
            for line in lines:
                entry = json.loads(line)
                found["partitions"][entry["partition"]].append(entry)
            fresh = stream.index_path.with_name("_sealed.json")
            fresh.write_text(json.dumps({**found, "snapshot": 6}))
            fresh.rename(stream.index_path)
            log.unlink()
        return read(self, snapshot)

    monkeypatch.setattr(Folder, "sealed_since", after_the_next_snapshot)

    assert Folder(stream.root).index().ends == (15, 15)


def test_a_task_has_its_files_and_does_not_read_the_index(
    stream: StreamFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        {**stream.index()[0][0], "base": base, "last": base + 4, "file": f"{base}.parquet"}
        for base in range(15, 5_015, 5)
    ]
    found = stream.index()
    stream.write_index([found[0] + entries, found[1]])
    places = {"startingOffsets": '{"0": 3, "1": 9}', "endingOffsets": '{"0": 12, "1": 10}'}
    given = {"path": str(stream.root), "columns": "offset", "maxRowsPerTask": "4", **places}
    reader = BatchReader(parse_options(given))
    tasks = [pickle.dumps(task) for task in reader.partitions()]
    worker = pickle.loads(pickle.dumps(reader))  # noqa: S301 -- our own

    def whole(_: Folder) -> None:
        raise AssertionError("a task reads the index")

    monkeypatch.setattr(Folder, "read_index", whole)
    batches = [batch for task in tasks for batch in worker.read(pickle.loads(task))]  # noqa: S301

    read = [offset for batch in batches for offset in pa.record_batch(batch)[0].to_pylist()]
    assert read == [*range(3, 12), 9]
    assert max(map(len, tasks)) < 1_500, "1 KB, and two files"


def test_a_query_that_is_within_a_file_when_it_is_merged_gets_each_row_once(
    make_stream: Make,
) -> None:
    stream = make_stream()
    for base in (0, 5, 10):
        stream.seal(numbered(5, base=base))
    reader = MqttcoreStreamReader(
        parse_options(
            {
                "path": str(stream.root),
                "columns": "offset",
                "startingOffsets": "earliest",
                "maxRowsPerTrigger": "4",
            }
        )
    )
    limit: Any = reader.getDefaultReadLimit()
    found, start = [], reader.initialOffset()
    for number in range(4):
        end = reader.latestOffset(start, limit)
        tasks = reader.partitions(start, end)
        if number == 1:
            # a merge gives the first of its files all their rows, between plan and reading
            stream.write_index([[]])
            for path in sorted((stream.root / "data").iterdir()):
                path.unlink()
            stream.seal(numbered(15))
        batches = [batch for task in tasks for batch in reader.read(task)]
        found += [offset for batch in batches for offset in pa.record_batch(batch)[0].to_pylist()]
        start = end
    reader.stop()

    assert found == list(range(15))


def test_a_merge_that_the_index_does_not_know_yet_is_waited_for(
    stream: StreamFolder, patience: SimulatedTime
) -> None:
    given = {"path": str(stream.root), "columns": "offset"}
    reader = BatchReader(parse_options({**given, "startingOffsets": '{"0": 7, "1": 15}'}))
    tasks = reader.partitions()
    before = stream.index_path.read_text()
    stream.write_index([[], []])
    stream.seal(numbered(15))
    after = stream.index_path.read_text()
    (stream.root / "data" / f"{0:05}-{5:020}.parquet").unlink()
    stream.index_path.write_text(before)

    def index_is_written() -> None:
        stream.index_path.write_text(after)

    patience.meanwhile = index_is_written

    batches = [batch for task in tasks for batch in reader.read(task)]

    read = [offset for batch in batches for offset in pa.record_batch(batch)[0].to_pylist()]
    assert (read, len(patience.waits)) == (list(range(7, 15)), 1)
