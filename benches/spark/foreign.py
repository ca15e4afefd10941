"""Rows to a broker over MQTT: the publisher in Rust beside a loop over paho, to one broker.

``python -m benches.spark.foreign``: both publish the same Arrow batches at QoS 1, over MQTT 5.0,
with the name of each row, to a broker in memory that nobody subscribes to, and which allows 64
messages at a time. Turns alternate; the medians of five are compared. Spark has no part in it: this
is what one task does.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import paho.mqtt.client as mqtt
import pyarrow as pa
from mqttcore.spark.messages import Place
from mqttcore.spark.mqtt import Foreign
from mqttcore.spark.sink_options import parse_sink_options
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pyspark.sql.types import BinaryType, StringType, StructType

TURNS: Final = 5
WINDOW: Final = 1_000
BATCH_ROWS: Final = 10_000
PAYLOAD: Final = b"x" * 144
PLACE: Final = Place(query="bench", batch=0, partition=0, attempt=0)


def main() -> None:
    """Prints rows a second of both, wall and CPU of this process, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of the publisher in Rust")
    parser.add_argument("--paho-rows", type=int, default=20_000)
    options = parser.parse_args()
    with broker() as port:
        turns = [
            (cost(port, options.rows, publish), cost(port, options.paho_rows, loop))
            for _ in range(TURNS)
        ]
    for index, name in enumerate(("wall", "CPU of the client")):
        ours, others = (statistics.median(turn[side][index] for turn in turns) for side in (0, 1))
        print(
            f"{name}: mqttcore {1 / ours:,.0f} rows/s, paho {1 / others:,.0f} rows/s,"
            f" ratio {others / ours:.1f}"
        )


@contextlib.contextmanager
def broker() -> Iterator[int]:
    """The port of a broker that keeps nothing, as a process."""
    command = [sys.executable, "-m", "mqttcore.serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 -- ours
        try:
            banner = process.stdout.readline() if process.stdout is not None else ""
            yield int(banner.split("listening on ")[1].split(";")[0].rpartition(":")[2])
        finally:
            process.terminate()


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """As Spark hands them over."""
    for first in range(0, rows, BATCH_ROWS):
        numbers = range(first, min(rows, first + BATCH_ROWS))
        yield pa.record_batch(
            {
                "topic": [f"bench/{number % 1_000}" for number in numbers],
                "payload": [PAYLOAD] * len(numbers),
            }
        )


def cost(
    port: int, rows: int, way: Callable[[int, list[pa.RecordBatch]], None]
) -> tuple[float, float]:
    """Seconds a row, of the wall and of this process; the batches are there before."""
    made = list(batches(rows))
    wall, cpu = time.perf_counter(), time.process_time()
    way(port, made)
    return (time.perf_counter() - wall) / rows, (time.process_time() - cpu) / rows


def publish(port: int, made: list[pa.RecordBatch]) -> None:
    """What a task does."""
    schema = StructType().add("topic", StringType()).add("payload", BinaryType())
    given = {"broker": f"mqtt://127.0.0.1:{port}", "window": str(WINDOW)}
    Foreign(parse_sink_options(given), schema).send(made, PLACE)


def loop(port: int, made: list[pa.RecordBatch]) -> None:
    """What a task did before: row by row, with paho's thread."""
    room, connected = threading.Semaphore(0), threading.Event()
    windows = []

    def let_in(*told: object) -> None:
        windows.append(min(WINDOW, getattr(told[4], "ReceiveMaximum", WINDOW)))
        room.release(windows[0])
        connected.set()

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(0)
    client.on_connect = let_in
    client.on_publish = lambda *_: room.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    connected.wait()
    row = 0
    for batch in made:
        for message in batch.to_pylist():
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's
            properties.UserProperty = [("mqttcore-id", f"bench/0/0/{row}")]
            room.acquire()
            client.publish(message["topic"], message["payload"], qos=1, properties=properties)
            row += 1
    for _ in range(windows[0]):
        room.acquire()
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
