"""`run`: a pipeline from its file to its end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.progress import Lines, Reporter, Told, listener
from mqttcore.pipeline.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

# How long the broker may take to hear of a batch.
TOLD_S = 2.0


def run(
    pipeline: Pipeline | Path | str,
    *,
    spark: "SparkSession | None" = None,
    once: bool = False,
    reporter: Reporter | None = None,
) -> None:
    """Runs a pipeline until its stream is read (``once``), it is interrupted, or a query fails.

    Args:
        pipeline: What to run, or its file.
        spark: The session; None makes one, and stops it afterwards.
        once: Ends when everything that the stream holds now is in the tables.
        reporter: Is told of each batch, as the broker is; None writes lines to standard error.

    Raises:
        ConfigError: the file cannot be used.
        PipelineError: a query failed, or another process runs this pipeline.
    """
    chosen = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
    with own_session(chosen) if spark is None else given(spark) as session:
        runner = Runner(session, chosen)
        broker = chosen.source.client(timeout_s=TOLD_S)
        told = listener(f"{chosen.name}.", Told(broker, reporter or Lines()))
        session.streams.addListener(told)
        try:
            with stopping(runner):
                runner.start(once=once)
                runner.wait()
        finally:
            runner.stop()
            session.streams.removeListener(told)


@contextmanager
def own_session(pipeline: Pipeline) -> "Iterator[SparkSession]":
    """A session for one run."""
    from mqttcore.spark import session

    spark = session(f"mqttcore pipeline {pipeline.name}")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def given(spark: "SparkSession") -> "Iterator[SparkSession]":
    """A session that somebody else stops."""
    yield spark


@contextmanager
def stopping(runner: Runner) -> Iterator[None]:
    """Has SIGINT and SIGTERM end the run, when this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, lambda *_: runner.end()) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
