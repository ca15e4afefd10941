"""The stream that every row reads: telemetry of 2,000 topics, sealed, in eight partitions."""

from __future__ import annotations

import json
import pathlib
import shutil
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.stream_folder import START_US, StreamFolder, row_schema

PARTITIONS: Final = 8
TOPICS: Final = 2_000
PAYLOAD_SCHEMA: Final = (
    "temperature DOUBLE, humidity DOUBLE, load DOUBLE, sequence BIGINT, status STRING"
)
ROWS_A_SECOND: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of it there is."""

    name: str
    files: int
    """Of each partition."""
    rows: int
    """Of each file."""

    @property
    def total(self) -> int:
        """All rows."""
        return PARTITIONS * self.files * self.rows


SCALES: Final = {
    "full": Scale(name="full", files=4, rows=250_000),
    "small": Scale(name="small", files=2, rows=62_500),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A stream on the disk."""

    folder: StreamFolder
    rows: int
    raw_bytes: int
    """Topic, client and payload of every row."""
    sealed_bytes: int

    @property
    def path(self) -> str:
        """The stream's folder."""
        return str(self.folder.root)

    @property
    def parquet(self) -> str:
        """Where its files are."""
        return str(self.folder.root / "data")


def dataset(root: pathlib.Path, scale: Scale) -> Dataset:
    """Makes the stream, or finds the one that an earlier run made."""
    folder = StreamFolder(root=root / scale.name / "streams" / "bench", partitions=PARTITIONS)
    summary = root / scale.name / "summary.json"
    if not summary.exists():
        shutil.rmtree(root / scale.name, ignore_errors=True)
        folder = folder.create()
        raw = sum(seal(folder, scale, number) for number in range(scale.files))
        sealed = sum(path.stat().st_size for path in (folder.root / "data").iterdir())
        summary.write_text(json.dumps({"raw_bytes": raw, "sealed_bytes": sealed}))
    known = json.loads(summary.read_text())
    return Dataset(folder=folder, rows=scale.total, **known)


def seal(folder: StreamFolder, scale: Scale, number: int) -> int:
    """One file of each partition; returns the raw bytes in them."""
    raw = 0
    for partition in range(PARTITIONS):
        table = telemetry(partition, number * scale.rows, scale.rows)
        for column in ("topic", "client_id", "payload"):
            raw += pc.sum(pc.binary_length(table[column])).as_py()
        folder.seal(table)
    return raw


def telemetry(partition: int, base: int, count: int) -> pa.Table:
    """Rows of one partition with the offsets from ``base`` on; the same ones each time."""
    random = np.random.default_rng([partition, base])
    device = random.integers(0, TOPICS // PARTITIONS, count) * PARTITIONS + partition
    sequence = np.arange(base, base + count)
    step_us = PARTITIONS * 1_000_000 // ROWS_A_SECOND
    jitter = np.sort(random.integers(0, step_us * count, count))
    columns = {
        "partition": np.full(count, partition, np.int32),
        "offset": sequence,
        "timestamp": START_US + base * step_us + jitter,
        "topic": texts([f"plant/{n // 50}/{n % 50}/state" for n in range(TOPICS)], device),
        "payload": payloads(random, sequence).cast(pa.binary()),
        "qos": np.ones(count, np.int8),
        "retain": np.zeros(count, bool),
        "dup": np.zeros(count, bool),
        "client_id": texts([f"device-{n:05}" for n in range(TOPICS)], device),
        "user_properties": pa.array([[]] * count, row_schema().field("user_properties").type),
    }
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in row_schema()
    ]
    return pa.table(arrays, schema=row_schema())


def payloads(random: np.random.Generator, sequence: np.ndarray) -> pa.Array:
    """JSON of about 95 bytes."""
    count = len(sequence)
    temperature = (2_150 + np.cumsum(random.integers(-5, 6, count)) % 800).astype(np.int64)
    parts = [
        '{"temperature":',
        texts([f"{n / 100:.2f}" for n in range(3_000)], temperature),
        ',"humidity":',
        texts([f"{n / 10:.1f}" for n in range(1_000)], random.integers(300, 700, count)),
        ',"load":',
        texts([f"{n / 1000:.3f}" for n in range(1_000)], random.integers(0, 1_000, count)),
        ',"sequence":',
        pa.array(sequence).cast(pa.string()),
        ',"status":',
        texts(['"running"', '"idle"', '"fault"'], random.choice(3, count, p=[0.9, 0.08, 0.02])),
        "}",
    ]
    joined = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*joined, pa.scalar(""))


def texts(words: list[str], places: np.ndarray) -> pa.Array:
    """The words at these places."""
    return pa.array(words).take(pa.array(places))
