"""`make soak-pipeline`: files, bytes and lag of a stream and of its pipeline's tables over time.

Machines report at a low rate; the stream is sealed every few seconds, so that minutes have as many
files as days would. A pipeline writes it to tables in folders. Every few seconds the run counts
files and bytes of the stream and of the tables, and the messages that the pipeline has not read. At
the end the pipeline has to have read all of it. Figures and a plot are written into a folder.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import deltalake
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.pipeline.driver import Driver
from tests.pipeline.machines import SILVER, Machines
from tests.soak.run import resident_bytes
from tests.spark.crash import commit
from tests.spark.peers import WINDOW

BROKER: Final = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "plant"
filter = ["plant/#"]
partitions = 2

[streams.retention]
bytes = 1_048_576
"""
PIPELINE: Final = f"""\
name = "soak"
tables = "tables"
trigger = "2 seconds"

[source]
path = "data"
stream = "plant"

[spark]
master = "local[1,4]"
memory = "512m"
conf = ["spark.ui.enabled=false"]

{SILVER}"""
TABLES: Final = ("bronze", "silver", "quarantine", "load")
OUT: Final = pathlib.Path(__file__).resolve().parents[2] / ".make"
NAME: Final = "soak-pipeline"
FIRST_S: Final = 300.0
"""How long the first batch may take."""
REST_S: Final = 300.0
"""How long the pipeline may take to read the rest."""
STOP_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What there was at one moment."""

    at_s: float
    """Since the first batch."""
    messages: int
    """Of the stream, ever."""
    stream_files: int
    """Sealed files that the broker keeps."""
    stream_bytes: int
    table_files: int
    """Files that the newest version of each table has."""
    table_bytes: int
    disk_files: int
    """Files below the folders of the tables, those of old versions included."""
    disk_bytes: int
    lag_messages: int
    """Messages of the stream that no batch has told of."""
    lag_s: float
    """Age of the newest message that the last batch had, as it says itself."""
    broker_bytes: int
    """Resident memory of the broker."""


@dataclass(slots=True, kw_only=True)
class Soak:
    """One run."""

    folder: pathlib.Path
    server: ServerProcess
    driver: Driver
    sample_s: float
    seal_s: float
    samples: list[Sample] = field(default_factory=list)

    def run(self, machines: Machines, seconds: float) -> None:
        """Has machines report for so long, and the pipeline read the rest.

        Raises:
            RuntimeError: the pipeline ended by itself, or does not read all.
        """
        machines.start()
        self.driver.wait_for_batch(FIRST_S)
        began = time.monotonic()
        with StreamClient(str(self.server.data)) as client:
            self.watch(client, began, seconds)
            machines.end()
            self.drain(client)
            self.samples.append(self.sample(client, time.monotonic() - began))

    def watch(self, client: StreamClient, began: float, seconds: float) -> None:
        """Seals and takes samples until the time is over."""
        next_seal = next_sample = began
        while (now := time.monotonic()) < began + seconds:
            self.check()
            if now >= next_seal:
                client.seal("plant")
                next_seal = now + self.seal_s
            if now >= next_sample:
                self.samples.append(self.sample(client, now - began))
                next_sample = now + self.sample_s
            threading.Event().wait(max(0.0, min(next_seal, next_sample) - time.monotonic()))

    def drain(self, client: StreamClient) -> None:
        """Until the pipeline has told of all messages."""
        deadline = time.monotonic() + REST_S
        while self.driver.rows < messages_of(client):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{messages_of(client) - self.driver.rows} messages are left")
            threading.Event().wait(0.5)

    def check(self) -> None:
        """Raises if the pipeline has ended."""
        if not self.driver.is_alive:
            raise RuntimeError((self.folder / "pipeline.log").read_text()[-3000:])

    def sample(self, client: StreamClient, at_s: float) -> Sample:
        """What there is now."""
        told, messages = self.driver.rows, messages_of(client)
        lag_s = float(self.driver.last.get("lag_s", 0.0))
        assert self.server.process is not None
        stream = sizes((self.server.data / "streams" / "plant" / "data").glob("*.parquet"))
        tables = self.folder / "tables"
        live = [size for name in TABLES for size in sizes_of_version(tables / name)]
        disk = sizes(path for name in TABLES for path in (tables / name).rglob("*.parquet"))
        return Sample(
            at_s=round(at_s, 1),
            messages=messages,
            stream_files=len(stream),
            stream_bytes=sum(stream),
            table_files=len(live),
            table_bytes=sum(live),
            disk_files=len(disk),
            disk_bytes=sum(disk),
            lag_messages=max(0, messages - told),
            lag_s=round(lag_s, 1),
            broker_bytes=resident_bytes(self.server.process.pid),
        )


def messages_of(client: StreamClient) -> int:
    """How many messages the stream has ever had."""
    return sum(bounds.end for bounds in client.stream("plant").partitions)


def sizes(paths: Iterable[pathlib.Path]) -> list[int]:
    """The sizes of files, but for those that are removed meanwhile."""
    found = []
    for path in paths:
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return found


def sizes_of_version(table: pathlib.Path) -> list[int]:
    """The sizes of the files that the newest version of a table has; none without a table."""
    if not deltalake.DeltaTable.is_deltatable(str(table)):
        return []
    import pyarrow as pa

    actions = pa.table(deltalake.DeltaTable(table).get_add_actions(flatten=True))
    found: list[int] = actions["size_bytes"].to_pylist()
    return found


def summary(samples: Sequence[Sample], **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """The first and the last sample, and the most of each figure between."""
    first, last = asdict(samples[0]), asdict(samples[-1])
    most = {name: max(asdict(each)[name] for each in samples) for name in first}
    return {"commit": commit(), **more, "first": first, "last": last, "most": most}


def plot(samples: Sequence[Sample], picture: pathlib.Path) -> None:
    """Files, bytes and lag, one above the other, over minutes."""
    from matplotlib.figure import Figure

    panels: dict[str, tuple[dict[str, str], float]] = {
        "files": (
            {"stream_files": "stream", "table_files": "tables", "disk_files": "tables, on disk"},
            1,
        ),
        "MiB": (
            {"stream_bytes": "stream", "table_bytes": "tables", "disk_bytes": "tables, on disk"},
            1 << 20,
        ),
        "lag, messages": ({"lag_messages": "not read"}, 1),
    }
    figure = Figure(figsize=(9, 9), layout="constrained")
    minutes = [each.at_s / 60 for each in samples]
    for axes, (label, (lines, unit)) in zip(
        figure.subplots(3, sharex=True), panels.items(), strict=True
    ):
        for name, said in lines.items():
            axes.plot(minutes, [getattr(each, name) / unit for each in samples], label=said)
        axes.set(ylabel=label)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
        axes.grid(visible=True, alpha=0.3)
    axes.set(xlabel="minutes")
    figure.savefig(picture, dpi=100)


def soak(folder: pathlib.Path, options: argparse.Namespace) -> list[Sample]:
    """One run in a folder of its own; its samples."""
    (folder / "mqttcore.toml").write_text(BROKER)
    (folder / "pipeline.toml").write_text(PIPELINE)
    server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
    server.start()
    machines = Machines(server, pause_s=WINDOW / options.rate)
    driver = Driver.spawn(folder / "pipeline.toml")
    run = Soak(
        folder=folder, server=server, driver=driver, sample_s=options.every, seal_s=options.seal
    )
    try:
        run.run(machines, options.seconds)
        driver.process.terminate()
        driver.process.wait(STOP_S)
    finally:
        machines.stopping.set()
        driver.kill()
        server.stop()
    return run.samples


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make soak-pipeline", description=__doc__)
    made.add_argument("--seconds", type=float, default=120)
    made.add_argument("--rate", type=float, default=100, help="messages a second")
    made.add_argument("--every", type=float, default=5, help="seconds between two samples")
    made.add_argument("--seal", type=float, default=5, help="seconds between two seals")
    made.add_argument("--out", type=pathlib.Path, default=OUT, help="where the figures go")
    return made


def main() -> int:
    """Exits with an error when the pipeline ends or does not read all."""
    options = parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mqttcore-soak-") as folder:
        samples = soak(pathlib.Path(folder), options)
    found = summary(samples, seconds=options.seconds, rate=options.rate)
    every = [asdict(each) for each in samples]
    (options.out / f"{NAME}.json").write_text(json.dumps({**found, "samples": every}))
    plot(samples, options.out / f"{NAME}.png")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
