"""Many streams, files and bytes: `make bench-scale`, whose tables are in the report.

A broker gets 100 streams of 10,000 topics; the first stream then gets 20,000 small files, whose
index says that they are too large to be merged, as files of 64 MiB are; 1,000 in each partition,
since more than 1,024 are merged whatever their size. Another stream grows by real files of 64 MiB,
as far as the disk allows; what 100 GB would take is extrapolated by the measured slope
(`benches.spark.sizes`). Each figure is of a process of its own. It needs no Java: planning is
Python on Spark's driver; Spark only keeps the tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.spark.source import MqttcoreDataSource
from mqttcore.streams.settings import Stream

from benches.spark import sizes
from tests.pipeline.busy_start import cpu_seconds
from tests.spark.crash import commit
from tests.stream_folder import StreamFolder, rows

STREAMS: Final = 100
TOPICS: Final = 10_000
FILES: Final = 20_000
PARTITIONS: Final = 20
ROWS: Final = 20
"""Of each of the many files."""
LARGE: Final = 64 << 20
"""Bytes that the index says of them."""
GROWING: Final = "s002"
"""The stream that gets real bytes."""
ROUNDS: Final = 3
"""Of each plan of that stream; their medians count."""
TOKEN: Final = "a-token-of-the-bench"  # noqa: S105 -- of a broker of its own
REPORT: Final = pathlib.Path(__file__).parents[2] / "docs" / "spark-report.md"
PAGE: Final = REPORT.parent / "spark-report" / "scale.md"
HEADING: Final = "## Scale\n"

Figures = dict[str, Any]


def main() -> int:
    """Measures, or does what one process of it does."""
    parser = argparse.ArgumentParser(prog="make bench-scale")
    for inner in ("--plan", "--newest"):
        parser.add_argument(inner, nargs=2, metavar=("KEY", "PLACE"), help=argparse.SUPPRESS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--bytes", type=int, help="real bytes: a quarter of the free disk, or less")
    options = parser.parse_args()
    if options.plan or options.newest:
        print(json.dumps(planned(*options.plan) if options.plan else newest(*options.newest)))
        return 0
    with tempfile.TemporaryDirectory(prefix="mqttcore-scale-") as name:
        folder = pathlib.Path(name)
        try:
            most_bytes = sizes.allowed(options.bytes, folder)
        except ValueError as error:
            parser.error(str(error))
        section = measured(folder, options.files, options.topics, most_bytes)
    PAGE.write_text(section)
    REPORT.write_text(with_section(REPORT.read_text(), section))
    print(section)
    return 0


def with_section(report: str, section: str) -> str:
    """The report with this section, which is its last one."""
    return f"{report.partition(HEADING)[0].rstrip()}\n\n{section}"


def measured(folder: pathlib.Path, files: int, topics: int, most_bytes: int) -> str:
    """All of it, as a section of the report."""
    config = configured(folder)
    bare = start(config)
    publish(folder, topics)
    streams = start(config)
    add_files(folder / "data" / "streams" / "s000", files, topics)
    first = start(config)
    whole = start(config)
    by_folder = plan("path", str(folder / "data"))
    with served(config) as port, Relay(port) as relay:
        by_endpoint = plan("endpoint", f"http://127.0.0.1:{relay.port}")
        by_endpoint["http"] = relay.bytes
    steps = [grown(config, share * most_bytes) for share in sizes.SHARES]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        HEADING,
        f"Made by `make bench-scale`, commit {commit()}: {STREAMS} streams of"
        f" {topics:,} topics each, one of them with {files:,} files in {PARTITIONS} partitions;"
        f" load of the machine at the end: {load}.",
        "",
        "| start of the broker | s until clients can connect | resident MB |",
        "| --- | --- | --- |",
        row(f"{STREAMS} streams, no rows", bare),
        row(f"{STREAMS} streams, {STREAMS * topics:,} rows sealed", streams),
        row(f"and {files:,} files that its log does not know, first start", first),
        row("the next start", whole),
        "",
        "| planning of a batch on Spark's driver | folder | endpoint |",
        "| --- | --- | --- |",
    ]
    lines += sides_of(by_folder, by_endpoint)
    lines += [
        "",
        f"One more of these streams, with one partition, has files of 64 MiB that no codec makes"
        f" smaller. Each figure is the median of {ROUNDS}. Starts of the broker differ by more from"
        " one to the next than by their slope. Over HTTP, a reader of any row fetches its whole"
        " row group, here the file.",
        "",
        *sizes.table(steps),
    ]
    return "\n".join([*lines, ""])


def sides_of(*sides: Figures) -> list[str]:
    """The rows of the second table: a plan by the folder, and one by the endpoint."""
    lines = []
    for what, key, form in (
        ("first plan, s", "first_s", "{:.2f}"),
        ("next plan of the same reader, s", "next_s", "{:.2f}"),
        ("CPU of both, s", "cpu_s", "{:.2f}"),
        ("most memory of the process, MB", "memory_mb", "{:.0f}"),
        ("the same for a stream of one file", "plain_mb", "{:.0f}"),
        ("tasks", "tasks", "{:,}"),
        ("bytes of all tasks as they are sent", "task_bytes", "{:,}"),
        ("bytes of the largest task", "most_bytes", "{:,}"),
        ("bytes over HTTP for both plans, and one task of one file", "http", "{:,}"),
    ):
        cells = [form.format(side[key]) if key in side else "-" for side in sides]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


def grown(config: pathlib.Path, until_bytes: float) -> Figures:
    """Adds real files to a stream, and measures."""
    data = config.parent / "data"
    files, size = sizes.grow(data / "streams" / GROWING, int(until_bytes))
    start(config)  # takes the new files over
    broker = sizes.medians([start(config) for _ in range(ROUNDS)])
    near = sizes.medians([newest_of("path", str(data)) for _ in range(ROUNDS)])
    with served(config) as port:
        runs = []
        for _ in range(ROUNDS):
            with Relay(port) as relay:
                far = newest_of("endpoint", f"http://127.0.0.1:{relay.port}")
            runs.append({"far_s": far["newest_s"], "http": relay.bytes})
    return {
        "gb": size / 1e9,
        "files": files,
        "broker_s": broker["cpu_s"],
        "broker_mb": broker["memory_mb"],
        **near,
        **sizes.medians(runs),
    }


def row(what: str, found: Figures) -> str:
    """A row of the first table."""
    return f"| {what} | {found['start_s']:.2f} | {found['memory_mb']:.0f} |"


def streams() -> tuple[Stream, ...]:
    """The streams of the broker."""
    names = [f"s{number:03}" for number in range(STREAMS)]
    return tuple(
        Stream(name=name, filter=(f"{name}/#",), partitions=PARTITIONS if not number else 1)
        for number, name in enumerate(names)
    )


def configured(folder: pathlib.Path) -> pathlib.Path:
    """The configuration of the broker, as a file."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    parts = [
        f'data = "{folder}/data"\n[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true',
        f'[http]\naddress = "127.0.0.1:0"\ntoken_file = "{token}"',
        *(
            f'[[streams]]\nname = "{one.name}"\nfilter = ["{one.filter[0]}"]\n'
            f"partitions = {one.partitions}"
            for one in streams()
        ),
    ]
    path = folder / "mqttcore.toml"
    path.write_text("\n".join(parts))
    return path


def publish(folder: pathlib.Path, topics: int) -> None:
    """A row for each topic of each stream, sealed by the end."""
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0"),), data=str(folder / "data"), streams=streams()
    )
    with Broker(settings) as broker:
        for one in streams():
            for number in range(topics):
                broker.publish(f"{one.name}/device/{number}/temperature", b'{"value": 21.5}')
        # one of QoS 1 is safe after all before it
        broker.publish("s099/end", b"", qos=1)


def add_files(root: pathlib.Path, files: int, topics: int) -> None:
    """Files behind those of a stream, too large for a merge by their index."""
    stream = StreamFolder(root=root, name=root.name, partitions=PARTITIONS)
    index = stream.index()
    for number in range(files):
        entries = index[number % PARTITIONS]
        base = entries[-1]["last"] + 1 if entries else 0
        first = number * ROWS
        messages = [
            {
                "topic": f"{root.name}/device/{(first + at) % topics}/temperature",
                "payload": b'{"value": 21.5}',
                "timestamp": time.time_ns() // 1_000,
            }
            for at in range(ROWS)
        ]
        # the index is written once, at the end
        part = StreamFolder(root=root, name=root.name, partitions=PARTITIONS)
        entry = one_file(part, rows(messages, partition=number % PARTITIONS, base=base))
        entries.append(entry)
    known = json.loads(stream.index_path.read_text())
    stream.index_path.write_text(json.dumps(known | {"partitions": index}))


def one_file(stream: StreamFolder, table: Any) -> Figures:  # noqa: ANN401 -- a table of pyarrow
    """Writes a file; its entry of the index."""
    from mqttcore._core import write_stream_file

    from tests.stream_folder import ipc

    told = json.loads((stream.root / "stream.json").read_text())
    partition, base = table["partition"][0].as_py(), table["offset"][0].as_py()
    path = stream.root / "data" / f"{partition:05}-{base:020}.parquet"
    meta = write_stream_file(
        path, ipc(table), stream=stream.name, epoch=f"{told['store']}:{told['epoch']}"
    )
    kept = {key: meta[key] for key in ("base", "last", "min_us", "max_us", "typed")}
    sealed = time.time_ns() // 1_000
    return {"file": path.name, **kept, "rows": table.num_rows, "bytes": LARGE, "sealed_us": sealed}


@contextmanager
def running(config: pathlib.Path) -> Iterator[tuple[subprocess.Popen[str], list[str], float]]:
    """A broker of its own process: what it said, and how long its start took."""
    command = [sys.executable, "-m", "mqttcore.serve", "-c", str(config)]
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 -- our own command
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        said = []
        for line in process.stdout or ():
            said.append(line)
            if line.startswith("memory:"):
                break
        yield process, said, time.monotonic() - began
        process.terminate()


def start(config: pathlib.Path) -> Figures:
    """Starts the broker once."""
    with running(config) as (process, _, start_s):
        resident = memory_mb(str(process.pid), "VmRSS")
        cpu_s = cpu_seconds(process.pid)
    return {"start_s": start_s, "cpu_s": cpu_s, "memory_mb": resident}


def memory_mb(process: str, what: str) -> float:
    """What the system says of the memory of a process."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith(what))
    return int(found.split()[1]) / 1024


@contextmanager
def served(config: pathlib.Path) -> Iterator[int]:
    """A broker that runs; the port of its endpoint."""
    with running(config) as (_, said, _):
        (line,) = (line for line in said if line.startswith("http:"))
        yield int(line.rpartition(":")[2])


def plan(key: str, place: str) -> Figures:
    """Plans in a process of its own."""
    return apart("--plan", key, place)


def newest_of(key: str, place: str) -> Figures:
    """See `newest`, in a process of its own."""
    return apart("--newest", key, place)


def newest(key: str, place: str) -> Figures:
    """See `sizes.newest`."""
    given = {key: place, "stream": GROWING}
    return sizes.newest(given | far_options(key), lambda: memory_mb("self", "VmHWM"))


def far_options(key: str) -> dict[str, str]:
    """What a reader needs that has no folder."""
    return {"token": TOKEN, "files": "endpoint"} if key == "endpoint" else {}


def apart(*arguments: str) -> Figures:
    """What another process of this command prints."""
    command = [sys.executable, "-m", "benches.spark.scale", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    found: Figures = json.loads(done.stdout)
    return found


def planned(key: str, place: str) -> Figures:
    """Plans a batch of a stream with one file, and of the one with many; reads one task."""
    given = {key: place, "topic": "s000/#", **far_options(key)}
    small = MqttcoreDataSource({**given, "stream": "s001", "topic": "s001/#"})
    small.reader(small.schema()).partitions()
    plain = memory_mb("self", "VmHWM")
    source = MqttcoreDataSource({**given, "stream": "s000", "minPartitions": "2500"})
    reader = source.reader(source.schema())
    cpu, began = time.process_time(), time.monotonic()
    tasks = reader.partitions()
    first = time.monotonic() - began
    reader.partitions()
    both, cpu = time.monotonic() - began, time.process_time() - cpu
    peak = memory_mb("self", "VmHWM")
    sizes = [len(pickle.dumps(task)) for task in tasks]
    least = min(zip(sizes, range(len(tasks)), strict=True))[1]
    assert sum(batch.num_rows for batch in reader.read(tasks[least])) > 0  # noqa: S101
    return {
        "first_s": first,
        "next_s": both - first,
        "cpu_s": cpu,
        "memory_mb": peak,
        "plain_mb": plain,
        "tasks": len(tasks),
        "task_bytes": sum(sizes),
        "most_bytes": max(sizes),
    }


class Relay:
    """Passes on TCP connections, and counts the bytes of both directions."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(1 << 16):
                other.sendall(piece)
                self.bytes += len(piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return


if __name__ == "__main__":
    sys.exit(main())
