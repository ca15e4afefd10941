"""A few deaths of what `make spark-crash` kills by the hundred, in the Spark of these tests."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.crash.process import ServerProcess
from tests.spark.conftest import SPARK
from tests.spark.copies import TOPIC, Places, run, start
from tests.spark.crash import CONFIG, kill_broker, verdict, workers_of
from tests.spark.peers import Publisher, Subscriber

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[ServerProcess]:
    (tmp_path / "mqttcore.toml").write_text(CONFIG)
    running = ServerProcess(data=tmp_path / "data", config=tmp_path / "mqttcore.toml")
    running.start()
    yield running
    running.kill()


def test_every_row_is_copied_and_heard_once_through_deaths(
    server: ServerProcess, spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    places = Places(server.data, tmp_path / "copies")
    publisher, subscriber = Publisher(server), Subscriber(server, TOPIC)
    subscriber.start()
    assert subscriber.is_there.wait(60)
    publisher.start()
    queries = start(spark, places, once=False)
    try:
        wait_for_batches(queries, 2)
        kill_broker(server, sealing_for_s=0.01)
        wait_for_batches(queries, 4)
        os.kill(workers_of(spark._jvm.java.lang.ProcessHandle.current().pid())[0], signal.SIGKILL)  # type: ignore[union-attr]
        server.crash()
    finally:
        for query in queries:
            with contextlib.suppress(StreamingQueryException):
                query.stop()
        publisher.end()
    assert places.forget_commits() == 2

    # before Spark 4.2 a run ends with the batch that it repeats
    for _ in range(1 if SPARK >= (4, 2) else 2):
        run(spark, places, once=True)

    found = verdict(places, publisher.acknowledged, subscriber)
    subscriber.end()
    assert (found.lost, found.doubled) == (0, 0), found.said
    assert len(publisher.acknowledged) > 100


def wait_for_batches(queries: list[StreamingQuery], count: int) -> None:
    """Until each has come so far."""
    deadline = time.monotonic() + 120
    while any((query.lastProgress or {"batchId": 0})["batchId"] < count for query in queries):
        assert time.monotonic() < deadline
        assert all(query.isActive for query in queries)
        time.sleep(0.05)  # Spark tells nobody when a batch ends
