"""`run`: runs a pipeline from its file until it ends."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mqttcore.errors import PipelineError
from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.definitions import naming_places
from mqttcore.pipeline.progress import Lines, Reporter, Told
from mqttcore.pipeline.runner import Runner
from mqttcore.pipeline.stages import check_source
from mqttcore.pipeline.supervisor import Restarts, retried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

Made = TypeVar("Made")

# How long the broker may take to hear of a batch.
TOLD_S = 2.0


def run(
    pipeline: Pipeline | Path | str,
    *,
    spark: "SparkSession | None" = None,
    once: bool = False,
    reporter: Reporter | None = None,
) -> None:
    """Runs a pipeline until its stream is read (``once``), it is interrupted, or the query fails.

    Args:
        pipeline: What to run, or its file.
        spark: The session; None makes one, and stops it afterwards.
        once: Ends when everything that the stream holds now is in the tables.
        reporter: Is told of each batch, as the broker is; None writes lines to standard error.

    Raises:
        ConfigError: the file cannot be used, or its tables exist with other columns.
        StreamFolderError: there is no such stream.
        EndpointError: the broker does not answer, or has no such stream.
        StreamOptionError: the columns of ``[silver]`` are none.
        PipelineError: Spark does not start, the query failed, or another process runs this
            pipeline.
    """
    if not isinstance(pipeline, Pipeline):
        with naming_places(Path(pipeline)):
            run(load(pipeline), spark=spark, once=once, reporter=reporter)
        return
    chosen = pipeline
    with session_for(chosen, spark, is_patient=not once) as session:
        broker = chosen.source.client(timeout_s=TOLD_S)
        runner = Runner(session, chosen, Told(broker, reporter or Lines()))
        try:
            with stopping(runner):
                runner.start(once=once)
                runner.wait()
        finally:
            runner.stop()


@contextmanager
def session_for(
    pipeline: Pipeline, spark: "SparkSession | None" = None, *, is_patient: bool = False
) -> "Iterator[SparkSession]":
    """``spark``, or a session for one run; its link is printed to standard error.

    Faults of the source are reported first, in one sentence, before Java starts. With
    ``is_patient``, it waits for a broker that is away, and for a busy machine.
    """
    restarts, is_over = Restarts(), threading.Event()

    def made(make: Callable[[], Made]) -> Made:
        return retried(make, pipeline.name, restarts, is_over) if is_patient else make()

    made(partial(check_source, pipeline))
    if spark is not None:
        yield spark
        return
    with redirect_stdout(sys.stderr):
        spark = made(partial(own_session, pipeline))
    try:
        yield spark
    finally:
        spark.stop()


def own_session(pipeline: Pipeline) -> "SparkSession":
    """A new session with the settings of the pipeline.

    Raises:
        PipelineError: Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from mqttcore.spark import session

    chosen = pipeline.spark
    conf: dict[str, Any] = {**chosen.settings()}  # mypy: any keyword of `session` may be meant
    try:
        return session(
            f"mqttcore pipeline {pipeline.name}", master=chosen.master, memory=chosen.memory, **conf
        )
    except (PySparkException, Py4JError) as error:
        raise PipelineError(
            f"Spark does not start with master {chosen.master!r}: {error}"
        ) from error


@contextmanager
def stopping(runner: Runner) -> Iterator[None]:
    """Has SIGINT and SIGTERM end the run, if this is the main thread."""
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
