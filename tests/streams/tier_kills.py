"""`make stream-tier`: sealed files move to an object store while broker and store die and return.

A client publishes numbers at QoS 1, and each run of rows is sealed. At random moments SIGKILL ends
the broker, which is started again; and the S3-compatible store is away for a while: it refuses
connections, or it takes requests and answers nothing. At the end all files have moved, and the
broker's disk is lost. Each number that was acknowledged is a row once: through the endpoint
before, in the store alone, and through a broker on an empty folder. Offsets have no gap.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from mqttcore.errors import EndpointError
from mqttcore.spark import sealed_files
from mqttcore.spark.objects import opened
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.pipeline import store_server
from tests.pipeline.gate import Gate, Outages
from tests.spark.crash import commit
from tests.streams.conftest import CONFIG
from tests.wire import Wire

TIER: Final = """
[streams.tier]
url = "s3://lake/tier"
storage = {storage}
upload_after = "1s"
local_age = "{local_age}"
grace = "1s"
"""
SETTLE_S: Final = 180.0
"""How long the rest may take to move: a pause after errors is up to 60 s."""
OUTAGE_S: Final = (1.0, 6.0)
LAST_RUN: Final = "stream-tier.json"


@dataclass(slots=True)
class Writer:
    """Publishes numbers; one that is not acknowledged is not sent again."""

    server: ServerProcess
    next: int = 0
    acknowledged: set[int] = field(default_factory=set)
    longest_s: float = 0.0
    """The longest wait for an acknowledgement while the broker ran."""
    is_over: threading.Event = field(default_factory=threading.Event)
    may_write: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is told to end."""
        while not self.is_over.is_set():
            self.may_write.wait(1.0)
            with suppress(OSError, AssertionError, EOFError, TimeoutError):
                self.connected()

    def connected(self) -> None:
        """Until the connection is lost."""
        with Wire(self.server.port) as wire:
            wire.connect("writer")
            while not self.is_over.is_set() and self.may_write.is_set():
                number, self.next = self.next, self.next + 1
                began = time.monotonic()
                wire.publish("plant/1", b"%d" % number, qos=1)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.acknowledged.add(number)
                time.sleep(0.002)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the numbers, by how they were read."""

    rows: int
    lost: int
    """Acknowledged numbers without a row."""
    doubled: int
    gaps: int
    """Offsets that are missing or twice."""

    @property
    def is_good(self) -> bool:
        """Whether each acknowledged number is a row once."""
        return self.rows > 0 and not (self.lost or self.doubled or self.gaps)


def verdict(table: pa.Table, acknowledged: set[int]) -> Verdict:
    """Holds rows against what was acknowledged."""
    found = collections.Counter(int(payload) for payload in table["payload"].to_pylist())
    offsets = sorted(table["offset"].to_pylist())
    return Verdict(
        rows=table.num_rows,
        lost=len(acknowledged - set(found)),
        doubled=found.total() - len(found),
        gaps=sum(one != other for one, other in enumerate(offsets)),
    )


def whole(client: StreamClient) -> pa.Table:
    """All rows that a broker serves, sealed ones and others."""
    parts = []
    for file in client.files("plant")["partitions"][0]:
        with client.file("plant", file["file"]) as body:
            parts.append(pq.read_table(pa.BufferReader(body.read())))
    bounds = client.stream("plant").partitions[0]
    tail = client.rows("plant", partition=0, start=bounds.sealed_end, end=bounds.end)
    with tail, pa.ipc.open_stream(tail) as stream:
        parts.append(stream.read_all())
    return joined(parts)


def stored(url: str) -> pa.Table:
    """All rows that the store has, without a broker."""
    parts = []
    for place in sealed_files(url):
        filesystem, path = opened(place)
        parts.append(pq.read_table(path, filesystem=filesystem))
    return joined(parts)


def joined(parts: list[pa.Table]) -> pa.Table:
    """Offsets and payloads of all of them."""
    columns = [part.select(["offset", "payload"]) for part in parts if part.num_rows]
    schema = pa.schema([("offset", pa.int64()), ("payload", pa.binary())])
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in columns)])


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: what dies when."""

    server: ServerProcess
    random: random.Random
    outages: Outages
    told: collections.Counter[str]
    """What happened, by name."""

    def events(self, kills: int, outages: int) -> Iterator[str]:
        """So many kills and outages in any order; seals in between."""
        plan = ["kill"] * kills + ["outage"] * outages
        self.random.shuffle(plan)
        for kind in plan:
            for _ in range(self.random.randint(1, 3)):
                time.sleep(self.random.uniform(0.2, 1.2))
                with client_of(self.server) as client, suppress(EndpointError):
                    client.seal("plant")
            yield self.outages.begin() if kind == "outage" else self.kill()

    def kill(self) -> str:
        """The broker, at any moment of a seal, an upload or a removal."""
        time.sleep(self.random.uniform(0.0, 1.0))
        self.told["broker"] += 1
        self.server.crash()
        return "broker"


@contextmanager
def client_of(server: ServerProcess) -> Iterator[StreamClient]:
    """A client of a broker that may be another process by now."""
    client = StreamClient(server.data)
    try:
        yield client
    finally:
        client.close()


def settle(server: ServerProcess, *, local_files: int) -> None:
    """Seals, and waits until the files have moved.

    Raises:
        TimeoutError: they do not.
    """
    with client_of(server) as client:
        folder = client.seal("plant").path / "data"
        deadline = time.monotonic() + SETTLE_S
        while True:
            tier = client.tier("plant")
            here = len(list(folder.glob("*.parquet")))
            if not tier["waiting_files"] and not tier["problem"] and here <= local_files:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{here} files are here: {tier}")
            time.sleep(0.2)


def torment(
    folder: pathlib.Path, options: Mapping[str, str], gate: Gate, plan: tuple[int, int, int]
) -> dict[str, object]:
    """One run; what it came to."""
    kills, outages, seed = plan
    through = {**options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}"}
    storage = json.dumps([f"{name}={value}" for name, value in through.items()])
    config = folder / "mqttcore.toml"
    tier = TIER.format(storage=storage, local_age="5s")
    config.write_text(CONFIG.format(partitions=1) + tier)
    server = ServerProcess(data=folder / "data", config=config)
    server.start()
    writer = Writer(server)
    thread = threading.Thread(target=writer.run)
    chance = random.Random(seed)  # noqa: S311 -- no secret
    told: collections.Counter[str] = collections.Counter()
    away = Outages(gate=gate, random=chance, lengths_s=OUTAGE_S, told=told)
    run = Run(server=server, random=chance, outages=away, told=told)
    began = time.monotonic()
    try:
        writer.may_write.set()
        thread.start()
        for number, what in enumerate(run.events(kills, outages), 1):
            print(f"{number}: {what}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        writer.is_over.set()
        thread.join()
        run.outages.wait()
        settle(server, local_files=0)
        verdicts = {}
        with client_of(server) as client:
            verdicts["endpoint"] = verdict(whole(client), writer.acknowledged)
        server.kill()
        shutil.rmtree(server.data)
        verdicts["store"] = verdict(stored("s3://lake/tier/plant"), writer.acknowledged)
        server.start()
        with client_of(server) as client:
            verdicts["restored"] = verdict(whole(client), writer.acknowledged)
    finally:
        writer.is_over.set()
        server.kill()
    return {
        "commit": commit(),
        "kills": kills,
        "outages": outages,
        "seconds": round(time.monotonic() - began),
        "acknowledged": len(writer.acknowledged),
        "longest_s": round(writer.longest_s, 3),
        "told": dict(run.told),
        "is_good": all(found.is_good for found in verdicts.values()),
        **{name: asdict(found) for name, found in verdicts.items()},
    }


def main() -> int:
    """Exits with 1 when a row is lost or doubled, or an offset is missing."""
    made = argparse.ArgumentParser(prog="make stream-tier", description=__doc__)
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--outages", type=int, default=5)
    made.add_argument("--seed", type=int, default=1)
    plan = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqttcore-stream-tier-") as kept:
        folder = pathlib.Path(kept)
        with store_server.store("lake", folder / "store.log") as options:
            os.environ.update(options)
            port = urlsplit(options["AWS_ENDPOINT_URL"]).port
            assert port is not None
            with Gate(port) as gate:
                told = torment(folder, options, gate, (plan.kills, plan.outages, plan.seed))
    line = json.dumps(told)
    path = pathlib.Path(__file__).resolve().parents[2] / ".make" / LAST_RUN
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    print(line)
    return int(not told["is_good"])


if __name__ == "__main__":
    sys.exit(main())
