"""Typed columns out of payloads, decoded before Spark sees a row."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.spark import decode
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

ROOT = pathlib.Path(__file__).parents[2]
Load = Callable[..., "DataFrame"]
Make = Callable[..., StreamFolder]
SCHEMA = "temperature DOUBLE, unit STRING"
DESCRIPTOR = ROOT / "rust/columnar/tests/protobuf/machine.binpb"
PAYLOADS = (
    b'{"temperature": 21.5, "unit": "C", "more": 1}',
    b'{"temperature": "hot", "unit": "C"}',
    b"no json",
    b'{"unit": null}',
)


def messages(*payloads: bytes) -> list[dict[str, Any]]:
    """Messages with these payloads."""
    return [{"payload": payload} for payload in payloads]


@pytest.fixture
def telemetry(make_stream: Make) -> StreamFolder:
    """Four sealed rows, two of which do not fit."""
    stream = make_stream()
    stream.seal(rows(messages(*PAYLOADS)))
    return stream


def test_json_becomes_typed_columns_and_what_does_not_fit_is_kept(
    telemetry: StreamFolder, load: Load
) -> None:
    frame = load(decode="json", payloadSchema=SCHEMA)

    found = frame.select("temperature", "unit", "_corrupt").collect()
    assert [(row[0], row[1], row[2] and bytes(row[2])) for row in found] == [
        (21.5, "C", None),
        (None, "C", PAYLOADS[1]),
        (None, None, PAYLOADS[2]),
        (None, None, None),
    ]
    assert dict(frame.dtypes)["temperature"] == "double"


def test_rows_that_do_not_fit_are_dropped_when_that_is_wanted(
    telemetry: StreamFolder, load: Load
) -> None:
    frame = load(decode="json", payloadSchema=SCHEMA, onError="drop", columns="offset,temperature")

    assert frame.collect() == [(0, 21.5), (3, None)]


def test_the_first_row_that_does_not_fit_is_named_when_it_is_an_error(
    telemetry: StreamFolder, load: Load
) -> None:
    with pytest.raises(PySparkException, match=r"StreamDecodeError.* offset 1 "):
        load(decode="json", payloadSchema=SCHEMA, onError="fail", columns="unit").collect()


def test_the_source_decodes_what_from_json_decodes(telemetry: StreamFolder, load: Load) -> None:
    schema = "temperature DOUBLE, unit STRING, at TIMESTAMP, n BIGINT, tags ARRAY<STRING>"
    telemetry.seal(
        rows(
            messages(
                b'{"at": "2024-02-29T12:00:00.5+01:00", "n": 9007199254740993}',
                b'{"temperature": -1e3, "unit": "\\u00e9", "n": 1.5, "tags": ["a", null]}',
            ),
            base=4,
        )
    )

    ours = load(decode="json", payloadSchema=schema, onError="null").where("offset <> 5")
    theirs = load().where("offset <> 5").select(
        "offset", sql.from_json(sql.col("payload").cast("string"), schema).alias("value")
    )  # fmt: skip

    columns = ("offset", "temperature", "unit", "at", "n", "tags")
    assert ours.select(*columns).collect() == theirs.select("offset", "value.*").collect()


def test_the_tail_is_decoded_like_files(make_stream: Make, load: Load) -> None:
    with FakeEndpoint(make_stream()) as endpoint:
        endpoint.write(rows(messages(*PAYLOADS[:1])))
        endpoint.seal()
        endpoint.write(rows(messages(PAYLOADS[0]), base=1))

        frame = load(decode="json", payloadSchema=SCHEMA, columns="temperature,offset")

        assert frame.collect() == [(21.5, 0), (21.5, 1)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payloadSchema": "temperature DUBLE"}, "option payloadSchema: unknown type DUBLE"),
        ({"payloadSchema": "topic STRING"}, "option payloadSchema: topic is a column of every row"),
        ({"payloadSchema": SCHEMA, "columns": "unit,topc"}, "allowed are partition, offset"),
    ],
)
def test_a_wrong_payload_schema_is_named(
    telemetry: StreamFolder, load: Load, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(decode="json", **options)

    assert words in str(caught.value)


def test_messages_of_protocol_buffers_are_read_by_their_descriptor(
    make_stream: Make, load: Load
) -> None:
    stream = make_stream()
    # temperature = 21.5 and unit = "K"; unit alone; no message
    payloads = (bytes.fromhex("09000000000080354052014b"), b"\x52\x01K", b"\xff")
    stream.seal(rows(messages(*payloads)))

    frame = load(
        decode="protobuf",
        descriptorFile=str(DESCRIPTOR),
        messageName="factory.Machine",
        payloadSchema=f"{SCHEMA}, state STRING",
    )

    found = frame.select("temperature", "unit", "state", "_corrupt").collect()
    assert [(*row[:3], row[3] and bytes(row[3])) for row in found] == [
        (21.5, "K", "STOPPED", None),
        (0.0, "K", "STOPPED", None),
        (None, None, None, b"\xff"),
    ]


def test_a_message_that_the_descriptor_does_not_have_is_refused(
    telemetry: StreamFolder, load: Load
) -> None:
    with pytest.raises(PySparkException, match=r"descriptorFile.*factory\.Machine"):
        load(
            decode="protobuf",
            descriptorFile=str(DESCRIPTOR),
            messageName="Engine",
            payloadSchema=SCHEMA,
        )


def test_records_of_avro_are_read_by_the_schemas_of_a_folder(
    make_stream: Make, load: Load, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "7.avsc").write_text(
        """{"type": "record", "name": "Reading", "fields": [
        {"name": "unit", "type": "string"}, {"name": "temperature", "type": ["null", "double"]}]}"""
    )
    # temperature = 21.5 and unit = "K"; unit alone; no record of this schema
    header = b"\0\0\0\0\7"
    whole = header + bytes.fromhex("024b020000000000803540")
    payloads = (whole, header + b"\x02K\0", header + b"\2")
    stream = make_stream()
    stream.seal(rows(messages(*payloads)))

    frame = load(decode="avro", schemasFolder=str(tmp_path), payloadSchema=SCHEMA)

    found = frame.select("temperature", "unit", "_corrupt").collect()
    assert [(*row[:2], row[2] and bytes(row[2])) for row in found] == [
        (21.5, "K", None),
        (None, "K", None),
        (None, None, payloads[2]),
    ]
    (row,) = decode(load().where("offset = 0"), SCHEMA, using="avro", schemas=tmp_path).collect()
    assert (row["temperature"], row["unit"]) == (21.5, "K")
