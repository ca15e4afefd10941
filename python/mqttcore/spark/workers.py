"""Keeps Python workers of Spark from repeated work between their tasks."""

import gc

from pyspark import TaskContext

__all__ = ["spare_collector"]


def spare_collector() -> None:
    """Freezes loaded objects in Python's garbage collector, once in each worker.

    Spark collects garbage after every task, which visits each object of every module: 25 to 40 ms
    of CPU, more than a small task takes. Outside of tasks nothing changes.
    """
    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.freeze()
