"""A stream's sealed files as others read them, with the broker stopped: each sees the same rows."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from mqttcore import Broker
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Column, Stream

from tests.streams.plant import plant_settings

MESSAGES = 40

Reader = Callable[[pathlib.Path], "Iterable[Mapping[Any, Any]]"]


def by_pyarrow(folder: pathlib.Path) -> Iterable[Mapping[Any, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def by_pandas(folder: pathlib.Path) -> Iterable[Mapping[Any, Any]]:
    rows: list[dict[str, Any]] = pd.read_parquet(folder).to_dict("records")
    return rows


def by_polars(folder: pathlib.Path) -> Iterable[Mapping[Any, Any]]:
    return pl.read_parquet(folder).to_dicts()


def by_duckdb(folder: pathlib.Path) -> Iterable[Mapping[Any, Any]]:
    found = duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'")  # noqa: S608 -- a folder of ours
    assert found is not None
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Files of two partitions with a typed column, sealed in two goes."""
    folder = tmp_path_factory.mktemp("readers")
    plant = Stream(
        name="plant",
        filter=("plant/#",),
        partitions=2,
        decode="json",
        schema=(Column(name="temperature", type="double"),),
    )
    settings = dataclasses.replace(plant_settings(folder), streams=(plant,))
    with Broker(settings) as broker, StreamClient(broker.settings.data) as client:
        for half in (range(MESSAGES // 2), range(MESSAGES // 2, MESSAGES)):
            for number in half:
                broker.publish(
                    f"plant/{number % 7}",
                    payload(number),
                    qos=1,
                    user_properties=(("shift", "late"), ("shift", str(number))),
                )
            while sum(bounds.end for bounds in client.stream("plant").partitions) <= half[-1]:
                """Rows are seen a little after they are safe."""
            client.seal("plant")
        path = client.stream("plant").path / "data"
    # Two partitions, sealed twice; on a busy machine the broker may have merged the files of one.
    assert 2 <= len(list(path.iterdir())) <= 4
    return path


def payload(number: int) -> bytes:
    """What is published: one in four does not decode."""
    return b'{"temperature": %d.5}' % number if number % 4 else b"garbage"


def told(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    """What a row says, in Python's own types."""
    at = row["timestamp"]
    assert isinstance(at, datetime.datetime)
    pairs = [(pair["key"], pair["value"]) for pair in row["user_properties"]]
    degrees = None if pd.isna(row["temperature"]) else row["temperature"]
    names = ("partition", "offset", "topic", "payload", "qos", "retain")
    return (*(row[name] for name in names), at.timestamp(), pairs, degrees)


@pytest.mark.parametrize("read", [by_pyarrow, by_pandas, by_polars, by_duckdb])
def test_each_reader_sees_the_same_rows(sealed: pathlib.Path, read: Reader) -> None:
    rows = sorted(told(row) for row in read(sealed))

    assert rows == sorted(told(row) for file in sealed.iterdir() for row in by_pyarrow(file))
    published = {
        (f"plant/{number % 7}", payload(number), number + 0.5 if number % 4 else None, str(number))
        for number in range(MESSAGES)
    }
    assert {(row[2], row[3], row[-1], row[-2][1][1]) for row in rows} == published
    offsets = [row[:2] for row in rows]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == MESSAGES
