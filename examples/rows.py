"""A broker with a stream: Spark reads its messages as rows, and publishes rows as messages.

python examples/rows.py
"""

import json
import tempfile
from typing import TYPE_CHECKING

from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.streams.settings import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEVICES = 20


def start_broker(data: str) -> Broker:
    """Starts a broker that stores messages below `plant/` as rows."""
    stream = Stream(name="plant", filter=("plant/#",), partitions=2)
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    return Broker(Settings(listeners=(listener,), data=data, streams=(stream,)))


def publish(broker: Broker, rounds: int) -> None:
    """Each device publishes its temperature a few times."""
    for number in range(rounds):
        for device in range(DEVICES):
            told = {"temperature": 20 + device + number / 10, "unit": "C"}
            broker.publish(f"plant/{device}", json.dumps(told))


def temperatures(spark: "SparkSession", data: str) -> "DataFrame":
    """The mean temperature of each device over all present rows."""
    rows = (
        spark.read.format("mqttcore")
        .option("decode", "json")
        .option("payloadSchema", "temperature DOUBLE, unit STRING")
        .load(data, stream="plant")
    )
    return rows.groupBy("topic").avg("temperature").orderBy("topic")


def warn(spark: "SparkSession", data: str) -> None:
    """Publishes high temperatures to `warm/...`, each row once, even if it is called again."""
    rows = (
        spark.readStream.format("mqttcore")
        .options(decode="json", payloadSchema="temperature DOUBLE", startingOffsets="earliest")
        .load(data, stream="plant")
    )
    warm = rows.where("temperature > 35").selectExpr("'warm/' || topic AS topic", "payload")
    query = (
        warm.writeStream.format("mqttcore")
        .option("checkpointLocation", f"{data}/checkpoints/warm")
        .trigger(availableNow=True)
        .start(data)
    )
    query.awaitTermination()


def main() -> None:
    """Shows the table, and the warnings."""
    from mqttcore.spark import session

    with tempfile.TemporaryDirectory() as data, start_broker(data) as broker:
        publish(broker, 10)
        spark = session("rows")
        temperatures(spark, data).show()
        warn(spark, data)
        spark.stop()


if __name__ == "__main__":
    main()
