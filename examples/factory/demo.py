"""A broker, machines that report to it, a pipeline, and a client that receives alerts.

python examples/factory/demo.py --seconds 30 --picture load.png    # the picture needs matplotlib
"""

import argparse
import dataclasses
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import paho.mqtt.client as paho
from mqttcore import Broker
from mqttcore.config import load as load_settings
from mqttcore.pipeline import Pipeline, load
from mqttcore.pipeline.progress import Lines
from mqttcore.pipeline.runner import Runner
from mqttcore.spark import session
from paho.mqtt.enums import CallbackAPIVersion
from plot import plot
from simulator import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


class Watcher:
    """An MQTT client that receives alerts."""

    def __init__(self, port: int) -> None:
        """Subscribes; the broker queues messages until `close`."""
        self.alerts: list[str] = []
        self._alerted = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id="watcher")
        self._client.on_connect = lambda client, *_: client.subscribe("alerts/#", qos=1)
        self._client.on_message = self._told
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def close(self) -> None:
        """Disconnects, after a wait for the last alert."""
        self._alerted.wait(5)
        self._client.disconnect()
        self._client.loop_stop()

    def _told(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.alerts.append(message.topic)
        print(f"ALERT {message.topic} {message.payload.decode()}", flush=True)
        self._alerted.set()


def run(spark: "SparkSession", pipeline: Pipeline, port: int, seconds: float) -> int:
    """Runs the pipeline while the machines report, then reads the rest; returns the messages."""
    live = Runner(spark, pipeline, Lines())
    live.start()
    try:
        sent = simulate(port, machines=8, per_second=200, seconds=seconds)
    finally:
        live.stop()
    rest = Runner(spark, pipeline, Lines())
    rest.start(once=True)
    rest.wait()
    return sent


def main() -> int:
    """Returns 1 if there was no alert."""
    parser = argparse.ArgumentParser(description="A factory: broker, machines, pipeline, alerts.")
    parser.add_argument("--seconds", type=float, default=30, help="how long the machines run")
    parser.add_argument("--picture", type=Path, help="PNG that the gold table is drawn to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(
            HERE / "broker.toml", listen=["127.0.0.1:0"], data=str(Path(folder) / "var")
        )
        described = load(HERE / "pipeline.toml")
        source = dataclasses.replace(described.source, path=Path(folder) / "var")
        pipeline = dataclasses.replace(described, source=source, tables=Path(folder) / "tables")
        spark = session("factory")
        with Broker(settings) as broker:
            watcher = Watcher(broker.port)
            sent = run(spark, pipeline, broker.port, options.seconds)
            watcher.close()
        spark.stop()
        if options.picture:
            plot(pipeline.table("load").path, options.picture)
        tables = {name: read(pipeline, name) for name in ("bronze", "silver", "quarantine", "load")}
    print(f"\nsent {sent}; " + ", ".join(f"{name} {len(rows)}" for name, rows in tables.items()))
    print(tables["load"].sort_values(["window_start", "machine"]).tail(16).to_string(index=False))
    print(f"{len(watcher.alerts)} alerts")
    return 0 if watcher.alerts and len(tables["bronze"]) == sent else 1


def read(pipeline: Pipeline, table: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 -- pandas
    """Reads a table into pandas."""
    return deltalake.DeltaTable(pipeline.table(table).path).to_pandas()


if __name__ == "__main__":
    raise SystemExit(main())
