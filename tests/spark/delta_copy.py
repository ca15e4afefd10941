"""`python -m tests.spark.delta_copy`: copies a stream into Delta, as a process to be killed.

Each batch is one commit of the package `deltalake`, with the transaction (query id, batch id): a
batch that Spark repeats after a crash, because it could not note that it was done, changes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import deltalake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaTable:
    """Where batches go."""

    def __init__(self, path: str) -> None:
        self.path = path

    def append(self, frame: DataFrame, batch: int) -> None:
        """Commits a batch, unless it is committed."""
        context = frame.sparkSession.sparkContext
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        if self.last_batch(query) >= batch:
            return
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(query, batch)])
        rows = frame.toArrow()
        deltalake.write_deltalake(self.path, rows, mode="append", commit_properties=done)
        print(f"batch {batch} {rows.num_rows}", flush=True)

    def last_batch(self, query: str) -> int:
        """The last batch of a query that is in the table; -1 if none is."""
        if not deltalake.DeltaTable.is_deltatable(self.path):
            return -1
        last = deltalake.DeltaTable(self.path).transaction_version(query)
        return -1 if last is None else last


def main() -> int:
    """Copies until it is killed, or with ``--once`` until all is copied."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("data")
    made.add_argument("table")
    made.add_argument("checkpoint")
    made.add_argument("--once", action="store_true")
    options = made.parse_args()
    from mqttcore.spark import session

    spark = session(
        "copy", cores="2,4", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    )
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    print(f"java {java} python {os.getpid()}", flush=True)
    source = spark.readStream.format("mqttcore").options(
        stream="plant",
        startingOffsets="earliest",
        consumer="copy",
        columns="partition,offset,payload",
        maxRowsPerTrigger=20_000,
    )
    query = (
        source.load(options.data)
        .writeStream.foreachBatch(DeltaTable(options.table).append)
        .option("checkpointLocation", options.checkpoint)
        .trigger(**({"availableNow": True} if options.once else {"processingTime": "0 seconds"}))
        .start()
    )
    query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
