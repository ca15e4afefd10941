"""Alerts: publishes rows of a batch as messages, all or none, exactly once.

They use `mqttcore.spark`'s sink, under ``(query id, batch id)``: for a commit that it knows, the
broker answers without publishing again. So if Spark repeats a batch after a crash, its alerts are
published once.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from mqttcore.pipeline.config import Alert, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mqttcore.pipeline.tables import Batch

__all__ = ["AlertPublisher", "alert_messages"]


class AlertPublisher:
    """Sends alerts to the broker that the pipeline reads from."""

    def __init__(self, source: Source) -> None:
        """Reads the token. The broker is not used before the first alert.

        Raises:
            PipelineError: the file with the token cannot be read.
        """
        # names the stream, too: an alert that the stream would contain again is rejected
        self._options = source.place()

    def publish(self, parts: Sequence["DataFrame"], batch: "Batch") -> None:
        """Publishes the messages of all alerts of a batch, unless they were published before.

        It raises the errors of the sink: a `LoopError`, or an `EndpointError` if the broker refuses
        or does not come back. Then nothing was published.
        """
        if not parts:
            return
        messages = reduce(lambda one, other: one.unionByName(other), parts)
        once = {"txnAppId": batch.query, "txnVersion": str(batch.number)}
        messages.write.format("mqttcore").mode("append").options(**self._options, **once).save()


def alert_messages(rows: "DataFrame", alert: Alert) -> "DataFrame":
    """The messages of an alert for ``rows``: ``topic``, ``payload``, ``qos``, ``retain``."""
    from pyspark.sql import functions as f

    whole = f.to_json(f.struct("*"))
    return rows.where(alert.when).select(
        f.expr(alert.topic).cast("string").alias("topic"),
        (f.expr(alert.payload) if alert.payload else whole).cast("binary").alias("payload"),
        f.lit(alert.qos).cast("tinyint").alias("qos"),
        f.lit(alert.retain).alias("retain"),
    )
