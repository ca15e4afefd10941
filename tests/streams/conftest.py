"""A broker process with a stream, and what reads it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet
import pytest
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess

PATIENCE_S = 20.0

CONFIG = """\
sys_interval_s = 0

[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "plant"
filter = ["plant/#"]
partitions = {partitions}
"""


@dataclass
class Plant:
    """A broker with the stream ``plant``, which may die."""

    server: ServerProcess
    partitions: int
    client: StreamClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = StreamClient(self.server.data)

    def ends(self) -> list[int]:
        """Behind the last row that is seen, of each partition."""
        return [bounds.end for bounds in self.client.stream("plant").partitions]

    def settle(self, rows: int) -> list[int]:
        """Waits until so many rows are seen; no more may come."""
        for _ in range(int(PATIENCE_S / 0.01)):
            ends = self.ends()
            if sum(ends) >= rows:
                assert sum(ends) == rows
                return ends
            self.client.offsets("plant", timestamp_us=0)
        raise AssertionError(f"{rows} rows wanted, there are {self.ends()}")

    def read(self) -> pa.Table:
        """Every row, out of files and out of the tail."""
        info = self.client.stream("plant")
        parts = [self.sealed(info.path)]
        for number, bounds in enumerate(info.partitions):
            parts.append(self.tail(number, bounds.sealed_end, bounds.end))
        table = pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])
        return table.sort_by([("partition", "ascending"), ("offset", "ascending")])

    def tail(self, partition: int, start: int, end: int) -> pa.Table:
        """Rows that are in no file."""
        rows = self.client.rows("plant", partition=partition, start=start, end=end)
        with rows, pa.ipc.open_stream(rows) as stream:
            return stream.read_all()

    def sealed(self, path: pathlib.Path) -> pa.Table:
        """Rows in files, as anybody reads them."""
        if not list((path / "data").glob("*.parquet")):
            return self.tail(0, 0, 0)
        return pyarrow.parquet.read_table(path / "data")


@pytest.fixture
def plant(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Plant]:
    partitions = getattr(request, "param", 1)
    config = tmp_path / "mqttcore.toml"
    config.write_text(CONFIG.format(partitions=partitions))
    server = ServerProcess(data=tmp_path / "data", config=config)
    server.start()
    found = Plant(server=server, partitions=partitions)
    yield found
    found.client.close()
    server.kill()
