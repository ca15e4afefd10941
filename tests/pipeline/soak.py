"""`make soak-pipeline`: files, bytes and lag of a stream and of its pipeline's tables over time.

Machines report at a given rate; the stream is sealed every few seconds, so that minutes have as
many files as days would. A pipeline writes it to tables in folders. Every few seconds the run
counts files and bytes of the stream and of the tables, and the messages that the pipeline has not
read. Figures and a plot are written into a folder. The run fails if any of these is false:

* the machines reported at nine tenths of the rate at least;
* the last third of the run has no more files and bytes of the stream than the second, by its index
  (what retention has dropped stays on the disk for an hour, for readers, and is only told);
* the pipeline is not further behind in the last third than in the second;
* the tables have no more files than batches between two compactions write;
* at the end the pipeline has read everything.

The run that counts is an hour of 16,000 messages/s: `make soak-pipeline MINUTES=60 RATE=16000`. The
retention of the stream is what a fifth of the run publishes, unless `--keep` says otherwise, so
ten minutes are judged by the same rules.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import deltalake
from mqttcore.pipeline.runner import TIDY_BATCHES
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
ROW_BYTES: Final = 10
"""Of a sealed row, about."""
ROOM_FILES: Final = 4
ROOM_BYTES: Final = 1 << 20
ROOM_LAG_S: Final = 5.0
"""What the last third may have more than the second: samples are taken at any moment between two
merges, and between two batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What there was at one moment."""

    at_s: float
    """Since the first batch."""
    messages: int
    """Of the stream, ever."""
    stream_files: int
    """Sealed files in the index of the stream."""
    stream_bytes: int
    stream_disk_files: int
    """Files below the folder of the stream, with those that are kept for readers for an hour."""
    stream_disk_bytes: int
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
    skipped: int = 0
    """Messages that retention had removed before the pipeline began."""

    def run(self, crowds: Sequence[Crowd], seconds: float) -> None:
        """Has machines report for so long, and the pipeline read the rest.

        Raises:
            RuntimeError: the pipeline ended by itself, or does not read all.
        """
        for crowd in crowds:
            crowd.start()
        self.driver.wait_for_batch(FIRST_S)
        self.check()
        if not self.driver.batches:
            raise RuntimeError(f"the first batch took longer than {FIRST_S:.0f} s")
        self.skipped = sum(begin_of(self.folder / "tables" / "_checkpoints" / "query").values())
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
        while (left := messages_of(client) - self.told) > 0:
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left} messages are left")
            threading.Event().wait(0.5)

    @property
    def told(self) -> int:
        """Messages of the stream up to the last batch that was told of."""
        return self.driver.rows + self.skipped

    def check(self) -> None:
        """Raises if the pipeline has ended."""
        if not self.driver.is_alive:
            raise RuntimeError((self.folder / "pipeline.log").read_text()[-3000:])

    def sample(self, client: StreamClient, at_s: float) -> Sample:
        """What there is now."""
        told, messages = self.told, messages_of(client)
        lag_s = float(self.driver.last.get("lag_s", 0.0))
        assert self.server.process is not None
        index = client.files("plant")
        stream = [file["bytes"] for files in index["partitions"] for file in files]
        kept = sizes((self.server.data / "streams" / "plant" / "data").glob("*.parquet"))
        tables = self.folder / "tables"
        live = [size for name in TABLES for size in sizes_of_version(tables / name)]
        disk = sizes(path for name in TABLES for path in (tables / name).rglob("*.parquet"))
        return Sample(
            at_s=round(at_s, 1),
            messages=messages,
            stream_files=len(stream),
            stream_bytes=sum(stream),
            stream_disk_files=len(kept),
            stream_disk_bytes=sum(kept),
            table_files=len(live),
            table_bytes=sum(live),
            disk_files=len(disk),
            disk_bytes=sum(disk),
            lag_messages=max(0, messages - told),
            lag_s=round(lag_s, 1),
            broker_bytes=resident_bytes(self.server.process.pid),
        )


def begin_of(checkpoint: pathlib.Path) -> dict[str, int]:
    """The offsets at which a query began, from its first batch."""
    first = (checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    begin: dict[str, int] = json.loads(first)["from"]
    return begin


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


def levels_off(
    values: Sequence[float], room: float, of: Callable[[Sequence[float]], float] = max
) -> bool:
    """Whether the last third of a run has no more than the second: a tenth, or ``room``, at most.

    ``of`` makes one figure of a third.
    """
    third = len(values) // 3
    second, last = of(values[third : len(values) - third]), of(values[len(values) - third :])
    return last <= max(second * 1.1, second + room)


def judged(samples: Sequence[Sample], rate: float) -> dict[str, bool]:
    """What is asked of a run, and whether it is so; the last sample is from after its end."""
    during, last = samples[:-1], samples[-1]
    if len(during) < LEAST_SAMPLES:
        return {"samples": False}
    tidied = len(TABLES) * 2 * TIDY_BATCHES + last.table_bytes // (64 << 20)
    return {
        "rate": rate_of(samples) >= 0.9 * rate,
        "stream files": levels_off([each.stream_files for each in during], ROOM_FILES),
        "stream bytes": levels_off([each.stream_bytes for each in during], ROOM_BYTES),
        # a batch that compacts the tables is late, and is not what is asked
        "lag": levels_off([each.lag_messages for each in during], ROOM_LAG_S * rate, median),
        "table files": max(each.table_files for each in samples) <= tidied,
        "all read": last.lag_messages == 0,
    }


def plot(samples: Sequence[Sample], picture: pathlib.Path) -> None:
    """Files, bytes and lag, one above the other, over minutes."""
    from matplotlib.figure import Figure

    panels: dict[str, tuple[dict[str, str], float]] = {
        "files": (
            {
                "stream_files": "stream",
                "stream_disk_files": "stream, on disk",
                "table_files": "tables",
                "disk_files": "tables, on disk",
            },
            1,
        ),
        "MiB": (
            {
                "stream_bytes": "stream",
                "stream_disk_bytes": "stream, on disk",
                "table_bytes": "tables",
                "disk_bytes": "tables, on disk",
            },
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
    (folder / "mqttcore.toml").write_text(BROKER.format(keep=keep_of(options)))
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


def keep_of(options: argparse.Namespace) -> int:
    """The retention in bytes: in the second third of a run it is in use."""
    chosen: int | None = options.keep
    return chosen or max(1 << 20, int(options.rate * options.seconds * ROW_BYTES / 5))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make soak-pipeline", description=__doc__)
    made.add_argument("--seconds", type=float, default=180)
    made.add_argument("--rate", type=float, default=100, help="messages a second")
    made.add_argument("--keep", type=int, help="retention of the stream, bytes")
    made.add_argument("--memory", default=MEMORY, help="heap of the pipeline")
    made.add_argument("--every", type=float, default=5, help="seconds between two samples")
    # files are merged when they are a minute old: with a seal a second, they are as many as they
    # will be after a minute and a half, which is in the second third of a run
    made.add_argument("--seal", type=float, default=1, help="seconds between two seals")
    made.add_argument("--out", type=pathlib.Path, default=OUT, help="where the figures go")
    return made


def report(samples: Sequence[Sample], options: argparse.Namespace) -> list[str]:
    """Writes and prints the figures; returns what was asked and is not so."""
    verdicts = judged(samples, options.rate)
    found = summary(
        samples,
        seconds=options.seconds,
        rate=options.rate,
        reached=rate_of(samples),
        keep=keep_of(options),
        judged=verdicts,
    )
    every = [asdict(each) for each in samples]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{NAME}.json").write_text(json.dumps({**found, "samples": every}))
    plot(samples, options.out / f"{NAME}.png")
    print(json.dumps(found))
    return [name for name, is_so in verdicts.items() if not is_so]


def main() -> int:
    """Exits with an error when the pipeline ends, or does not do what is asked."""
    options = parser().parse_args()
    samples: list[Sample] = []
    failed = ["samples"]
    with tempfile.TemporaryDirectory(prefix="mqttcore-soak-") as folder:
        try:
            soak(pathlib.Path(folder), options, samples)
        finally:
            if samples:
                failed = report(samples, options)
    if failed:
        print(f"not so: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
