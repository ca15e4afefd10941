"""`python -m tests.spark.copies`: a stream goes to Delta and back to MQTT, in a mortal process.

Two queries read the stream. One commits each batch to a Delta table by the pipeline's own table,
the other publishes a message for each row: its place in the stream, at QoS 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttcore.pipeline.locations import located
from mqttcore.pipeline.runner import read_batch
from mqttcore.pipeline.tables import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_A_BATCH = 20_000
TRIES = 5
"""How often the queries may fail without a batch in between: then the JVM has to be replaced."""
TOPIC = "out"
"""Where the messages go."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is."""

    data: Path
    """Of the broker."""
    folder: Path
    """Of the copies."""

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.folder / "table"

    def checkpoint(self, name: str) -> Path:
        """Of a query, ``table`` or ``sink``."""
        return self.folder / "checkpoints" / name

    def forget_commits(self) -> int:
        """Has every query repeat its last batch, as if Spark had died before it noted the end."""
        newest = [path for path in self.newest_commits() if path is not None]
        for path in newest:
            path.unlink()
        return len(newest)

    def newest_commits(self) -> list[Path | None]:
        """The note of the last batch of each query."""
        folders = [self.checkpoint(name) / "commits" for name in ("table", "sink")]
        notes = [list(folder.glob("[0-9]*")) for folder in folders]
        return [max(paths, key=lambda path: int(path.name), default=None) for paths in notes]


def start(spark: SparkSession, places: Places, *, once: bool) -> list[StreamingQuery]:
    """Both queries, until all is copied (``once``) or for ever."""
    table = DeltaTable(places.table)

    def append(frame: DataFrame, number: int) -> None:
        table.append(frame, read_batch("table", located(places.checkpoint("table"), {}), number))
        print("batch", number, flush=True)

    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "0 seconds"}

    def started(name: str, columns: Sequence[str]) -> Any:  # noqa: ANN401 -- a writer of Spark
        options = {
            "stream": "plant",
            "startingOffsets": "earliest",
            "consumer": name,
            "columns": "partition,offset,payload",
            "maxRowsPerTrigger": str(ROWS_A_BATCH),
        }
        rows = spark.readStream.format("mqttcore").options(**options).load(str(places.data))
        writer = rows.selectExpr(*columns).writeStream.trigger(**trigger)
        return writer.option("checkpointLocation", str(places.checkpoint(name)))

    sink = started("sink", ["concat_ws('/', partition, offset) AS payload"])
    return [
        started("table", ["*"]).foreachBatch(append).start(),
        sink.format("mqttcore").options(topic=TOPIC, qos="2").start(str(places.data)),
    ]


def run(spark: SparkSession, places: Places, *, once: bool) -> None:
    """Runs both queries until they are done, or for ever; one that fails begins again.

    Raises:
        RuntimeError: one failed `TRIES` times in a row without a batch.
    """
    from pyspark.errors import StreamingQueryException

    failures, before = 0, places.newest_commits()
    while failures < TRIES:
        try:
            queries = start(spark, places, once=once)
            print("started", flush=True)
            if not once:
                spark.streams.awaitAnyTermination()
            for query in queries:
                query.awaitTermination()
        except StreamingQueryException as error:
            # a worker that is killed too often, or the one that plans
            print(f"failed: {str(error)[:300]!r}", file=sys.stderr, flush=True)
            for query in spark.streams.active:
                query.stop()
            spark.streams.resetTerminated()
            newest = places.newest_commits()
            came_on = all(new != old for new, old in zip(newest, before, strict=True))
            failures, before = (0, newest) if came_on else (failures + 1, before)
        else:
            return
    raise RuntimeError(f"the queries failed {TRIES} times without a batch of both")


def settings(scratch: Path) -> dict[str, Any]:
    """Of a Spark that does not live long, and leaves nothing elsewhere when it is killed."""
    scratch.mkdir(parents=True, exist_ok=True)
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}"
    return {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": java,
    }


def main() -> int:
    """Stands by until a line says ``go`` or ``once``, and copies then."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("data", type=Path)
    made.add_argument("folder", type=Path)
    options = made.parse_args()
    from mqttcore.spark import session

    spark = session("copies", cores="2,8", **settings(options.folder / "tmp"))
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    print(f"java {java}", flush=True)
    for line in sys.stdin:
        run(spark, Places(options.data, options.folder), once=line.strip() == "once")
        print("done", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
