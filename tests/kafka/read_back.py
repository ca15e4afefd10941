"""A process of its own with Spark's Kafka connector: copies what a topic holds to Parquet.

A Spark that runs already takes no more jars, and the other tests have one running.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

from mqttcore.spark import from_kafka, read_stream, session

from tests.kafka.jars import CONNECTOR, fetch

READ_S = 180.0


def copied(servers: str, topic: str, to: pathlib.Path, *, how: str = "batch") -> None:
    """Has another process copy the topic; ``how`` is ``batch`` or ``stream``.

    Raises:
        MissingToolError: Java, Maven or a jar is missing.
        RuntimeError: Spark failed.
    """
    fetch(CONNECTOR)
    command = [sys.executable, "-m", __spec__.name, servers, topic, str(to), "--how", how]
    done = subprocess.run(  # noqa: S603 -- our own command
        command, capture_output=True, text=True, timeout=READ_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{done.stdout}{done.stderr}"[-3000:])


def main() -> None:
    """Copies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("to", type=pathlib.Path)
    parser.add_argument("--how", choices=("batch", "stream"), required=True)
    options = parser.parse_args()
    jars = CONNECTOR.classpath
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.jars": jars.replace(":", ","),
        # the source is found by the driver's own class loader
        "spark.driver.extraClassPath": jars,
    }
    spark = session("read back", cores=2, warm=False, **conf)
    if options.how == "batch":
        source = spark.read.format("kafka").option("includeHeaders", "true")
        source = source.option("kafka.bootstrap.servers", options.servers)
        from_kafka(source.option("subscribe", options.topic).load()).write.parquet(str(options.to))
        return
    url = f"kafka://{options.servers}/{options.topic}"
    rows = read_stream(spark, url, startingOffsets="earliest", maxOffsetsPerTrigger=1_000)
    checkpoint = options.to.with_name(options.to.name + "-checkpoint")
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(options.to))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
