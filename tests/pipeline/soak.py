"""`make soak-pipeline`: files, bytes and lag of a stream and of its pipeline's tables over time.

Machines report at a given rate; the stream is sealed every few seconds, so that minutes have as
many files as days would. A pipeline writes it to tables in folders. Every few seconds the run
counts files and bytes of the stream and of the tables, and the messages that the pipeline has not
read. At the end the pipeline has to have read all of it, and the number of files of the stream must
not grow any more. Figures and a plot are written into a folder.

The run that counts is an hour of 16,000 messages/s: `make soak-pipeline MINUTES=60 RATE=16000
ARGS="--keep 268435456 --memory 2g"`. A smaller `--keep` is reached after minutes.
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
from dataclasses import asdict, dataclass
from typing import Any, Final

import deltalake
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.pipeline.driver import Driver
from tests.pipeline.machines import SILVER, Crowd
from tests.soak.run import resident_bytes
from tests.spark.crash import commit

BROKER: Final = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "plant"
filter = ["plant/#"]
partitions = 2

[streams.retention]
bytes = {keep}
"""
MEMORY: Final = "512m"
"""Heap of the pipeline's JVM."""
PIPELINE: Final = f"""\
name = "soak"
tables = "tables"
trigger = "2 seconds"

[source]
path = "data"
stream = "plant"

[spark]
master = "local[1,4]"
memory = "{MEMORY}"
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
RATE_EACH: Final = 500
"""Messages a second of a connection: a window waits for a sync of the broker's disk."""
LEAST_SAMPLES: Final = 6
"""Fewer do not show whether files become more."""


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
    samples: list[Sample]

    def run(self, crowds: Sequence[Crowd], seconds: float) -> None:
        """Has machines report for so long, and the pipeline read the rest.

        Raises:
            RuntimeError: the pipeline ended by itself, or does not read all.
        """
        for crowd in crowds:
            crowd.start()
        self.driver.wait_for_batch(FIRST_S)
        began = time.monotonic()
        with StreamClient(str(self.server.data)) as client:
            self.watch(client, began, seconds)
            for crowd in crowds:
                crowd.stopping.set()
            for crowd in crowds:
                crowd.end()
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


def rate_of(samples: Sequence[Sample]) -> int:
    """Messages a second; the last sample is not counted, which is taken after the machines' end."""
    first, last = samples[0], samples[max(0, len(samples) - 2)]
    return round((last.messages - first.messages) / max(1.0, last.at_s - first.at_s))


def levels_off(samples: Sequence[Sample]) -> bool:
    """Whether the stream had no more files in the last third of the run than in the second.

    A tenth more is allowed, and 4 files: samples come at any moment between two merges.
    """
    third = len(samples) // 3
    second = max(each.stream_files for each in samples[third : len(samples) - third])
    last = max(each.stream_files for each in samples[len(samples) - third :])
    return last <= max(second * 1.1, second + 4)


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


def soak(folder: pathlib.Path, options: argparse.Namespace, samples: list[Sample]) -> None:
    """One run in a folder of its own. It adds to `samples`, also before it fails.

    Raises:
        RuntimeError: the pipeline ended by itself, or does not read all.
    """
    (folder / "mqttcore.toml").write_text(BROKER.format(keep=options.keep))
    heap = f'memory = "{options.memory}"'
    (folder / "pipeline.toml").write_text(PIPELINE.replace(f'memory = "{MEMORY}"', heap))
    server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
    server.start()
    count = max(1, round(options.rate / RATE_EACH))
    crowds = [Crowd(server, options.rate / count, index) for index in range(count)]
    driver = Driver.spawn(folder / "pipeline.toml")
    run = Soak(
        folder=folder,
        server=server,
        driver=driver,
        sample_s=options.every,
        seal_s=options.seal,
        samples=samples,
    )
    try:
        run.run(crowds, options.seconds)
        driver.process.terminate()
        driver.process.wait(STOP_S)
    finally:
        for crowd in crowds:
            crowd.stopping.set()
        driver.kill()
        server.stop()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make soak-pipeline", description=__doc__)
    made.add_argument("--seconds", type=float, default=120)
    made.add_argument("--rate", type=float, default=100, help="messages a second")
    made.add_argument("--keep", type=int, default=1 << 20, help="retention of the stream, bytes")
    made.add_argument("--memory", default=MEMORY, help="heap of the pipeline")
    made.add_argument("--every", type=float, default=5, help="seconds between two samples")
    made.add_argument("--seal", type=float, default=5, help="seconds between two seals")
    made.add_argument("--out", type=pathlib.Path, default=OUT, help="where the figures go")
    return made


def report(samples: Sequence[Sample], options: argparse.Namespace) -> bool:
    """Writes and prints the figures; returns whether the number of files levels off."""
    is_level = len(samples) >= LEAST_SAMPLES and levels_off(samples)
    found = summary(
        samples,
        seconds=options.seconds,
        rate=options.rate,
        reached=rate_of(samples),
        keep=options.keep,
        levels_off=is_level,
    )
    every = [asdict(each) for each in samples]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{NAME}.json").write_text(json.dumps({**found, "samples": every}))
    plot(samples, options.out / f"{NAME}.png")
    print(json.dumps(found))
    return is_level


def main() -> int:
    """Exits with an error when the pipeline ends, does not read all, or files become ever more."""
    options = parser().parse_args()
    samples: list[Sample] = []
    is_level = False
    with tempfile.TemporaryDirectory(prefix="mqttcore-soak-") as folder:
        try:
            soak(pathlib.Path(folder), options, samples)
        finally:
            if samples:
                is_level = report(samples, options)
    if not is_level:
        print("the stream has more and more files", file=sys.stderr)
    return 0 if is_level else 1


if __name__ == "__main__":
    sys.exit(main())
