"""S11: rows that become messages through Spark's sink, beside a loop over an MQTT client."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import paho.mqtt.client as mqtt
import pyarrow.parquet as pq
from paho.mqtt.enums import CallbackAPIVersion

from benches.spark.goals import Measured, Row
from tests.crash.process import ServerProcess

if TYPE_CHECKING:
    from benches.spark.scans import Bench

FILES: Final = 8
"""Of the data set: two million messages at full scale."""
LOOP_MESSAGES: Final = 20_000


def sink(bench: Bench) -> Measured:
    """The same topics and payloads at QoS 1 to one durable broker, which nobody subscribes to."""
    files = sorted(map(str, pathlib.Path(bench.data.parquet).glob("*.parquet")))[:FILES]
    rows = bench.spark.read.parquet(*files).select("topic", "payload")
    table = pq.ParquetFile(files[0]).read_row_group(0, ["topic", "payload"])
    messages = table.slice(0, LOOP_MESSAGES).to_pylist()
    with running() as server:
        writer = rows.write.format("mqttcore").mode("append")
        costs = bench.turns(
            ours=lambda: writer.save(str(server.data)), paho=lambda: loop(server.port, messages)
        )
    return bench.compared(Row.S11, costs, ours=rows.count(), others=len(messages))


@contextmanager
def running() -> Iterator[ServerProcess]:
    """A broker with a store, as a process."""
    with tempfile.TemporaryDirectory(prefix="mqttcore-bench-") as folder:
        server = ServerProcess(data=pathlib.Path(folder, "data"))
        # the endpoint needs a stream; these messages are in none
        server.config = pathlib.Path(folder, "mqttcore.toml")
        server.config.write_text(CONFIG)
        server.start()
        try:
            yield server
        finally:
            server.stop()


CONFIG: Final = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "other"
filter = ["other/#"]
"""


def loop(port: int, messages: Sequence[dict[str, object]]) -> None:
    """What one writes without a sink: a message after the other, acknowledged at the end."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(1_000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = [client.publish(str(row["topic"]), row["payload"], qos=1) for row in messages]  # type: ignore[arg-type]
    for one in sent:
        one.wait_for_publish()
    client.disconnect()
    client.loop_stop()
