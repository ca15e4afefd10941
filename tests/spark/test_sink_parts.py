"""The sink without Spark: options, columns, what is sent again, what would come back."""

from __future__ import annotations

import contextlib
import json
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from mqttcore.errors import (
    EndpointUnreachableError,
    LoopError,
    StreamOptionError,
)
from mqttcore.spark import staging
from mqttcore.spark.feedback import Guard, query_offsets
from mqttcore.spark.messages import PIECE_BYTES, Form, RowPlace, ipc, rows_of
from mqttcore.spark.sink import BatchSink, StreamSink, target_of
from mqttcore.spark.sink_options import parse_sink_options
from mqttcore.spark.staging import parts
from mqttcore.streams.client import StreamClient
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from tests.spark.conftest import SimulatedTime
from tests.spark.sinks import open_broker

OURS = {"path": "/data"}
OTHER = {"broker": "mqtt://127.0.0.1:1883"}
PLACE = RowPlace(query="q", batch=3, partition=1, attempt=0)


TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "DOUBLE": DoubleType(),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
    "ARRAY<STRING>": ArrayType(StringType()),
}


def columns(text: str) -> StructType:
    """As Spark reads such a text, which it does with a JVM only."""
    made = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        made = made.add(name, TYPES[kind])
    return made


def form(schema: str, guard: Guard | None = None, **options: str) -> Form:
    parsed = parse_sink_options({**OURS, **options})
    return Form(parsed, columns(schema), guard or Guard())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["path, endpoint or broker is missing"]),
        ({**OURS, "tpoic": "x"}, ["tpoic", "did you mean topic?"]),
        ({**OURS, "topic": "a/#"}, ["topic", "a/#"]),
        ({**OURS, "qos": "3"}, ["qos", "0, 1 and 2"]),
        ({**OURS, "retain": "yes"}, ["retain", "true and false"]),
        ({**OURS, "txnAppId": "x"}, ["txnAppId and txnVersion need each other"]),
        ({**OURS, "txnAppId": "a/b", "txnVersion": "1"}, ["txnAppId", "letters"]),
        ({**OURS, "txnAppId": "a", "txnVersion": "-1"}, ["txnVersion", "at least 0"]),
        ({**OURS, **OTHER}, ["path is for an mqttcore broker, not for option broker"]),
        ({**OURS, "username": "joe"}, ["username is for option broker"]),
        ({**OURS, "clientid": "joe"}, ["clientId is for option broker"]),
        ({**OTHER, "prefix": "a"}, ["prefix is for an mqttcore broker"]),
        ({**OTHER, "qos": "0"}, ["qos = 0", "1 and 2 are allowed"]),
        ({"broker": "127.0.0.1:1883"}, ["broker", "mqtt://host:port"]),
        ({**OTHER, "protocol": "4"}, ["protocol", "5, 3.1.1"]),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(StreamOptionError) as caught:
        parse_sink_options(given)

    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_spark_adds_is_no_mistake() -> None:
    given = {**OURS, "queryname": "copy", "checkpointlocation": "/x"}

    assert parse_sink_options(given).checkpoint == "/x"


def test_secrets_are_not_shown() -> None:
    shown = repr(parse_sink_options({**OTHER, "password": "hush"}))
    shown += repr(parse_sink_options({"endpoint": "http://x:1", "token": "hush"}))

    assert "hush" not in shown


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("topic STRING", {}, ["column payload is missing"]),
        ("payload BINARY", {}, ["column topic is missing, or option topic"]),
        ("topic STRING, payload BINARY", {"topic": "a"}, ["topic", "exclude each other"]),
        ("topic INT, payload BINARY", {}, ["column topic is int", "string"]),
        ("topic STRING, payload DOUBLE", {}, ["column payload is double", "binary or string"]),
        ("topic STRING, payload BINARY, price INT", {}, ["price", "content_type", "select"]),
        ("topic STRING, payload BINARY, qos STRING", {}, ["column qos is string", "tinyint"]),
        (
            "topic STRING, payload BINARY, user_properties ARRAY<STRING>",
            {},
            ["user_properties is array<string>", "map<string,string>"],
        ),
    ],
)
def test_columns_that_make_no_message_are_named(
    schema: str, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(StreamOptionError) as caught:
        form(schema, **options)

    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_columns_are_cast_and_options_become_columns() -> None:
    pairs = pa.array([[("unit", "K"), ("line", "2")], None], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch(
        {
            "payload": ["a", None],
            "qos": pa.array([2, None], pa.int32()),
            "user_properties": pairs,
        }
    )

    (made,) = form(
        "payload STRING, qos INT, user_properties MAP<STRING,STRING>", topic="t", retain="true"
    ).messages([batch, batch.slice(0, 0)])

    assert made.to_pylist() == [
        {
            "payload": b"a",
            "qos": 2,
            "user_properties": [{"key": "unit", "value": "K"}, {"key": "line", "value": "2"}],
            "topic": "t",
            "retain": True,
        },
        {"payload": None, "qos": None, "user_properties": None, "topic": "t", "retain": True},
    ]


def test_large_batches_are_cut_and_no_row_is_lost() -> None:
    sizes = [1, PIECE_BYTES, 10, PIECE_BYTES // 2, PIECE_BYTES // 2, 7]
    batch = pa.record_batch({"topic": ["t"] * 6, "payload": [b"x" * size for size in sizes]})

    made = list(form("topic STRING, payload BINARY").messages([batch]))

    assert [len(text) for part in made for text in part["payload"].to_pylist()] == sizes
    assert all(part.nbytes <= PIECE_BYTES or part.num_rows == 1 for part in made)
    assert len(made) < 6


def test_rows_that_come_as_objects_are_the_same() -> None:
    schema = columns("topic STRING, payload BINARY, qos INT")
    rows = [(f"t/{n}", bytearray([n]), n % 3) for n in range(25)]

    batches = list(rows_of(iter(rows), schema, 10))

    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    table = pa.Table.from_batches(batches)
    assert table["topic"].to_pylist() == [row[0] for row in rows]
    assert table["payload"].to_pylist() == [bytes(row[1]) for row in rows]


def test_topics_outside_of_the_prefix_are_refused() -> None:
    inside = form("topic STRING, payload BINARY", prefix="registry/")
    batch = pa.record_batch({"topic": ["registry/a", "registries"], "payload": [b"", b""]})

    with pytest.raises(StreamOptionError, match="'registries' is not below option prefix registry"):
        list(inside.messages([batch]))

    assert len(list(inside.messages([batch.slice(0, 1)]))) == 1


def test_overwriting_needs_a_prefix_and_retained_messages(tmp_path: pathlib.Path) -> None:
    schema = columns("topic STRING, payload BINARY")
    here = {"path": str(tmp_path)}
    for given, overwrite, words in [
        (here, True, "option prefix"),
        ({**here, "prefix": "a", "retain": "true"}, False, "option prefix"),
        ({**here, "prefix": "a"}, True, "needs option retain = true"),
        ({"path": str(tmp_path / "none")}, False, "no such folder"),
    ]:
        with pytest.raises(StreamOptionError, match=words):
            target_of(parse_sink_options(given), schema, overwrite=overwrite)


def test_a_broker_that_was_never_there_ends_a_write_at_once(
    tmp_path: pathlib.Path, patience: SimulatedTime
) -> None:
    options = parse_sink_options({"path": str(tmp_path), "stream": "plant"})
    schema = columns("topic STRING, payload BINARY")

    with pytest.raises(EndpointUnreachableError, match=str(tmp_path)):
        BatchSink(options, schema, overwrite=False)
    assert patience.waits == []

    # a query may have met it before
    with pytest.raises(EndpointUnreachableError, match=str(tmp_path)):
        StreamSink(options, schema, overwrite=False)
    assert patience.waits != []


# --- what would come back


def test_a_topic_that_the_query_reads_is_refused_with_the_filter() -> None:
    guarded = form("topic STRING, payload BINARY", Guard(("other/+", "plant/#")))
    fine = pa.record_batch({"topic": ["out/1", None], "payload": [b"", b""]})
    loop = pa.record_batch({"topic": ["out/1", "plant/7"], "payload": [b"", b""]})

    assert len(list(guarded.messages([fine]))) == 1
    with pytest.raises(LoopError, match=r"'plant/7'.*'plant/#'.*allowLoop"):
        list(guarded.messages([loop]))
    assert pickle.loads(pickle.dumps(guarded)).guard == guarded.guard  # noqa: S301 -- our own


def checkpoint(folder: pathlib.Path, number: int, *offsets: object) -> pathlib.Path:
    """A checkpoint as Spark writes it."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *("-" if each is None else json.dumps(each) for each in offsets)]
    (folder / "offsets" / str(number)).write_text("\n".join(lines))
    return folder


def test_the_checkpoint_says_what_the_query_reads(tmp_path: pathlib.Path) -> None:
    first = {"epoch": "s:1", "from": {"0": 0}, "reads": ["a/#"], "to": {"0": 4}}
    checkpoint(tmp_path, 9, first)
    checkpoint(tmp_path, 10, {"0": 9, "epoch": "s:1", "reads": ["b/#"]}, 17, {"x": 1}, None)
    (tmp_path / "offsets" / ".11.tmp").write_text("half")

    (found,) = query_offsets(str(tmp_path))
    assert (found.epoch, found.reads) == ("s:1", ("b/#",))
    assert query_offsets(f"file:{tmp_path}") == [found]
    assert query_offsets("s3://bucket/x") == query_offsets(str(tmp_path / "none")) == []


def test_a_fixed_topic_is_refused_before_a_row_is_there(tmp_path: pathlib.Path) -> None:
    with open_broker(tmp_path / "here") as broker:
        here = {"path": str(tmp_path / "here"), "topic": "plant/7"}
        schema = columns("payload BINARY")
        with StreamClient(tmp_path / "here") as client:
            epoch = client.stream("plant").epoch
        reads = {"0": 0, "epoch": epoch, "reads": ["plant/+"]}
        given = {**here, "checkpointLocation": str(checkpoint(tmp_path / "query", 0, reads))}

        with pytest.raises(LoopError, match=r"'plant/7'.*'plant/\+'"):
            target_of(parse_sink_options(given), schema, overwrite=False)
        with pytest.raises(LoopError, match=r"'plant/7'.*'plant/#'"):
            target_of(parse_sink_options({**here, "stream": "plant"}), schema, overwrite=False)
        for changes in ({"allowLoop": "true"}, {"topic": "out/7"}):
            target_of(parse_sink_options({**given, **changes}), schema, overwrite=False)

        # another broker's stream of the same topics is no loop
        checkpoint(tmp_path / "query", 1, {**reads, "epoch": "elsewhere:1"})
        target_of(parse_sink_options(given), schema, overwrite=False)
        # a foreign broker may be that of the source under another name
        foreign = {**given, "broker": f"mqtt://127.0.0.1:{broker.port}"}
        del foreign["path"]
        with pytest.raises(LoopError, match="'plant/7'"):
            target_of(parse_sink_options(foreign), schema, overwrite=False)


# --- sending again


def numbered(count: int, size: int = 10) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"topic": [f"t/{number}"], "payload": [b"x" * size]})


def test_rows_are_sent_in_parts_that_can_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGE_BYTES", 5_000)

    sent = [(b"".join(ipc(part)), b"".join(ipc(part))) for part in parts(numbered(8, 2_000))]

    tables = [pa.ipc.open_stream(body).read_all() for body, _ in sent]
    assert [table.num_rows for table in tables] == [3, 3, 2]
    assert pa.concat_tables(tables)["topic"].to_pylist() == [f"t/{n}" for n in range(8)]
    assert all(first == again for first, again in sent)
    assert list(parts([])) == []


def test_a_broker_that_was_away_while_rows_came_gets_them_all(tmp_path: pathlib.Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from numbered(2)
        runs[0].close()
        runs[0] = stack.enter_context(contextlib.ExitStack())
        runs[0].enter_context(open_broker(tmp_path))
        yield from numbered(3)

    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(contextlib.ExitStack())]
        runs[0].enter_context(open_broker(tmp_path))
        schema = columns("topic STRING, payload BINARY")
        sink = target_of(parse_sink_options({"path": str(tmp_path)}), schema, overwrite=False)

        told = sink.send(rows(), PLACE)

        assert isinstance(told, staging.Staged)
        assert (told.rows, len(told.stages)) == (5, 1)
        sink.abort([told, None])
        assert list((tmp_path / "sink").iterdir()) == []
