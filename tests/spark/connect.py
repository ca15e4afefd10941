"""`python -m tests.spark.connect`: batch and streaming reads through Spark Connect.

A process of its own: a session of Spark and one of Connect cannot be in the same one.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

from tests.spark.conftest import numbered
from tests.stream_folder import StreamFolder

ROWS = 20


def main() -> int:
    """Reads a sealed stream both ways, and by SQL."""
    from mqttcore.spark.java import find_java
    from pyspark.sql import SparkSession

    os.environ |= {
        "JAVA_HOME": str(find_java().spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder)
        StreamFolder(root=data / "streams" / "plant").create().seal(numbered(ROWS))
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
        try:
            check(spark, data)
        finally:
            spark.stop()
    print("Connect: batch, SQL and streaming")
    return 0


def check(spark: object, data: pathlib.Path) -> None:
    """Raises what is wrong."""
    options = {"path": str(data), "stream": "plant"}
    batch = spark.read.format("mqttcore").options(**options).load()  # type: ignore[attr-defined]
    offsets = sorted(row["offset"] for row in batch.collect())
    assert offsets == list(range(ROWS)), offsets
    sql = spark.sql  # type: ignore[attr-defined]
    sql(f"CREATE TEMPORARY VIEW rows USING mqttcore OPTIONS (path '{data}', stream 'plant')")
    assert sql("SELECT count(*) FROM rows WHERE offset >= 5").first()[0] == ROWS - 5

    stream = spark.readStream.format("mqttcore")  # type: ignore[attr-defined]
    query = (
        stream.options(startingOffsets="earliest", **options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(data / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(data / "copy"))
    )
    query.awaitTermination()
    copied = spark.read.parquet(str(data / "copy")).count()  # type: ignore[attr-defined]
    assert copied == ROWS, copied


if __name__ == "__main__":
    sys.exit(main())
