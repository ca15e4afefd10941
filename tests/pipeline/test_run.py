"""A whole pipeline over a stream that no broker holds: what lands in which table, once."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.errors import PipelineError
from mqttcore.pipeline.config import Alert, Gold, Pipeline, Silver, Source
from mqttcore.pipeline.progress import JsonLines
from mqttcore.pipeline.run import run
from mqttcore.pipeline.runner import Runner, planned
from mqttcore.pipeline.tables import Batch, DeltaTable
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream

from tests import wire as mqtt
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import START_US, StreamFolder, rows
from tests.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

MEASURED = Silver(schema="machine STRING, temperature DOUBLE")
START = datetime.datetime.fromtimestamp(START_US / 1_000_000, datetime.UTC)
Make = Callable[..., StreamFolder]
KINDS = ("offsets", "commits")


def message(second: float, machine: str = "m1", **values: Any) -> dict[str, Any]:  # noqa: ANN401
    """What a machine said a number of seconds after the beginning."""
    at = (START + datetime.timedelta(seconds=second)).isoformat()
    payload = json.dumps({"machine": machine, "temperature": 20.0, "at": at} | values).encode()
    received_us = START_US + int(min(second, 1_000) * 1_000_000)
    return {"topic": f"plant/{machine}", "payload": payload, "timestamp": received_us}


def pipeline(folder: Path, **changes: Any) -> Pipeline:  # noqa: ANN401 -- of any field
    values: Mapping[str, Any] = {
        "name": "factory",
        "source": Source(path=folder, stream="plant"),
        "silver": Silver(
            schema="machine STRING, temperature DOUBLE, at TIMESTAMP",
            event_time="at",
            watermark="10 seconds",
            valid=("temperature < 100",),
            dedupe=("machine", "at"),
        ),
        "gold": (
            Gold(
                name="by_minute",
                window="1 minute",
                group_by=("machine",),
                columns=("count(*) AS measured", "max(temperature) AS highest"),
            ),
        ),
        "tables": folder / "tables",
    }
    return Pipeline(**{**values, **changes})


def held(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    rows: list[dict[str, Any]] = (
        deltalake.DeltaTable(folder / "tables" / table).to_pyarrow_table().to_pylist()
    )
    return rows


def test_messages_become_tables_once(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    folder = make_stream()
    first = [
        message(1),
        message(2, temperature=30.0),
        message(2, temperature=30.0),
        message(3, temperature=170.0),
        {"payload": b'{"machine'},
        message(4, at=None),
        message(90_000),
        message(65, "m2"),
        message(100),
    ]
    folder.seal(rows(first))
    chosen = pipeline(tmp_path)
    told = io.StringIO()

    run(chosen, spark=spark, once=True, reporter=JsonLines(told))
    run(chosen, spark=spark, once=True, reporter=JsonLines(told))
    folder.seal(rows([message(101), message(200)], base=len(first)))
    run(chosen, spark=spark, once=True, reporter=JsonLines(told))

    assert sorted(row["offset"] for row in held(tmp_path, "bronze")) == list(range(11))
    assert sorted(row["offset"] for row in held(tmp_path, "silver")) == [0, 1, 7, 8, 9, 10]
    faults = {row["offset"]: row["fault"] for row in held(tmp_path, "quarantine")}
    assert faults == {
        3: "not temperature < 100",
        4: "does not decode",
        5: "at is missing",
        6: "at is more than 10 seconds ahead of the broker's clock",
    }
    windows = sorted(
        (row["window_start"], row["machine"], row["measured"], row["highest"])
        for row in held(tmp_path, "by_minute")
    )
    minute = datetime.timedelta(minutes=1)
    begin = START.replace(second=0)
    assert windows[0] == (begin, "m1", 2, 30.0)
    assert {start for start, *_ in windows} <= {begin, begin + minute, begin + 2 * minute}
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    keys = ("query", "batch", "rows", "lag_messages", "quarantined", "late_rows", "repeats")
    assert [tuple(line[key] for key in keys) for line in lines] == [
        ("factory", 0, 9, 0, 4, 0, 1),
        ("factory", 1, 2, 0, 0, 0, 0),
    ]
    settled = START + datetime.timedelta(seconds=190)
    assert datetime.datetime.fromisoformat(lines[-1]["watermark"]) == settled


def test_rule_6_the_broker_keeps_nothing_of_the_last_batch_that_is_done(
    spark: SparkSession, tmp_path: Path, make_stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(path=tmp_path, stream="plant", rows_per_batch=3)
    chosen = pipeline(tmp_path, gold=(), source=source)
    append = DeltaTable.append

    def die_in_the_last(
        table: DeltaTable, rows: DataFrame, batch: Batch, *, mark_us: int | None = None
    ) -> int | None:
        if batch.ends == (10,):
            raise PipelineError("out of luck")
        return append(table, rows, batch, mark_us=mark_us)

    with FakeEndpoint(make_stream()) as endpoint:
        endpoint.write(rows([message(second) for second in range(5)]))
        run(chosen, spark=spark, once=True)
        assert endpoint.holds == {"factory": [5]}

        endpoint.write(rows([message(second) for second in range(5, 10)], base=5))
        monkeypatch.setattr(DeltaTable, "append", die_in_the_last)
        with pytest.raises(PipelineError, match="out of luck"):
            run(chosen, spark=spark, once=True)

    assert endpoint.holds == {"factory": [8]}


def test_a_lost_checkpoint_does_not_double_the_tables(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    make_stream().seal(rows([message(second) for second in range(5)]))
    chosen = pipeline(tmp_path, gold=())
    run(chosen, spark=spark, once=True)
    shutil.rmtree(tmp_path / "tables" / "_checkpoints")

    with pytest.raises(PipelineError, match="Restore both, or remove both"):
        run(chosen, spark=spark, once=True)

    assert len(held(tmp_path, "silver")) == 5


def test_an_alert_is_sent_once_however_often_its_batch_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    hot = Alert(
        name="hot", table="silver", when="temperature > 90", topic="concat('alerts/', machine)"
    )
    chosen = pipeline(tmp_path, gold=(), alerts=(hot,), silver=MEASURED)
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    stream = Stream(name="plant", filter=("plant/#",))
    settings = Settings(
        listeners=(listener,), data=str(tmp_path), streams=(stream,), sys_interval_s=0.1
    )
    with Broker(settings) as broker, Wire(broker.port) as watcher, Wire(broker.port) as listening:
        watcher.send(mqtt.connect("watcher", clean=True))
        watcher.expect(mqtt.CONNACK)
        watcher.send(mqtt.subscribe(("alerts/#", 1)))
        watcher.expect(mqtt.SUBACK)
        listening.send(mqtt.connect("listening", clean=True))
        listening.expect(mqtt.CONNACK)
        listening.send(mqtt.subscribe(("$SYS/spark/#", 0)))
        listening.expect(mqtt.SUBACK)
        for machine, temperature in (("m1", 95.5), ("m2", 20.0), ("m3", 99.0)):
            payload = json.dumps({"machine": machine, "temperature": temperature})
            broker.publish(f"plant/{machine}", payload, qos=1)
        with StreamClient(f"unix:{tmp_path}/streams/endpoint.sock") as endpoint:
            endpoint.seal("plant")

        run(chosen, spark=spark, once=True)
        # as if Spark had died before it noted that
        (tmp_path / "tables" / "_checkpoints" / "query" / "commits" / "0").unlink()
        run(chosen, spark=spark, once=True)
        broker.publish("alerts/end", "")

        came = [watcher.expect(mqtt.PUBLISH) for _ in range(3)]
        told = listening.expect(mqtt.PUBLISH)

    assert sorted(each.topic for each in came) == ["alerts/end", "alerts/m1", "alerts/m3"]
    assert came[-1].topic == "alerts/end"
    values = {each.topic: json.loads(each.payload)["temperature"] for each in came[:2]}
    assert values == {"alerts/m1": 95.5, "alerts/m3": 99.0}
    assert len(held(tmp_path, "silver")) == 3
    assert (told.topic, json.loads(told.payload)["rows"]) == ("$SYS/spark/factory", 3)


def test_an_alert_that_would_come_back_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    loop = Alert(name="loop", table="silver", when="true", topic="concat('plant/', machine)")
    chosen = pipeline(tmp_path, gold=(), alerts=(loop,), silver=MEASURED)
    stream = Stream(name="plant", filter=("plant/#",))
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    settings = Settings(listeners=(listener,), data=str(tmp_path), streams=(stream,))
    with Broker(settings) as broker:
        broker.publish("plant/m1", json.dumps({"machine": "m1", "temperature": 1.0}))
        with StreamClient(f"unix:{tmp_path}/streams/endpoint.sock") as endpoint:
            endpoint.seal("plant")

        with pytest.raises(PipelineError, match=r"'plant/m1': the query reads 'plant/#'"):
            run(chosen, spark=spark, once=True)


def test_an_expression_that_does_not_fit_is_named(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    make_stream().seal(rows([message(0)]))
    gold = Gold(name="broken", window="1 minute", columns=("max(temprature) AS highest",))

    with pytest.raises(PipelineError, match=r"gold broken: .*temprature"):
        planned(spark, pipeline(tmp_path, gold=(gold,)))


def test_two_pipelines_do_not_share_checkpoints(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    make_stream().seal(rows([message(0)]))
    first, second = (Runner(spark, pipeline(tmp_path, gold=())) for _ in range(2))
    first.start(once=True)

    with pytest.raises(PipelineError, match="another pipeline uses this folder"):
        second.start(once=True)

    first.wait()


def test_a_pipeline_that_is_ended_leaves_no_batch_half_done(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    folder = make_stream()
    folder.seal(rows([message(second) for second in range(50)]))
    source = Source(path=tmp_path, stream="plant", rows_per_batch=10)
    # A pause between batches, also on a busy machine: without one, a batch may begin at the stop.
    chosen = pipeline(tmp_path, gold=(), source=source, trigger="5 seconds")
    runner = Runner(spark, chosen)
    runner.start()
    threading.Timer(2, runner.end).start()

    runner.wait()

    checkpoint = tmp_path / "tables" / "_checkpoints" / "query"
    begun, done = ({each.name for each in (checkpoint / kind).glob("[0-9]*")} for kind in KINDS)
    assert begun == done
    run(dataclasses.replace(chosen, trigger="available_now"), spark=spark)
    assert sorted(row["offset"] for row in held(tmp_path, "bronze")) == list(range(50))
