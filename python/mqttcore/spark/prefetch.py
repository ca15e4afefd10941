"""Reads the rows of a small batch on the driver while it plans.

A task that reads rows hands itself to a Python worker and waits for it: 25 ms of a micro-batch of
100. The driver has a Python process for the query anyway, and Spark takes rows from it together
with the plan: it keeps them as a block, the task has them at once, and a task that does not find
its block reads them as ever.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mqttcore.errors import MqttError

if TYPE_CHECKING:
    import pyarrow as pa

    from mqttcore.spark.reading import RowReader, Task

__all__ = ["few_rows"]

logger = logging.getLogger(__name__)
FEW_ROWS: Final = 4096
FEW_BYTES: Final = 4 << 20
"""Maximum size of the rows in Arrow; more rows are left to tasks, which spread them over cores and
machines."""


def few_rows(tasks: Sequence[Task], reader: RowReader) -> list[pa.RecordBatch] | None:
    """The rows of a plan with one task of few rows, if they can be read at once.

    Errors are left to the task: it waits for a broker that is away, and its errors reach the user.
    """
    if len(tasks) != 1 or not 0 < sum(one.end - one.start for one in tasks[0].ranges) <= FEW_ROWS:
        return None
    batches, size_bytes = [], 0
    try:
        for batch in reader.read(tasks[0]):
            batches.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > FEW_BYTES:
                return None
    except MqttError as error:
        logger.debug("cannot prefetch, a task reads the rows: %s", error)
        return None
    return batches
