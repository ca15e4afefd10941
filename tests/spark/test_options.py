"""Options of the source: text to values, each wrong one named."""

import contextlib
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from mqttcore._core import StreamDecoder
from mqttcore.errors import StreamFileError, StreamOptionError
from mqttcore.spark import options
from mqttcore.spark.offsets import SourceOffset
from mqttcore.spark.options import BY_TOPIC, CORRUPT, DECODERS, OPTIONS, parse_options
from mqttcore.spark.positions import AtOffsets, AtTime, parse_position, parse_timestamp, resolve

from tests.stream_folder import ipc

PLACE = {"path": "/data", "stream": "plant"}


def test_names_arrive_in_lower_case() -> None:
    options = parse_options({**PLACE, "maxrowspertrigger": "1_000", "failondataloss": "False"})

    assert options.max_rows == 1000
    assert options.fail_on_data_loss is False


def test_without_options_everything_is_read_and_loss_is_an_error() -> None:
    options = parse_options(PLACE)

    assert (options.topic, options.decode, options.fail_on_data_loss) == (None, "none", True)
    assert (options.starting, options.columns, options.max_rows_per_task) == (None, None, 4_000_000)


def test_spark_may_add_what_its_catalog_needs() -> None:
    assert parse_options({**PLACE, "serialization.format": "1"}).stream == "plant"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"maxRowsPerTriger": "5"}, ["maxrowspertriger", "did you mean maxRowsPerTrigger?"]),
        ({"nonsense": "5"}, ["'nonsense' is unknown", "startingOffsets"]),
        ({"maxRowsPerTrigger": "0"}, ["maxRowsPerTrigger", "'0'", "at least 1"]),
        ({"maxRowsPerTrigger": "-3"}, ["maxRowsPerTrigger", "at least 1"]),
        ({"maxBytesPerTrigger": "64x"}, ["maxBytesPerTrigger", "k, m or g"]),
        ({"maxTriggerDelay": "10"}, ["maxTriggerDelay", "ms, s, m or h"]),
        ({"targetBatchTime": "0s"}, ["targetBatchTime", "longer than 0"]),
        ({"minPartitions": "many"}, ["minPartitions", "whole number"]),
        ({"topic": "plant/#/x"}, ["topic", "plant/#/x"]),
        ({"stream": "../x"}, ["stream", "../x"]),
        ({"endpoint": "ftp://x"}, ["endpoint", "http://host:port"]),
        ({"endpoint": "ftp://x:8884"}, ["endpoint", "ftp://x:8884", "https://host:port"]),
        ({"endpoint": "http://x:8884/streams"}, ["endpoint", "http://host:port"]),
        ({"endpoint": "http://x:port"}, ["endpoint", "http://host:port"]),
        ({"endpoint": "http://:8884"}, ["endpoint", "http://host:port"]),
        ({"endpoint": "/data"}, ["endpoint", "unix:/path"]),
        ({"ca": "/nowhere.pem"}, ["ca", "/nowhere.pem", "cannot be read"]),
        ({"ca": "-----BEGIN"}, ["ca", "no certificate"]),
        ({"startingOffsets": "first"}, ["startingOffsets", "earliest, latest"]),
        ({"startingOffsets": '{"0": -1}'}, ["startingOffsets", "-1 is not an offset"]),
        ({"startingOffsets": '{"x": 1}'}, ["startingOffsets", "'x' is not a partition"]),
        ({"startingOffsets": "{}"}, ["startingOffsets", "allowed are"]),
        ({"startingOffsets": '{"to": {"0": 1}, "1": 5}'}, ["startingOffsets", "'to' is no"]),
        ({"startingOffsets": '{"to": 3}'}, ["startingOffsets", "allowed are"]),
        ({"startingOffsets": '{"0": 1, "epoch": 3}'}, ["startingOffsets", "allowed are"]),
        ({"startingOffsets": '{"0": true}'}, ["startingOffsets", "True is not an offset"]),
        ({"startingTimestamp": "yesterday"}, ["startingTimestamp", "ISO 8601"]),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1"},
            ["startingOffsets", "startingTimestamp", "exclude"],
        ),
        (
            {"endingOffsets": "latest", "endingTimestamp": "1"},
            ["endingOffsets", "endingTimestamp", "exclude"],
        ),
        ({"columns": "topic,,offset"}, ["columns", "commas"]),
        ({"columns": "topic,topic"}, ["columns", "topic is listed twice"]),
        (
            {"decode": "xml"},
            ["decode", "none, json, cbor, msgpack, text, protobuf, avro, sparkplug, auto"],
        ),
        ({"decode": "json"}, ["decode", "needs option payloadSchema"]),
        ({"payloadSchema": "a INT"}, ["payloadSchema", "needs option decode"]),
        ({"decode": "protobuf", "payloadSchema": "a INT"}, ["protobuf", "descriptorFile"]),
        ({"messageName": "a.B"}, ["messageName", "decode = protobuf"]),
        ({"decode": "avro", "payloadSchema": "a INT"}, ["avro", "schemasFolder"]),
        ({"schemasFolder": "/nowhere"}, ["schemasFolder", "/nowhere has no file <number>.avsc"]),
        ({"descriptorFile": "/no/such/file"}, ["descriptorFile", "No such file"]),
        ({"onError": "skip"}, ["onError", "null, drop, fail"]),
        ({"failOnDataLoss": "no"}, ["failOnDataLoss", "true and false"]),
        ({"consumer": "a/b"}, ["consumer", "letters, digits"]),
        ({"path": " "}, ["path", "must not be empty"]),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(
    changes: dict[str, str], words: list[str]
) -> None:
    given = {name.lower(): value for name, value in {**PLACE, **changes}.items()}

    with pytest.raises(StreamOptionError) as caught:
        parse_options(given)

    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, "path or endpoint"), ({"endpoint": "http://broker:8884"}, "stream")],
)
def test_where_the_log_is_must_be_said(given: dict[str, str], missing: str) -> None:
    with pytest.raises(StreamOptionError, match=missing):
        parse_options(given)


def test_every_option_of_the_table_is_reachable() -> None:
    from dataclasses import fields

    from mqttcore.spark.options import SourceOptions

    reachable = {attribute for attribute, _ in OPTIONS.values()}
    # the stream says it, nobody gives it
    found = {"typed"}
    assert reachable | found == {field.name for field in fields(SourceOptions)}


def test_the_documentation_lists_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| ``(\w+)`` \| (.*?) ?\|", options.__doc__ or "", re.MULTILINE)
    parsed = parse_options({"path": "/data"})

    assert [name for name, _ in rows] == list(OPTIONS)
    for name, default in rows:
        attribute, read = OPTIONS[name]
        value = getattr(parsed, attribute)
        if default.startswith("``"):
            assert read(default.strip("`")) == value, name
        else:
            assert value is None or name == "path", name


@pytest.mark.parametrize("decode", sorted(set(DECODERS) - {"none", "protobuf", "avro"}))
def test_the_decoders_look_at_topics_and_call_a_column_as_is_known_here(decode: Any) -> None:  # noqa: ANN401 -- a word
    decoder = StreamDecoder(decode, "any INT")
    without_topic = pa.table({"payload": [b"1"]})

    assert pa.schema(decoder.schema).names == ["any", CORRUPT]
    with contextlib.ExitStack() as stack:
        if decode in BY_TOPIC:
            stack.enter_context(pytest.raises(StreamFileError, match="column topic"))
        assert len(decoder.decode(ipc(without_topic))) == 1


def test_the_token_is_in_no_text_of_the_options() -> None:
    options = parse_options({"endpoint": "http://b:1", "stream": "s", "token": "very secret"})

    assert options.token == "very secret"  # noqa: S105 -- a test
    assert "very secret" not in repr(options)


@pytest.mark.parametrize(
    ("text", "bytes_"), [("10", 10), ("2k", 2048), ("64m", 64 << 20), ("1 GiB", 1 << 30)]
)
def test_sizes(text: str, bytes_: int) -> None:
    assert parse_options({**PLACE, "maxBytesPerTrigger": text}).max_bytes == bytes_


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("1.5 s", 1.5), ("15m", 900.0), ("2h", 7200.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_options({**PLACE, "maxTriggerDelay": text}).max_delay_s == seconds


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-11-21T20:15:00Z", 1_795_292_100_000_000),
        ("2026-11-21T20:15:00", 1_795_292_100_000_000),
        ("2026-11-21T21:15:00.000001+01:00", 1_795_292_100_000_001),
        ("1795292100123", 1_795_292_100_123_000),
    ],
)
def test_timestamps_are_utc_and_exact(text: str, microseconds: int) -> None:
    assert parse_timestamp(text) == AtTime(microseconds)


def test_positions_become_offsets() -> None:
    stream: dict[str, Any] = {
        "earliest": (5, 6),
        "end": (50, 60),
        "at_time": lambda us: (us, us + 1),
    }

    assert resolve("earliest", **stream) == (5, 6)
    assert resolve("latest", **stream) == (50, 60)
    assert resolve(AtTime(7), **stream) == (7, 8)
    assert resolve(parse_position('{"1": 7, "0": "latest"}'), **stream) == (50, 7)


@pytest.mark.parametrize("starts", [None, (3, 4)])
def test_the_end_that_a_query_reports_is_a_position(starts: tuple[int, int] | None) -> None:
    end = SourceOffset(epoch="a:1", ends=(17, 4), starts=starts, reads=("plant/#",))

    position = parse_position(json.dumps(end.to_dict()))

    assert position == AtOffsets({0: 17, 1: 4}, "a:1")


@pytest.mark.parametrize("text", ['{"0": 1}', '{"0": 1, "1": 1, "2": 1}', '{"0": 1, "2": 1}'])
def test_offsets_name_each_partition_once(text: str) -> None:
    with pytest.raises(ValueError, match="the stream has 0, 1: each must be named"):
        resolve(parse_position(text), earliest=(0, 0), end=(9, 9), at_time=lambda us: (us, us))


def test_limits_have_the_names_of_sparks_kafka_source_too() -> None:
    given = {"path": "/data", "maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "3"}

    options = parse_options(given)

    assert (options.max_rows, options.min_rows) == (7, 3)
    with pytest.raises(StreamOptionError, match="maxRowsPerTrigger and maxOffsetsPerTrigger"):
        parse_options({**given, "maxRowsPerTrigger": "7"})


def test_a_time_to_begin_after_the_time_to_end_is_refused() -> None:
    times = {"startingTimestamp": "2026-11-22T00:00:00Z", "endingTimestamp": "2026-11-21"}

    with pytest.raises(StreamOptionError, match="startingTimestamp is later than"):
        parse_options({"path": "/data", **times})
