"""Stream folders made by hand: sealed files and their index, without a broker."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from mqttcore._core import StreamOptions, StreamReader, write_stream_file

EPOCH = "5f0c1b9e-3a59-4c0e-9d0f-6c2d1f0a7b11:1"
START_US = 1_700_000_000_000_000
DEFAULTS: dict[str, Any] = {
    "topic": "plant/1",
    "payload": b"",
    "qos": 1,
    "retain": False,
    "dup": False,
    "client_id": "device",
    "user_properties": [],
}


def row_schema() -> pa.Schema:
    """The columns of every row."""
    return pa.schema(StreamOptions().schema)


def ipc(table: pa.Table | pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of it."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


def rows(messages: Sequence[Mapping[str, Any]], *, partition: int = 0, base: int = 0) -> pa.Table:
    """Rows with the offsets from ``base`` on; a second apart, unless a message has a timestamp."""
    full = [
        DEFAULTS
        | {"partition": partition, "offset": offset, "timestamp": START_US + offset * 1_000_000}
        | dict(message)
        for offset, message in enumerate(messages, base)
    ]
    return pa.Table.from_pylist(full, schema=row_schema())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamFolder:
    """``root`` is `<data>/streams/<name>`: stream.json, sealed.json, data/*.parquet."""

    root: pathlib.Path
    name: str = "plant"
    partitions: int = 1

    def create(self) -> StreamFolder:
        """Write stream.json and an empty index."""
        uuid, _, epoch = EPOCH.partition(":")
        description = {
            "format": 1,
            "name": self.name,
            "filters": ["#"],
            "partitions": self.partitions,
            "seed": "7",
            "store": uuid,
            "epoch": int(epoch),
            "schema": None,
            "created_us": START_US,
        }
        self.root.mkdir(parents=True)
        (self.root / "stream.json").write_text(json.dumps(description))
        self.write_index([[] for _ in range(self.partitions)])
        return self

    def seal(self, table: pa.Table) -> pathlib.Path:
        """Write the rows of one partition as a file, and put it into the index."""
        partition = table["partition"][0].as_py()
        base = table["offset"][0].as_py()
        path = self.root / "data" / f"{partition:05}-{base:020}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = write_stream_file(
            path, ipc(table), stream=self.name, epoch=EPOCH, aliases=self.aliases(partition)
        )
        entry = {key: meta[key] for key in ("base", "last", "min_us", "max_us", "typed")}
        size = path.stat().st_size
        index = self.index()
        index[partition].append({"file": path.name, **entry, "rows": table.num_rows, "bytes": size})
        self.write_index(index)
        return path

    def move(self, path: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
        """Have a file in the folder ``to`` only, as object storage."""
        found = json.loads(self.index_path.read_text())
        for entry in (entry for files in found["partitions"] for entry in files):
            if entry["file"] == path.name:
                entry |= {"object": f"moved-{path.name}", "remote": True}
        to.mkdir(exist_ok=True)
        moved = path.rename(to / f"moved-{path.name}")
        self.index_path.write_text(json.dumps({**found, "tier": f"file://{to}"}))
        return moved

    def aliases(self, partition: int) -> str | None:
        """What Sparkplug's aliases mean behind the files of a partition."""
        files = self.files(partition)
        if not files:
            return None
        options = StreamOptions(decode="sparkplug", payload_schema="any INT")
        start, end = files[0][1], files[-1][2] + 1
        reader = StreamReader(files, partition=partition, start=start, end=end, options=options)
        for _ in reader:
            pass
        return reader.aliases

    def files(self, partition: int = 0) -> list[tuple[str, int, int]]:
        """The sealed files of a partition, as a `StreamReader` wants them."""
        folder = self.root / "data"
        entries = self.index()[partition]
        return [(str(folder / entry["file"]), entry["base"], entry["last"]) for entry in entries]

    def index(self) -> list[list[dict[str, Any]]]:
        """What sealed.json says."""
        index: list[list[dict[str, Any]]] = json.loads(self.index_path.read_text())["partitions"]
        return index

    def write_index(self, index: list[list[dict[str, Any]]]) -> None:
        """Replace sealed.json."""
        earliest = [files[0]["base"] if files else 0 for files in index]
        self.index_path.write_text(json.dumps({"partitions": index, "earliest": earliest}))

    @property
    def index_path(self) -> pathlib.Path:
        """Where the index is."""
        return self.root / "sealed.json"
