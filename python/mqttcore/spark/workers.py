"""Keeps Python workers of Spark from repeated work between their tasks."""

import gc

from pyspark import TaskContext

__all__ = ["spare_collector"]


def spare_collector() -> None:
    """Has Python's collector pass over what is loaded by now, in a worker and once.

    Spark has garbage collected after every task, which looks at each object of every module: 25 to
    40 ms of CPU, more than a small task takes. Outside of tasks nothing changes.
    """
    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.freeze()
