"""`make kafka NODES=3`: appends to several nodes of Kafka and reads back, at three rates.

The nodes run on this machine and share it with the client, `kafka_load` of `rust/streams/examples`,
which sends what the broker sends, the way that it does. An append ends when the nodes that have to
be in sync have the record, a read-back when a consumer has it; both begin when the record was due,
so they have no meaning where the rate is not reached. The output is a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.kafka.jars import NODE, MissingToolError, fetch
from tests.kafka.node import Member, Node, free_ports

SKIPPED: Final = 3
HEAP: Final = "400m"
HEAD: Final = (
    "| records/s | reached | append p50 | p99 | read-back p50 | p99 | CPU a record, appending"
    " | reading | missing |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> int:
    """Does what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.cluster")
    parser.add_argument("load", type=pathlib.Path, help="the program kafka_load")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="of each rate")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 50_000, 200_000])
    options = parser.parse_args()
    try:
        fetch(NODE)
    except MissingToolError as missing:
        print(f"kafka: {missing}", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder, cluster(options.nodes, folder) as servers:
        print(HEAD)
        for rate in options.rates:
            print(measured(options.load, servers, rate, options.seconds), flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"\n{options.nodes} nodes, {os.cpu_count()} cores; load of the machine at the end: {load}"
    )
    return 0


@contextlib.contextmanager
def cluster(count: int, folder: str) -> Iterator[str]:
    """Nodes that run; where clients begin."""
    ports = free_ports(count)
    nodes = [
        Node(
            pathlib.Path(folder) / str(number),
            heap=HEAP,
            member=Member(number=number, ports=ports),
        )
        for number in range(1, count + 1)
    ]
    try:
        # a controller answers when most of them are there
        with ThreadPoolExecutor(count) as together:
            list(together.map(Node.start, nodes))
        yield ",".join(node.servers for node in nodes)
    finally:
        for node in nodes:
            node.kill()


def measured(load: pathlib.Path, servers: str, rate: int, seconds: int) -> str:
    """One row of the table."""
    topic = f"load-{rate}"
    said([str(load), "append", servers, topic, "10", "1"])  # has the cluster make it
    arguments = [servers, topic, str(rate), str(seconds)]
    command = [str(load), "read", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:  # noqa: S603 -- ours
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        append = said([str(load), "append", *arguments])
        read = json.loads(reader.stdout.read())
    reached = append["records"] / (append["records"] / rate + append["late_ms"] / 1_000)
    cells = [
        f"{rate:,}",
        f"{reached:,.0f}",
        *(f"{found[key]:,.0f} ms" for found in (append, read) for key in ("p50_ms", "p99_ms")),
        *(f"{1e6 * found['cpu_s'] / found['records']:.1f} µs" for found in (append, read)),
        str(append["lost"] + append["missing"] + read["missing"]),
    ]
    return f"| {' | '.join(cells)} |"


def said(command: Sequence[str]) -> Any:  # noqa: ANN401 -- JSON
    """The report of a run."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- ours
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
