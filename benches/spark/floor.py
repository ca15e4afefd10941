"""How long a micro-batch takes while few rows come: S6, S7, and the memory of S13.

Each session runs in a process of its own, ``python -m benches.spark.floor``, because what a stock
session lacks cannot be taken back in one that has it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from benches.spark.cost import resident_bytes
from benches.spark.goals import Measured, Outcome, Row, attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
LIMIT_S: Final = 240.0
WARM_S: Final = 45.0
"""How long both sides run before their batches count: a JVM compiles what it runs for as long."""
QUIET_AFTER: Final = 1_200
"""Turns of the feed of S13: a minute."""
IDLE_S: Final = 130
FILE_SCHEMA: Final = "timestamp TIMESTAMP, topic STRING, payload BINARY"


def main() -> int:
    """One session, one query: prints its figures as JSON."""
    options = parser().parse_args()
    spark = stock() if options.stock else tuned(options.memory)
    query = start(options, spark)
    if options.idle_s:
        wait_for_silence(query, options.idle_s)
        figures = {"bytes": float(resident_bytes(os.getpid()))}
    else:
        times = wait(query, options.batches)
        if not times:
            raise RuntimeError("no batch ended in time")
        figures = {"ms": statistics.median(times)}
    query.stop()
    print(json.dumps(figures))
    spark.stop()
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("source", choices=("mqttcore", "files"))
    made.add_argument("query", choices=("stateless", "window"))
    made.add_argument("path")
    made.add_argument("--stock", action="store_true")
    made.add_argument("--batches", type=int, default=60)
    made.add_argument("--memory", default="1g")
    made.add_argument("--idle-s", type=float, help="memory, so long after the last row; no times")
    return made


def stock() -> SparkSession:
    """What everybody gets."""
    from mqttcore.spark.java import find_java
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java().spark_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return SparkSession.builder.master("local[*]").appName("stock").getOrCreate()


def tuned(memory: str) -> SparkSession:
    """What `session` gives."""
    from mqttcore.spark import session

    return session("tuned", memory=memory)


def start(options: argparse.Namespace, spark: SparkSession) -> Any:  # noqa: ANN401 -- a query
    """A query that begins a batch as soon as the last one ended."""
    from pyspark.sql import functions as sql

    frame: DataFrame
    if options.source == "mqttcore":
        # a query that is to be idle has its rows, however late it began
        begin = "earliest" if options.idle_s else "latest"
        source = spark.readStream.format("mqttcore").options(stream="floor", startingOffsets=begin)
        frame = source.load(options.path).select("timestamp", "topic", "payload")
    else:
        frame = spark.readStream.schema(FILE_SCHEMA).parquet(options.path)
    if options.query == "window":
        windows = sql.window("timestamp", "10 seconds")
        frame = frame.withWatermark("timestamp", "10 seconds").groupBy(windows, "topic").count()
    checkpoint = tempfile.mkdtemp(prefix="mqttcore-floor-")
    return (
        frame.writeStream.format("noop")
        .outputMode("update" if options.query == "window" else "append")
        .option("checkpointLocation", checkpoint)
        .start()
    )


def wait(query: Any, batches: int) -> list[float]:  # noqa: ANN401 -- a query
    """Milliseconds of each batch of a warm query that had rows: so many, or until time is over."""
    times: dict[int, float] = {}
    began, first_rows, last_cold = time.monotonic(), math.inf, -1
    while len(times) < batches and (now := time.monotonic()) < began + LIMIT_S:
        with_rows = batches_with_rows(query)
        first_rows = min(first_rows, now) if with_rows else math.inf
        if with_rows and now < first_rows + WARM_S:
            last_cold = with_rows[-1]["batchId"]
            continue
        for progress in with_rows:
            if progress["batchId"] > last_cold:
                times[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
    return list(times.values())[:batches]


def wait_for_silence(query: Any, seconds: float) -> None:  # noqa: ANN401 -- a query
    """Waits until the last batch with rows was told of so long ago."""
    deadline = time.monotonic() + LIMIT_S + seconds
    newest, since = -1, math.inf
    while (now := time.monotonic()) < since + seconds:
        if now > deadline:
            raise RuntimeError("no batch with rows, or no end of them")
        with_rows = batches_with_rows(query)
        if with_rows and with_rows[-1]["batchId"] > newest:
            newest, since = with_rows[-1]["batchId"], now


def batches_with_rows(query: Any) -> list[Any]:  # noqa: ANN401 -- a query
    """The latest that the query tells of, half a second from now.

    Raises:
        RuntimeError: the query has failed.
    """
    time.sleep(0.5)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return [one for one in query.recentProgress if one["numInputRows"] > 0]


@contextmanager
def fed(kind: str, root: pathlib.Path, *more: str) -> Iterator[None]:
    """Rows come while this is open."""
    feed = subprocess.Popen(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.feed", kind, str(root), *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if feed.stdout is None or feed.stdout.readline() != "ready\n":
            raise RuntimeError(f"{kind}: no rows come")
        yield
    finally:
        feed.communicate("", timeout=60)


def run(*arguments: str) -> dict[str, float]:
    """The figures of one session."""
    done = subprocess.run(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.floor", *arguments],
        capture_output=True, text=True, timeout=LIMIT_S * 2, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(fault(done.stderr))
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def fault(said: str) -> str:
    """What a process died of, out of all that it said: Spark's log goes on behind it."""
    lines = [line for line in said.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return lines[-1] if lines else said[-2000:]


def floors(root: pathlib.Path, *, turns: int, batches: int) -> Iterator[Outcome]:
    """S6, S7 and S13."""
    shutil.rmtree(root / "broker", ignore_errors=True)
    many, few = ["--batches", str(batches)], ["--batches", str(min(batches, 8))]
    ours = ["mqttcore", "stateless", str(root / "broker"), *many]
    window = ["mqttcore", "window", str(root / "broker")]
    with fed("broker", root / "broker"):
        yield from attempt(
            [Row.S6_STATELESS],
            lambda: against(Row.S6_STATELESS, "stock", paired([*ours, "--stock"], ours, turns)),
        )
        stock = [*window, *few, "--stock"]
        yield from attempt(
            [Row.S6_WINDOW],
            lambda: against(Row.S6_WINDOW, "stock", paired(stock, [*window, *many], 1)),
        )
        with fed("files", root / "files"):
            files = ["files", "stateless", str(root / "files"), *many]
            yield from attempt(
                [Row.S7], lambda: against(Row.S7, "files", paired(files, ours, turns))
            )
    yield from attempt([Row.S13], lambda: memory(root / "quiet"))


def memory(root: pathlib.Path) -> Iterator[Measured]:
    """GiB of everything that a pipeline is, a while after its last row."""
    shutil.rmtree(root, ignore_errors=True)
    window = ["mqttcore", "window", str(root), "--memory", "512m"]
    with fed("broker", root, "--turns", str(QUIET_AFTER)):
        idle_bytes = run(*window, "--idle-s", str(IDLE_S))["bytes"]
    what = f"driver, JVM and workers of a windowed query, {IDLE_S} s without a row"
    yield Measured(row=Row.S13, value=idle_bytes / 2**30, figures=what)


def paired(theirs: list[str], ours: list[str], turns: int) -> tuple[float, float]:
    """Median milliseconds of both, who take turns."""
    return paired_by(lambda arguments: run(*arguments)["ms"], theirs, ours, turns)


def paired_by(ms: Callable[[T], float], theirs: T, ours: T, turns: int) -> tuple[float, float]:
    """The same by whatever tells milliseconds."""
    found = [(ms(theirs), ms(ours)) for _ in range(turns)]
    return statistics.median(one for one, _ in found), statistics.median(two for _, two in found)


def against(row: Row, name: str, milliseconds: tuple[float, float]) -> Iterator[Measured]:
    """The ratio of two medians, ours first."""
    theirs, ours = milliseconds
    said = f"{ours:.0f} ms, {name} {theirs:.0f} ms"
    sides = {"mqttcore": ours, name: theirs}
    yield Measured(row=row, value=ours / theirs, figures=said, sides=sides)


if __name__ == "__main__":
    sys.exit(main())
