"""Alerts: rows of a batch that are published as messages, all of them once, or none yet.

The broker keeps what is staged apart until it is committed under ``(query id, batch id)``, and
answers a commit that it has seen before without publishing again. So a batch that Spark repeats
has its alerts sent once, whatever died in between.
"""

import io
import secrets
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from mqttcore._core import TopicFilter
from mqttcore.errors import PipelineError
from mqttcore.pipeline.config import Alert, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from mqttcore.pipeline.tables import Batch

__all__ = ["Publisher", "alert_messages"]


class Publisher:
    """Sends alerts to the broker that the pipeline reads from."""

    def __init__(self, source: Source) -> None:
        """Nothing is asked of the broker before there is an alert.

        Raises:
            PipelineError: the file with the token cannot be read.
        """
        self._broker = source.client()
        self._stream = source.stream

    def publish(self, rows: "DataFrame", alerts: Iterable[Alert], batch: "Batch") -> None:
        """Publishes what ``alerts`` say of a batch's rows, unless that was done before.

        Raises:
            PipelineError: an alert would become a message of the pipeline's own stream.
            EndpointError: the broker refuses, or cannot be reached: nothing was published.
        """
        parts = [alert_messages(rows, alert) for alert in alerts]
        table = reduce(lambda one, other: one.unionByName(other), parts).toArrow()
        if table.num_rows == 0:
            return
        self._check_loop(table["topic"].unique().to_pylist())
        stage = secrets.token_hex(16)
        self._broker.stage(batch.query, batch.number, stage, [ipc(table)])
        self._broker.commit(batch.query, batch.number, [stage])

    def _check_loop(self, topics: Iterable[str]) -> None:
        filters = [TopicFilter(text) for text in self._broker.stream(self._stream).filters]
        for topic in topics:
            for taken in filters:
                if taken.matches(topic):
                    raise PipelineError(
                        f"an alert to {topic!r} would come back: stream {self._stream} takes in"
                        f" {str(taken)!r}. Give the alert another topic"
                    )


def alert_messages(rows: "DataFrame", alert: Alert) -> "DataFrame":
    """What an alert publishes for ``rows``: columns ``topic``, ``payload``, ``qos``, ``retain``."""
    from pyspark.sql import functions as f

    whole = f.to_json(f.struct("*"))
    return rows.where(alert.when).select(
        f.expr(alert.topic).cast("string").alias("topic"),
        (f.expr(alert.payload) if alert.payload else whole).cast("binary").alias("payload"),
        f.lit(alert.qos).cast("tinyint").alias("qos"),
        f.lit(alert.retain).alias("retain"),
    )


def ipc(table: "pa.Table") -> bytes:
    """A table as an Arrow IPC stream."""
    import pyarrow as pa

    text = io.BytesIO()
    with pa.ipc.new_stream(text, table.schema) as writer:
        writer.write_table(table)
    return text.getvalue()
