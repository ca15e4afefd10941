"""What `session` does to a Spark beside its settings."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqttcore.spark.sessions import OF_A_STREAM, tune

from tests.spark.conftest import numbered
from tests.stream_folder import StreamFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_that_begins_adds_nothing_to_what_all_streams_share(
    spark: SparkSession, make_stream: Callable[..., StreamFolder], tmp_path: pathlib.Path
) -> None:
    make_stream().seal(numbered(3))
    environment = environment_of_sources(spark)
    for name in set(environment) - {"PYTHONPATH"}:
        environment.remove(name)  # what earlier streams have added
    tune(spark)
    before = set(environment)
    assert before >= set(OF_A_STREAM)

    rows = spark.readStream.format("mqttcore").load(str(tmp_path), stream="plant")
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    assert set(environment) == before
    assert all(environment[name] for name in OF_A_STREAM), "a stream of this Spark writes others"


def environment_of_sources(spark: SparkSession) -> Any:  # noqa: ANN401 -- a map of the JVM
    """Of the workers of this source."""
    sources: Any = spark._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource("mqttcore").dataSourceCls().envVars()
