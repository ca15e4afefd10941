"""Rows that read a stream once: S1 to S5 and S10."""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
from mqttcore.spark import read, session
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benches.spark.cost import Cost, in_turn
from benches.spark.data import PARTITIONS, PAYLOAD_SCHEMA, SCALES, Dataset, dataset, telemetry
from benches.spark.goals import Measured, Row, compared
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEVEN: Final = ("partition", "offset", "timestamp", "topic", "payload", "qos", "client_id")
NAIVE_MESSAGES: Final = 20_000
NAIVE_S: Final = 60.0
SESSIONS: Final = 5
"""Of S1 and S2."""
WARMING: Final = 5
"""Turns of S1 and S2 that do not count."""


class Bench:
    """One Spark session with the tuning of `mqttcore.spark.session`, and a stream."""

    def __init__(self, spark: SparkSession, data: Dataset, *, rounds: int, by: str) -> None:
        self.spark = spark
        self.data = data
        self.rounds = rounds
        self.by = by

    def ours(self, **options: object) -> DataFrame:
        """The source."""
        reader = self.spark.read.format("mqttcore").options(**options)
        return reader.load(self.data.path)

    def native(self) -> DataFrame:
        """Spark's own reader of the same files."""
        schema = self.ours().schema
        return self.spark.read.schema(schema).parquet(self.data.parquet)

    def turns(
        self, *, warming: int = 1, **contenders: Callable[[], object]
    ) -> dict[str, list[Cost]]:
        """Lets them take turns."""
        return in_turn(contenders, rounds=self.rounds, root=os.getpid(), warming=warming)

    def compared(
        self,
        row: Row,
        costs: dict[str, list[Cost]],
        *,
        ours: float | None = None,
        others: float | None = None,
    ) -> Measured:
        """The first contender and the second; a turn has all sealed rows, or as many as is said."""
        return compared(row, costs, ours or self.data.rows, others or self.data.rows, by=self.by)


Measure = Callable[[Bench], Measured]


@contextmanager
def in_session(options: argparse.Namespace) -> Iterator[Bench]:
    """A Spark session with the stream."""
    data = dataset(options.data, SCALES[options.scale])
    spark = session("bench", memory=options.memory, **{"spark.log.level": "ERROR"})
    try:
        yield Bench(spark, data, rounds=options.rounds, by=options.by)
    finally:
        spark.stop()


def drain(frame: DataFrame) -> None:
    """Reads every row and keeps none."""
    frame.write.format("noop").mode("overwrite").save()


def full_scan(bench: Bench) -> Measured:
    """S1: all columns of all sealed rows."""
    ours, native = bench.ours(), bench.native()
    costs = bench.turns(warming=WARMING, ours=lambda: drain(ours), parquet=lambda: drain(native))
    return bench.compared(Row.S1, costs)


def whole_stream(bench: Bench) -> Measured:
    """S2: the same with a tail of one percent; each turn of both begins with finding the files."""
    folder, tail_rows = bench.data.folder, bench.data.rows // PARTITIONS // 100
    schema = bench.ours().schema
    with AtHand(folder) as endpoint:
        for partition in range(PARTITIONS):
            endpoint.write(telemetry(partition, endpoint.bounds(partition)["end"], tail_rows))
        costs = bench.turns(
            warming=WARMING,
            ours=lambda: drain(read(bench.spark, path=bench.data.path)),
            parquet=lambda: drain(bench.spark.read.schema(schema).parquet(bench.data.parquet)),
        )
    return bench.compared(Row.S2, costs, ours=bench.data.rows + PARTITIONS * tail_rows)


def sessions(options: argparse.Namespace, measure: Measure) -> Measured:
    """A row in JVMs of its own, one after the other; the middle one counts.

    Java compiles the loops of both contenders differently in each JVM.
    """
    alone = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=alone, max_tasks_per_child=1) as pool:
        turns = pool.map(in_own_session, [options] * SESSIONS, [measure] * SESSIONS)
        found = sorted(turns, key=lambda one: one.value)
    middle = found[len(found) // 2]
    span = f"{found[0].value:.2f} to {found[-1].value:.2f}"
    return replace(middle, figures=f"{middle.figures}; the middle of {SESSIONS} JVMs, {span}")


def in_own_session(options: argparse.Namespace, measure: Measure) -> Measured:
    """A row in a session of this process."""
    with in_session(options) as bench:
        return measure(bench)


class AtHand(FakeEndpoint):
    """As a broker, which has the rows of its tail ready to be sent."""

    def __init__(self, stream: StreamFolder) -> None:
        super().__init__(stream)
        self.made: dict[tuple[int, int, int], bytes] = {}

    def rows(self, partition: int, start: int, end: int) -> bytes:
        """These rows, made once."""
        key = (partition, start, end)
        if key not in self.made:
            self.made[key] = super().rows(*key)
        return self.made[key]


def decoded_windows(bench: Bench) -> Measured:
    """S3: the mean temperature of each topic and minute, out of JSON."""

    def windows(frame: DataFrame) -> None:
        minute = sql.window("timestamp", "1 minute")
        drain(frame.groupBy(minute, "topic").agg(sql.avg("temperature")))

    ours = bench.ours(
        decode="json", payloadSchema=PAYLOAD_SCHEMA, columns="timestamp,topic,temperature"
    )
    text = sql.col("payload").cast("string")
    native = bench.native().select(
        "timestamp",
        "topic",
        sql.from_json(text, PAYLOAD_SCHEMA)["temperature"].alias("temperature"),
    )
    costs = bench.turns(ours=lambda: windows(ours), from_json=lambda: windows(native))
    return bench.compared(Row.S3, costs)


def tuples(bench: Bench) -> Measured:
    """S4, first half: a source as most are in Python, which yields tuples in one partition."""
    bench.spark.dataSource.register(TupleSource)
    file = min(pathlib.Path(bench.data.parquet).iterdir())
    rows = pq.ParquetFile(file).metadata.num_rows
    naive = bench.spark.read.format("tuples").load(str(file))
    ours = bench.ours(columns=",".join(SEVEN))
    costs = bench.turns(ours=lambda: drain(ours), tuples=lambda: drain(naive))
    return bench.compared(Row.S4_TUPLES, costs, others=rows)


def paho(bench: Bench) -> Measured:
    """S4, second half: paho, a list, `createDataFrame`."""
    ours = bench.ours(columns=",".join(SEVEN))
    costs = bench.turns(ours=lambda: drain(ours), paho=lambda: naive(bench.spark))
    return bench.compared(Row.S4_PAHO, costs, others=NAIVE_MESSAGES)


def naive(spark: SparkSession) -> None:
    """What one writes without a source: messages into a list, the list into a frame."""
    import paho.mqtt.client as mqtt
    from mqttcore import Broker, Settings
    from mqttcore.config import Listener

    rows: list[tuple[Any, ...]] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _client, _data, message: rows.append(
        (message.topic, bytes(message.payload), message.qos, time.time())
    )
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    with Broker(Settings(listeners=(listener,))) as broker:
        client.connect("127.0.0.1", broker.port)
        client.subscribe("plant/#")
        client.loop_start()
        if not subscribed.wait(NAIVE_S):
            raise RuntimeError("paho: no subscription")
        for number in range(NAIVE_MESSAGES):
            broker.publish(f"plant/{number % 2000}", b'{"temperature":21.53,"humidity":45.1}' * 2)
            while number - len(rows) > 1000:
                time.sleep(0.001)
        deadline = time.monotonic() + NAIVE_S
        while len(rows) < NAIVE_MESSAGES:
            if time.monotonic() > deadline:
                raise RuntimeError(f"paho: {len(rows)} of {NAIVE_MESSAGES} messages came")
            time.sleep(0.001)
        drain(spark.createDataFrame(rows, "topic STRING, payload BINARY, qos INT, at DOUBLE"))
        client.disconnect()
        client.loop_stop()


def available_now(bench: Bench) -> Measured:
    """S5: a stream that catches up in batches of a million rows."""
    ours = (
        bench.spark.readStream.format("mqttcore")
        .options(startingOffsets="earliest", maxRowsPerTrigger=bench.data.rows // 8)
        .load(bench.data.path)
    )
    files = max(1, len(list(pathlib.Path(bench.data.parquet).iterdir())) // 8)
    native = (
        bench.spark.readStream.schema(ours.schema)
        .option("maxFilesPerTrigger", files)
        .parquet(bench.data.parquet)
    )
    costs = bench.turns(ours=lambda: catch_up(ours), files=lambda: catch_up(native))
    return bench.compared(Row.S5, costs)


def catch_up(frame: DataFrame) -> None:
    """Reads all there is, as a stream."""
    checkpoint = tempfile.mkdtemp(prefix="mqttcore-bench-")
    try:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def sealed_size(bench: Bench) -> Measured:
    """S10: bytes of files for bytes of messages."""
    data = bench.data
    return Measured(
        row=Row.S10,
        value=data.sealed_bytes / data.raw_bytes,
        figures=(
            f"{data.sealed_bytes / data.rows:.1f} B a row of {data.raw_bytes / data.rows:.0f} B"
        ),
    )


class TupleSource(DataSource):
    """What S4 compares with: the rows of a file, one Python tuple each."""

    @classmethod
    def name(cls) -> str:
        """As it is registered."""
        return "tuples"

    def schema(self) -> str:
        """Seven columns of a stream."""
        return (
            "partition INT, offset BIGINT, timestamp TIMESTAMP, topic STRING, payload BINARY,"
            " qos TINYINT, client_id STRING"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads one file in one task."""
        return TupleReader(self.options["path"], schema.fieldNames())


class TupleReader(DataSourceReader):
    """Row groups of a file."""

    def __init__(self, path: str, columns: list[str]) -> None:
        self.path = path
        self.columns = columns

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Tuple by tuple."""
        file = pq.ParquetFile(self.path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, self.columns)
            yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


SCANS: Final = {
    Row.S1: full_scan,
    Row.S2: whole_stream,
    Row.S3: decoded_windows,
    Row.S4_TUPLES: tuples,
    Row.S4_PAHO: paho,
    Row.S5: available_now,
    Row.S10: sealed_size,
}
ALONE: Final = frozenset({Row.S1, Row.S2})
"""Rows that are measured in sessions of their own."""
