"""One Spark for all tests of this folder, and streams made by hand for it to read."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.stream_folder import START_US, StreamFolder, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
"""The line that these tests run with."""
takes_limits = pytest.mark.skipif(
    SPARK < (4, 2), reason="before Spark 4.2 a run takes one batch, whatever its limits"
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, two tries a task, no page."""
    from mqttcore.spark import session

    running = session(
        "tests",
        cores="2,2",
        warm=False,
        **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"},
    )
    yield running
    running.stop()


class SimulatedTime:
    """The module `time` of `mqttcore.spark.retry`: waits are noted and take none.

    The real one stays as it is: threads of py4j wait by it, too.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Records the wait, and does what happens meanwhile."""
        self.waits.append(seconds)
        self.meanwhile()

    def monotonic(self) -> float:
        """The sum of all waits."""
        return sum(self.waits)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> SimulatedTime:
    """The time by which this process waits for brokers that are away."""
    simulated = SimulatedTime()
    monkeypatch.setattr("mqttcore.spark.retry.time", simulated)
    return simulated


@pytest.fixture
def make_stream(tmp_path: pathlib.Path) -> Callable[..., StreamFolder]:
    """Makes `<data>/streams/<name>`: `make_stream(partitions=2)`."""

    def make(name: str = "plant", *, partitions: int = 1) -> StreamFolder:
        root = tmp_path / "streams" / name
        return StreamFolder(root=root, name=name, partitions=partitions).create()

    return make


@pytest.fixture
def load(spark: SparkSession, tmp_path: pathlib.Path) -> Callable[..., DataFrame]:
    """Reads a stream of this test: `load(topic="plant/+")`."""

    def load_stream(stream: str = "plant", **options: Any) -> DataFrame:  # noqa: ANN401
        reader = spark.read.format("mqttcore").options(stream=stream, **options)
        return reader.load(str(tmp_path))

    return load_stream


def numbered(
    count: int, *, partition: int = 0, base: int = 0, topics: Sequence[str] = ("plant/1",)
) -> Any:  # noqa: ANN401 -- a table of pyarrow
    """Rows whose payload is their offset; a second apart."""
    messages = [
        {"topic": topics[offset % len(topics)], "payload": str(offset).encode()}
        for offset in range(base, base + count)
    ]
    return rows(messages, partition=partition, base=base)


def at(offset: int) -> str:
    """The time of a row that `numbered` made, in milliseconds since 1970."""
    return str((START_US + offset * 1_000_000) // 1000)
