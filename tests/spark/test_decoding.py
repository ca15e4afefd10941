"""`mqttcore.spark.decode`: payloads of frames that do not come out of the source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from mqttcore.errors import StreamOptionError
from mqttcore.spark import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """Four payloads: two that fit, one that does not, one that is no JSON."""
    payloads = ['{"t":1.5}', '{"t":"x"}', "{", json.dumps({"t": 2, "u": "C"})]
    rows = [(0, n, "a/b", bytearray(payload.encode())) for n, payload in enumerate(payloads)]
    return spark.createDataFrame(rows, "partition INT, offset LONG, topic STRING, payload BINARY")


def test_columns_stand_behind_those_there_are(frame: DataFrame) -> None:
    decoded = decode(frame, "t DOUBLE, u STRING")

    assert decoded.columns == [*frame.columns, "t", "u", "_corrupt"]
    rows = {row["offset"]: row for row in decoded.collect()}
    assert [(rows[n].t, rows[n].u) for n in range(4)] == [
        (1.5, None),
        (None, None),
        (None, None),
        (2.0, "C"),
    ]
    assert [rows[n]["_corrupt"] is None for n in range(4)] == [True, False, False, True]
    assert bytes(rows[2]["_corrupt"]) == b"{"


def test_what_does_not_fit_can_go_or_fail(frame: DataFrame) -> None:
    kept = decode(frame, "t DOUBLE", on_error="drop")

    assert sorted(row.t for row in kept.collect()) == [1.5, 2.0]
    with pytest.raises(Exception, match="offset 1 "):
        decode(frame.coalesce(1), "t DOUBLE", on_error="fail").collect()


def test_what_cannot_be_decoded_is_said_before_anything_runs(frame: DataFrame) -> None:
    with pytest.raises(StreamOptionError, match="unknown column payload"):
        decode(frame.drop("payload"), "t DOUBLE")
    with pytest.raises(StreamOptionError, match="unknown column topic"):
        decode(frame.drop("topic"), "t DOUBLE", using="auto")
    with pytest.raises(StreamOptionError, match="payload is string"):
        decode(frame.withColumn("payload", frame.payload.cast("string")), "t DOUBLE")
    with pytest.raises(StreamOptionError, match="Topic exists already"):
        decode(frame, "Topic STRING")
