"""Real bytes for `benches.spark.scale`: one stream grows by files of 64 MiB.

What is measured at each size should not depend on the bytes; a line through the figures says how
much it does, and what it would be for 100 GB. Times are CPU seconds: those of a clock differ by
more from one start to the next than by a gigabyte.
"""

from __future__ import annotations

import json
import pathlib
import pickle
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from mqttcore._core import write_stream_file
from mqttcore.spark.source import MqttcoreDataSource

from tests.stream_folder import StreamFolder, ipc, row_schema

FILE_ROWS: Final = 66_000
PAYLOAD_BYTES: Final = 1_024
"""Random, so that a file of `FILE_ROWS` has more than 64 MiB, and is not merged any more."""
SHARES: Final = (0.0, 0.25, 0.5, 1.0)
"""Of all bytes: the sizes at which is measured. The first one, without any, is not on the line: a
reader over HTTP fetches a whole row group, which is small there."""
ASKED_GB: Final = 100
NEWEST: Final = 1_000
MOST_BYTES: Final = 4 << 30
COLUMNS: Final = {
    "broker_s": ("start of the broker, CPU s", "{:.2f}"),
    "broker_mb": ("its memory, MB", "{:.0f}"),
    "plan_s": ("first plan, CPU s", "{:.3f}"),
    "driver_mb": ("memory of the driver's Python, MB", "{:.0f}"),
    "task_bytes": ("bytes of all tasks", "{:,.0f}"),
    "newest_s": (f"plan and read the newest {NEWEST:,} rows, CPU s", "{:.3f}"),
    "far_s": ("the same over HTTP, CPU s", "{:.3f}"),
    "http": ("bytes over HTTP of both plans and these rows", "{:,.0f}"),
}

Figures = dict[str, Any]


def allowed(asked: int | None, folder: pathlib.Path) -> int:
    """How many bytes are written: a quarter of what is free on the disk, and 4 GiB, at most.

    Raises:
        ValueError: so many are asked for that less than half of the free space would be left.
    """
    free = shutil.disk_usage(folder).free
    if asked is None:
        return min(MOST_BYTES, free // 4)
    if asked > free // 2:
        raise ValueError(f"--bytes {asked:,} of {free:,} that are free: take half of them at most")
    return asked


def grow(root: pathlib.Path, until_bytes: int) -> tuple[int, int]:
    """Adds files to partition 0 until it has so many bytes; returns files and bytes."""
    stream = StreamFolder(root=root, name=root.name)
    told = json.loads((root / "stream.json").read_text())
    index = json.loads(stream.index_path.read_text())
    entries: list[Figures] = index["partitions"][0]
    while sum(entry["bytes"] for entry in entries) < until_bytes:
        base = entries[-1]["last"] + 1 if entries else 0
        path = root / "data" / f"{0:05}-{base:020}.parquet"
        epoch = f"{told['store']}:{told['epoch']}"
        meta = write_stream_file(path, ipc(incompressible(base)), stream=root.name, epoch=epoch)
        kept = {key: meta[key] for key in ("base", "last", "min_us", "max_us", "typed")}
        size, now_us = path.stat().st_size, time.time_ns() // 1_000
        entries.append(
            {"file": path.name, **kept, "rows": FILE_ROWS, "bytes": size, "sealed_us": now_us}
        )
    stream.index_path.write_text(json.dumps(index))
    return len(entries), sum(entry["bytes"] for entry in entries)


def incompressible(base: int) -> pa.Table:
    """Rows of partition 0 with the offsets from ``base`` on."""
    random = np.random.default_rng(base)
    payload = random.bytes(FILE_ROWS * PAYLOAD_BYTES)
    ends = np.arange(FILE_ROWS + 1, dtype=np.int32) * PAYLOAD_BYTES
    now_us = time.time_ns() // 1_000
    known: dict[str, Any] = {
        "partition": np.zeros(FILE_ROWS, np.int32),
        "offset": np.arange(base, base + FILE_ROWS),
        "timestamp": np.full(FILE_ROWS, now_us),
        "topic": ["large/device"] * FILE_ROWS,
        "payload": pa.Array.from_buffers(
            pa.binary(), FILE_ROWS, [None, pa.py_buffer(ends), pa.py_buffer(payload)]
        ),
        "qos": np.ones(FILE_ROWS, np.int8),
        "retain": np.zeros(FILE_ROWS, bool),
        "dup": np.zeros(FILE_ROWS, bool),
        "client_id": ["device"] * FILE_ROWS,
        "user_properties": pa.array([[]] * FILE_ROWS, row_schema().field("user_properties").type),
    }
    arrays = [
        pa.array(known[field.name]).cast(field.type)
        if field.name in known
        else pa.nulls(FILE_ROWS, field.type)
        for field in row_schema()
    ]
    return pa.table(arrays, schema=row_schema())


def newest(given: Mapping[str, str], memory_mb: Callable[[], float]) -> Figures:
    """Plans a batch of the whole stream, then plans and reads its newest rows."""
    source = MqttcoreDataSource(dict(given))
    reader = source.reader(source.schema())
    began = time.process_time()
    tasks = reader.partitions()
    plan_s = time.process_time() - began
    driver_mb = memory_mb()
    end = max(last.end for task in tasks for last in task.ranges)
    began = time.process_time()
    first = json.dumps({"0": max(0, end - NEWEST)})
    late = MqttcoreDataSource({**given, "startingOffsets": first})
    reader = late.reader(late.schema())
    read = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    newest_s = time.process_time() - began
    assert read == min(end, NEWEST)  # noqa: S101
    return {
        "plan_s": plan_s,
        "driver_mb": driver_mb,
        "task_bytes": sum(len(pickle.dumps(task)) for task in tasks),
        "newest_s": newest_s,
    }


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Where the line of least squares begins, and its slope."""
    slope, begin = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
    return float(begin), float(slope)


def table(steps: Sequence[Figures]) -> list[str]:
    """What was measured at each size, the slope, and what it makes of 100 GB."""
    lines = [
        f"| GB of rows | files | {' | '.join(what for what, _ in COLUMNS.values())} |",
        f"| {' | '.join('---' for _ in range(len(COLUMNS) + 2))} |",
    ]
    for step in steps:
        cells = [form.format(step[name]) for name, (_, form) in COLUMNS.items()]
        lines.append(f"| {step['gb']:.2f} | {step['files']} | {' | '.join(cells)} |")
    per_gb, asked = [], []
    for name, (_, form) in COLUMNS.items():
        begin, slope = line_through([(step["gb"], step[name]) for step in steps[1:]])
        per_gb.append(f"{slope:.2g}" if abs(slope) < 100 else f"{slope:,.0f}")
        asked.append(form.format(begin + slope * ASKED_GB))
    lines.append(f"| slope a GB | | {' | '.join(per_gb)} |")
    lines.append(f"| {ASKED_GB}, by the slope | | {' | '.join(asked)} |")
    return lines
