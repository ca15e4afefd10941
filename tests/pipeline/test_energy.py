"""The example `examples/energy`: its tables, compared with what pandas makes of the readings."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import deltalake
import pandas as pd
import pytest
from mqttcore import Broker
from mqttcore.config import load as load_settings
from mqttcore.pipeline import load, run
from mqttcore.streams.client import StreamClient

from tests import wire as mqtt
from tests.eventually import eventually
from tests.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENERGY = Path(__file__).parents[2] / "examples" / "energy"


def example() -> ModuleType:
    """The program that makes readings."""
    specification = importlib.util.spec_from_file_location("readings", ENERGY / "readings.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["readings"] = module  # dataclasses look it up
    specification.loader.exec_module(module)
    return module


def broker_in(folder: Path) -> Broker:
    """The broker of the example."""
    data = str(folder / "var")
    return Broker(load_settings(ENERGY / "broker.toml", listen=["127.0.0.1:0"], data=data))


def frame_of(readings: list[Any]) -> pd.DataFrame:
    """The good readings."""
    frame = pd.DataFrame([each.values for each in readings if each.kind == "good"])
    frame["at"] = pd.to_datetime(frame["at"], utc=True)
    return frame


def hourly(frame: pd.DataFrame, watermark: pd.Timestamp) -> pd.DataFrame:
    """The gold table, as pandas has it."""
    frame = frame.assign(window_start=frame["at"].dt.floor("1h"))
    groups = frame.groupby(["window_start", "meter"])
    made = groups.agg(
        least=("energy_kwh", "min"),
        most=("energy_kwh", "max"),
        voltage=("voltage", "mean"),
        readings=("voltage", "size"),
    ).reset_index()
    made["used_kwh"] = made["most"] - made["least"]
    made = made[made["window_start"] + pd.Timedelta("1h") <= watermark]
    return made[["window_start", "meter", "used_kwh", "voltage", "readings"]]


def daily(frame: pd.DataFrame, watermark: pd.Timestamp) -> pd.DataFrame:
    """The other one."""
    frame = frame.assign(window_start=frame["at"].dt.floor("1D"))
    groups = frame.groupby(["window_start", "feeder"])
    made = groups.agg(
        meters=("meter", "nunique"), lowest=("voltage", "min"), median=("voltage", "median")
    ).reset_index()
    return made[made["window_start"] + pd.Timedelta("1D") <= watermark]


def same(kept: pd.DataFrame, made: pd.DataFrame) -> None:
    """Holds a table against a frame, in any order of the rows."""
    keys = list(made.columns[:2])
    kept, made = (
        each[list(made.columns)].sort_values(keys).reset_index(drop=True) for each in (kept, made)
    )
    assert len(made) > 0
    pd.testing.assert_frame_equal(kept, made, check_dtype=False, rtol=1e-12)


@pytest.mark.timeout(300)  # Spark itself may need a minute to begin
def test_gold_tables_are_those_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    readings = list(example().readings())
    kinds = Counter(each.kind for each in readings)
    assert min(kinds[kind] for kind in ("again", "late", "bad")) >= 16
    described = load(ENERGY / "pipeline.toml")
    source = dataclasses.replace(described.source, path=tmp_path / "var")
    pipeline = dataclasses.replace(described, source=source, tables=tmp_path / "tables")

    def table(name: str) -> pd.DataFrame:
        found: pd.DataFrame = deltalake.DeltaTable(tmp_path / "tables" / name).to_pandas()
        return found

    with broker_in(tmp_path) as broker, StreamClient(broker.settings.data) as client:
        for each in readings:
            broker.publish(each.topic, each.payload, qos=1)
        eventually(lambda: client.stream("meters").partitions[0].end == len(readings))

        run(pipeline, spark=spark, once=True)

        with Wire(broker.port) as watcher:
            watcher.connect("watcher")
            watcher.subscribe(("grid/low/#", 0))
            alert = watcher.expect(mqtt.PUBLISH)

    counts = {name: len(table(name)) for name in ("bronze", "silver", "quarantine")}
    late = table("quarantine")["fault"].str.startswith("late: ")
    assert counts["bronze"] == len(readings)
    assert counts["silver"] == kinds["good"]
    assert late.sum() == kinds["late"]
    assert counts["quarantine"] == kinds["bad"] + kinds["late"]
    assert counts["bronze"] == counts["silver"] + counts["quarantine"] + kinds["again"]
    good = frame_of(readings)
    watermark = good["at"].max() - pd.Timedelta("2h")
    same(table("hourly"), hourly(good, watermark))
    same(table("daily"), daily(good, watermark))
    assert alert.topic == "grid/low/m7"


def test_the_example_publishes_what_it_says(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        command = [sys.executable, str(ENERGY / "readings.py"), "--port", str(broker.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 -- ours

        count = sum(1 for _ in example().readings())
        assert (done.returncode, done.stdout) == (0, f"sent {count} messages\n"), done.stderr
        eventually(lambda: broker.stats()["stream_rows"] == count)


def test_each_kind_of_reading_comes_when_it_should() -> None:
    """What is good is never late: `watermark` of the example is two hours."""
    newest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for each in example().readings():
        if each.values["at"] == "yesterday":
            continue
        at = datetime.datetime.fromisoformat(each.values["at"])
        behind = max(newest - at, datetime.timedelta(0))
        if each.kind == "late":
            assert behind > datetime.timedelta(hours=24)
        else:
            assert behind < datetime.timedelta(hours=2)
        newest = max(newest, at)
