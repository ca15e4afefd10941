"""Avro payloads: schemas by number, and records as fastavro writes them."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mqttcore._core import StreamDecoder
from mqttcore.streams.avro import read_schemas

fastavro = pytest.importorskip("fastavro")

NUMBERS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type: in Avro, as a column, values that a writer takes, and what a reader finds of one."""

    avro: Any
    column: str
    values: st.SearchStrategy[Any]
    found: Callable[[Any], Any] = lambda value: value


def floats(width: int) -> st.SearchStrategy[float]:
    return st.floats(width=width, allow_nan=False)  # type: ignore[arg-type]  # 32 or 64


INSTANTS = st.datetimes(
    min_value=datetime.datetime(1, 1, 2),
    max_value=datetime.datetime(9999, 12, 30),
    timezones=st.just(datetime.UTC),
)
LEAVES = [
    Kind(avro="boolean", column="BOOLEAN", values=st.booleans()),
    Kind(avro="int", column="INT", values=st.integers(-(2**31), 2**31 - 1)),
    Kind(avro="long", column="BIGINT", values=st.integers(-(2**63), 2**63 - 1)),
    Kind(avro="float", column="FLOAT", values=floats(32)),
    Kind(avro="double", column="DOUBLE", values=floats(64)),
    Kind(avro="string", column="STRING", values=st.text()),
    Kind(avro="bytes", column="BINARY", values=st.binary()),
    Kind(
        avro={"type": "int", "logicalType": "date"},
        column="DATE",
        values=st.dates(),
    ),
    Kind(
        avro={"type": "long", "logicalType": "timestamp-micros"},
        column="TIMESTAMP",
        values=INSTANTS,
    ),
    Kind(
        avro={"type": "long", "logicalType": "timestamp-millis"},
        column="TIMESTAMP",
        values=INSTANTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    Kind(
        avro={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        column="DECIMAL(12, 3)",
        values=st.integers(1 - 10**12, 10**12 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
    ),
]


def nullable(kind: Kind) -> Kind:
    return Kind(
        avro=["null", kind.avro],
        column=kind.column,
        values=st.none() | kind.values,
        found=lambda value: None if value is None else kind.found(value),
    )


def listed(kind: Kind) -> Kind:
    return Kind(
        avro={"type": "array", "items": kind.avro},
        column=f"ARRAY<{kind.column}>",
        values=st.lists(kind.values, max_size=3),
        found=lambda value: [kind.found(item) for item in value],
    )


def mapped(kind: Kind) -> Kind:
    return Kind(
        avro={"type": "map", "values": kind.avro},
        column=f"ARRAY<STRUCT<key: STRING, value: {kind.column}>>",
        values=st.dictionaries(st.text(max_size=4), kind.values, max_size=3),
        found=lambda value: [
            {"key": key, "value": kind.found(item)} for key, item in value.items()
        ],
    )


def record(kinds: list[Kind]) -> Kind:
    """A record of these; no other has its name."""
    names = [f"f{index}" for index in range(len(kinds))]
    columns = ", ".join(f"{name}: {kind.column}" for name, kind in zip(names, kinds, strict=True))
    fields = [{"name": name, "type": kind.avro} for name, kind in zip(names, kinds, strict=True)]
    by_name = dict(zip(names, kinds, strict=True))
    return Kind(
        avro={"type": "record", "name": f"R{next(NUMBERS)}", "fields": fields},
        column=f"STRUCT<{columns}>",
        values=st.fixed_dictionaries({name: kind.values for name, kind in by_name.items()}),
        found=lambda value: {name: kind.found(value[name]) for name, kind in by_name.items()},
    )


KINDS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.filter(lambda kind: not isinstance(kind.avro, list)).map(nullable),
        inner.map(listed),
        inner.map(mapped),
        st.lists(inner, min_size=1, max_size=3).map(record),
    ),
    max_leaves=6,
)


def payload(number: int, schema: Any, value: Any) -> bytes:  # noqa: ANN401 -- JSON, and any value
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", number) + written.getvalue()


def decoded(schemas: bytes, columns: str, *payloads: bytes) -> list[dict[str, Any]]:
    decoder = StreamDecoder("avro", columns, descriptor=schemas)
    batch = pa.record_batch({"payload": pa.array(payloads, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found = map(pa.record_batch, decoder.decode(sink.getvalue().to_pybytes()))
    return [row for rows in found for row in rows.drop_columns(["payload"]).to_pylist()]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    whole = record(data.draw(st.lists(KINDS, min_size=1, max_size=4)))
    value = data.draw(whole.values)
    columns = whole.column.removeprefix("STRUCT<").removesuffix(">")

    (row,) = decoded(json.dumps({7: whole.avro}).encode(), columns, payload(7, whole.avro, value))

    assert row.pop("_corrupt") is None
    assert row == whole.found(value)


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "branches", "type": {"type": "map", "values": "Tree"}},
    ],
}
LEAF = {"name": "-Infinity", "weight": -math.inf, "branches": {}}
TREES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.builds(dict, name=st.text(), weight=st.none() | floats(64), branches=st.just({})),
    lambda inner: st.builds(
        dict,
        name=st.text(),
        weight=st.none() | st.integers(-9, 9).map(float),
        branches=st.dictionaries(st.text(max_size=4), inner, max_size=2),
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@example(tree={"name": "", "weight": None, "branches": {"": LEAF}})
@given(tree=TREES)
def test_a_nested_value_is_json_in_a_column_of_texts(tree: dict[str, Any]) -> None:
    schemas = json.dumps({0: TREE}).encode()

    (row,) = decoded(schemas, "branches STRING", payload(0, TREE, tree))

    assert json.loads(row["branches"]) == without_infinity(tree)["branches"]


def without_infinity(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with the names of infinite weights, for which JSON has no number."""
    weight = tree["weight"]
    if weight is not None and math.isinf(weight):
        weight = "Infinity" if weight > 0 else "-Infinity"
    branches = {name: without_infinity(branch) for name, branch in tree["branches"].items()}
    return {"name": tree["name"], "weight": weight, "branches": branches}


def test_a_folder_has_the_schemas_by_number(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(TREE))
    (tmp_path / "0012.avsc").write_text('"int"')
    (tmp_path / "notes.txt").write_text("none")

    assert json.loads(read_schemas(tmp_path)) == {"7": TREE, "12": "int"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no file <number>.avsc"),
        ({"tree.avsc": "{}"}, "tree.avsc: its name is not the number of a schema, as 17.avsc"),
        ({"7.avsc": "{"}, "7.avsc: it is not JSON"),
        ({"7.avsc": "[" * 200_000}, "7.avsc: it is not JSON"),
        ({"7.avsc": "{}", "07.avsc": "{}"}, "another file has the schema 7, too"),
    ],
)
def test_a_folder_that_does_not_fit_is_named(
    tmp_path: Path, files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=words):
        read_schemas(tmp_path)
