"""S8, and S10's Kafka: the same records in one local node, for Spark's own Kafka source.

Everything runs in processes of its own, ``python -m benches.spark.kafka``: Spark takes the
connector's jars only when it starts. Where Java or Maven is missing the rows are left out; the
micro-batches take a broker that was built with Kafka (``FEATURES=kafka``), which feeds both.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from benches.spark.data import PARTITIONS, SCALES, dataset
from benches.spark.feed import PERIOD_S, ROWS
from benches.spark.floor import against, fault, paired_by, wait
from benches.spark.goals import AbsentError, Measured, Outcome, Row, attempt, compared
from tests.kafka.jars import CONNECTOR, fetch
from tests.kafka.node import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S: Final = 1_200.0
COLUMNS: Final = ("partition", "offset", "timestamp", "topic", "payload")
FLOOR: Final = "floor"
FLOOR_PARTITIONS: Final = 4
HEADERS: Final = {
    "timestamp_us": "unix_micros(timestamp)",
    "qos": "qos",
    "retain": "retain",
    "dup": "dup",
    "client_id": "client_id",
}
"""What a broker says of a message beside its topic and payload."""


def kafka(options: argparse.Namespace) -> Iterator[Outcome]:
    """The rows of S8, and S10's of Kafka, as far as they can be measured here."""
    node = Node(options.data / options.scale / "kafka", heap="512m")

    @functools.cache
    def up() -> Node:
        fetch(CONNECTOR)
        return node.start()

    try:
        yield from attempt([Row.S8], lambda: scan(up(), options))
        yield from attempt([Row.S10_KAFKA], lambda: kept_bytes(up(), options))
        yield from attempt([Row.S8_FLOOR], lambda: floor(up, options))
    finally:
        node.stop()


def scan(node: Node, options: argparse.Namespace) -> Iterator[Measured]:
    """All rows of the stream, five columns, into nothing."""
    turns = ["--rounds", str(options.rounds), "--by", options.by]
    found = run("scan", node.servers, *stream_of(options), *turns)
    yield Measured(row=Row.S8, **found)


def kept_bytes(node: Node, options: argparse.Namespace) -> Iterator[Measured]:
    """Bytes of sealed files for those that Kafka's segments have of the same rows."""
    topic = run("fill", node.servers, *stream_of(options))["topic"]
    segments = (node.folder / "logs").glob(f"{topic}-*/*.log")
    theirs = sum(segment.stat().st_size for segment in segments)
    data = dataset(options.data, SCALES[options.scale])
    figures = f"{data.sealed_bytes / data.rows:.1f} B a row, Kafka {theirs / data.rows:.1f} B"
    yield Measured(row=Row.S10_KAFKA, value=data.sealed_bytes / theirs, figures=figures)


def stream_of(options: argparse.Namespace) -> list[str]:
    """Which stream a process reads, on its command line."""
    return ["--scale", options.scale, "--data", str(options.data)]


def floor(up: Callable[[], Node], options: argparse.Namespace) -> Iterator[Measured]:
    """How long a micro-batch takes while one broker feeds both."""
    from mqttcore import _core

    if not _core.has_kafka:
        raise AbsentError("this build has no Kafka: make bench-spark FEATURES=kafka")
    node = up()
    small = options.scale == "small"
    turns, batches = (1, 20) if small else (2, 80)
    root = options.data / "kafka-feed"
    shutil.rmtree(root, ignore_errors=True)
    with fed(root, node.servers):

        def ms(source: str) -> float:
            place = node.servers if source == "kafka" else str(root)
            return float(run("floor", source, place, "--batches", str(batches))["ms"])

        yield from against(Row.S8_FLOOR, "Kafka", paired_by(ms, "kafka", "mqttcore", turns))


def run(what: str, *arguments: str) -> dict[str, Any]:
    """The figures of one process."""
    done = subprocess.run(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.kafka", what, *arguments],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(fault(done.stderr))
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@contextmanager
def fed(root: pathlib.Path, servers: str) -> Iterator[None]:
    """Rows come to both logs while this is open."""
    feed = subprocess.Popen(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.kafka", "feed", str(root), servers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if feed.stdout is None or feed.stdout.readline() != "ready\n":
            raise RuntimeError("no rows come")
        yield
    finally:
        feed.communicate("", timeout=60)


def main() -> int:
    """One of the processes: prints its figures as JSON."""
    made = argparse.ArgumentParser(description=__doc__)
    parts = made.add_subparsers(dest="part", required=True)
    stream = argparse.ArgumentParser(add_help=False)
    stream.add_argument("servers")
    stream.add_argument("--scale", choices=sorted(SCALES), required=True)
    stream.add_argument("--data", type=pathlib.Path, required=True)
    scanning = parts.add_parser("scan", parents=[stream])
    scanning.add_argument("--rounds", type=int, required=True)
    scanning.add_argument("--by", choices=("wall", "cpu"), required=True)
    parts.add_parser("fill", parents=[stream])
    batches = parts.add_parser("floor")
    batches.add_argument("source", choices=("mqttcore", "kafka"))
    batches.add_argument("place")
    batches.add_argument("--batches", type=int, required=True)
    feeding = parts.add_parser("feed")
    feeding.add_argument("root", type=pathlib.Path)
    feeding.add_argument("servers")
    options = made.parse_args()
    PARTS[options.part](options)
    return 0


def connected(app: str, memory: str) -> SparkSession:
    """A tuned Spark with the connector."""
    from mqttcore.spark import session

    jars: Mapping[str, str] = {
        "spark.jars": CONNECTOR.classpath.replace(":", ","),
        "spark.driver.extraClassPath": CONNECTOR.classpath,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
    }
    return session(app, memory=memory, **jars)


def of_kafka(frame: DataFrame) -> DataFrame:
    """The five columns, under the names that a stream has for them."""
    return frame.selectExpr(
        "partition", "offset", "timestamp", "CAST(key AS STRING) AS topic", "value AS payload"
    )


def scan_process(options: argparse.Namespace) -> None:
    """Has both read the topic in turn."""
    from benches.spark.scans import Bench, drain

    data = dataset(options.data, SCALES[options.scale])
    spark = connected("kafka", "4g")
    bench = Bench(spark, data, rounds=options.rounds, by=options.by)
    topic = filled(bench, options, "lz4")
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", options.servers)
    theirs = of_kafka(reader.option("subscribe", topic).load())
    ours = bench.ours(columns=",".join(COLUMNS))
    if (rows := theirs.count()) != data.rows:
        raise RuntimeError(f"{rows} records of {data.rows}")
    costs = bench.turns(ours=lambda: drain(ours), Kafka=lambda: drain(theirs))
    found = compared(Row.S8, costs, data.rows, data.rows, by=options.by)
    figures = f"{found.figures}, less the CPU of Kafka itself"
    print(json.dumps({"value": found.value, "figures": figures, "sides": found.sides}))
    spark.stop()


def fill_process(options: argparse.Namespace) -> None:
    """Fills a topic with what zstd makes of its records."""
    from benches.spark.scans import Bench

    spark = connected("kafka", "4g")
    bench = Bench(spark, dataset(options.data, SCALES[options.scale]), rounds=1, by="wall")
    print(json.dumps({"topic": filled(bench, options, "zstd")}))
    spark.stop()


def filled(bench: Any, options: argparse.Namespace, codec: str) -> str:  # noqa: ANN401 -- a Bench
    """The topic with every row as a record, as a broker writes it; filled by the first run."""
    known = options.data / options.scale / "kafka" / f"topic-{codec}"
    if known.exists():
        return str(known.read_text())
    name = f"bench-{uuid.uuid4()}"
    make_topic(bench.spark, options.servers, name)
    each = (
        f"struct('{name}' AS key, CAST(CAST({column} AS STRING) AS BINARY) AS value)"
        for name, column in HEADERS.items()
    )
    records = bench.native().selectExpr(
        "topic AS key", "payload AS value", "partition", f"array({', '.join(each)}) AS headers"
    )
    (
        records.write.format("kafka")
        .option("kafka.bootstrap.servers", options.servers)
        .option("kafka.compression.type", codec)
        .option("includeHeaders", "true")
        .option("topic", name)
        .save()
    )
    known.write_text(name)
    return name


def make_topic(spark: SparkSession, servers: str, name: str) -> None:
    """Makes the topic, by the client that Spark has."""
    java: Any = spark._jvm
    settings = java.java.util.Properties()
    settings.setProperty("bootstrap.servers", servers)
    admin = java.org.apache.kafka.clients.admin
    optional = java.java.util.Optional
    topic = admin.NewTopic(name, optional.of(PARTITIONS), optional.empty())
    client = admin.AdminClient.create(settings)
    client.createTopics(java.java.util.Collections.singleton(topic)).all().get()
    client.close()


def floor_process(options: argparse.Namespace) -> None:
    """One query over live rows, a batch as soon as the last one ended."""
    from mqttcore.spark import read_stream

    spark = connected("floor", "1g")
    if options.source == "kafka":
        source = spark.readStream.format("kafka").option("subscribe", FLOOR)
        rows = of_kafka(source.option("kafka.bootstrap.servers", options.place).load())
    else:
        rows = read_stream(spark, f"mqttcore://{options.place}?stream={FLOOR}")
    query = (
        rows.select("timestamp", "topic", "payload")
        .writeStream.format("noop")
        .option("checkpointLocation", tempfile.mkdtemp(prefix="mqttcore-floor-"))
        .start()
    )
    times = sorted(wait(query, options.batches))
    query.stop()
    if not times:
        raise RuntimeError("no batch ended in time")
    print(json.dumps({"ms": times[len(times) // 2], "batches": len(times)}))
    spark.stop()


def feed_process(options: argparse.Namespace) -> None:
    """A broker whose messages are rows of its own and records of Kafka, until its input ends."""
    from mqttcore import Broker, Settings
    from mqttcore.config import Listener
    from mqttcore.streams.kafka import Kafka
    from mqttcore.streams.settings import Stream

    own = Stream(name=FLOOR, filter=("floor/#",), partitions=FLOOR_PARTITIONS)
    other = Stream(
        name="other", filter=("floor/#",), partitions=FLOOR_PARTITIONS, log="kafka", topic=FLOOR
    )
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(options.root),
        streams=(own, other),
        kafka=Kafka(servers=(options.servers,)),
    )
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with Broker(settings) as running:
        turn, next_s = 0, time.monotonic()
        while not stopped.is_set():
            for number in range(ROWS):
                payload = f'{{"temperature":{20 + number / 100},"sequence":{turn * ROWS + number}}}'
                running.publish(f"floor/{number % 100}", payload)
            if turn == 0:
                print("ready", flush=True)
            turn, next_s = turn + 1, next_s + PERIOD_S
            stopped.wait(max(0.0, next_s - time.monotonic()))


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "scan": scan_process,
    "fill": fill_process,
    "floor": floor_process,
    "feed": feed_process,
}


if __name__ == "__main__":
    sys.exit(main())
