"""Rows of sealed files, as `mqttcore._core` hands them to Arrow: what a Spark executor uses."""

import multiprocessing
import pathlib
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mqttcore._core import StreamOptions, StreamReader, read_stream_file_meta, write_stream_file
from mqttcore.errors import (
    StreamDecodeError,
    StreamFileError,
    StreamOptionError,
    StreamRangeError,
)
from mqttcore.streams.settings import FORMATS, OWN_COLUMNS

from tests.stream_folder import EPOCH, START_US, StreamFolder, ipc, row_schema, rows


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> StreamFolder:
    return StreamFolder(root=tmp_path / "plant").create()


def read(reader: StreamReader) -> pa.Table:
    batches = [pa.record_batch(batch) for batch in reader]
    return pa.Table.from_batches(batches, schema=pa.schema(reader.schema))


def messages(count: int) -> list[dict[str, object]]:
    return [
        {"payload": str(index).encode(), "topic": f"plant/{index % 3}"} for index in range(count)
    ]


def test_settings_and_reader_know_the_same_columns_and_formats() -> None:
    assert pa.schema(StreamOptions().schema).names == list(OWN_COLUMNS)
    with pytest.raises(StreamOptionError, match=f"allowed: {', '.join(FORMATS)}$"):
        StreamOptions(decode="none at all", payload_schema="x INT")  # type: ignore[arg-type]


def test_the_columns_are_those_that_spark_asks_for() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    assert row_schema() == pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("topic", pa.string()),
            ("payload", pa.binary()),
            ("qos", pa.int8()),
            ("retain", pa.bool_()),
            ("dup", pa.bool_()),
            ("client_id", pa.string()),
            ("content_type", pa.string()),
            ("response_topic", pa.string()),
            ("correlation_data", pa.binary()),
            ("expiry", pa.int64()),
            ("user_properties", pa.list_(pa.field("element", pair))),
        ]
    )


def test_a_range_over_several_files_comes_in_order(folder: StreamFolder) -> None:
    table = rows(messages(50))
    folder.seal(table.slice(0, 20))
    folder.seal(table.slice(20))

    options = StreamOptions(batch_rows=8)
    seen = read(StreamReader(folder.files(), partition=0, start=5, end=41, options=options))

    assert seen == table.slice(5, 36)


def test_every_value_comes_back(folder: StreamFolder) -> None:
    full = {
        "topic": "größe/温度",
        "payload": bytes(range(256)) * 300,
        "qos": 2,
        "retain": True,
        "dup": True,
        "client_id": "",
        "content_type": "application/json",
        "response_topic": "answers/1",
        "correlation_data": b"\x00\xff",
        "expiry": 2**32 - 1,
        "user_properties": [{"key": "a", "value": "1"}, {"key": "a", "value": ""}],
    }
    table = rows([full, {}], partition=3, base=7)
    path = StreamFolder(root=folder.root.parent / "other", partitions=4).create().seal(table)

    reader = StreamReader([(str(path), 7, 8)], partition=3, start=7, end=9)

    assert read(reader).to_pylist() == table.to_pylist()


def test_columns_come_in_the_order_in_which_they_are_named(folder: StreamFolder) -> None:
    folder.seal(rows(messages(3)))

    options = StreamOptions(columns=["payload", "offset"])
    reader = StreamReader(folder.files(), partition=0, start=1, end=3, options=options)

    assert pa.schema(options.schema) == pa.schema(
        [("payload", pa.binary()), ("offset", pa.int64())]
    )
    assert read(reader).to_pydict() == {"payload": [b"1", b"2"], "offset": [1, 2]}


def test_other_tools_read_the_files_as_they_are(folder: StreamFolder) -> None:
    table = rows(messages(5))
    path = folder.seal(table)

    assert pq.read_table(path).to_pylist() == table.to_pylist()
    assert pq.read_schema(path) == table.schema


def test_the_footer_is_reported(folder: StreamFolder) -> None:
    path = folder.seal(rows(messages(5), base=100))

    assert read_stream_file_meta(path) == {
        "stream": "plant",
        "epoch": EPOCH,
        "schema": 0,
        "partition": 0,
        "base": 100,
        "last": 104,
        "min_us": START_US + 100_000_000,
        "max_us": START_US + 104_000_000,
        "typed": 0,
        "aliases": "{}",
    }


def test_rows_that_are_in_no_file_are_named(folder: StreamFolder) -> None:
    folder.seal(rows(messages(5), base=10))

    with pytest.raises(StreamRangeError, match=r"partition 0: offsets 15 to 20 \(exclusive\)"):
        StreamReader(folder.files(), partition=0, start=12, end=20)
    with pytest.raises(StreamRangeError, match=r"offsets 3 to 10 "):
        StreamReader(folder.files(), partition=0, start=3, end=12)


DOCUMENTS = [b'{"t":21.5,"unit":"C"}', b'{"t":"warm","unit":"C"}', b'{"t":', b""]


def test_payloads_become_typed_columns(folder: StreamFolder) -> None:
    folder.seal(rows([{"payload": payload} for payload in DOCUMENTS]))
    options = StreamOptions(
        decode="json",
        payload_schema="t DOUBLE, unit STRING",
        columns=["offset", "t", "unit", "_corrupt"],
    )

    seen = read(StreamReader(folder.files(), partition=0, start=0, end=4, options=options))

    assert seen.to_pydict() == {
        "offset": [0, 1, 2, 3],
        "t": [21.5, None, None, None],
        "unit": ["C", "C", None, None],
        "_corrupt": [None, *DOCUMENTS[1:3], None],
    }
    assert seen.schema == pa.schema(options.schema)


def test_aliases_of_a_birth_go_on_in_the_next_reader(folder: StreamFolder) -> None:
    # metric "Steps", alias 2, type Int32, value 7; then alias 2 with value 9
    birth = b"\x12\x0d\x0a\x05Steps\x10\x02\x20\x03\x50\x07"
    data = b"\x12\x04\x10\x02\x50\x09"
    topics = ["spBv1.0/g/NBIRTH/e", "spBv1.0/g/NDATA/e"]
    folder.seal(
        rows([{"topic": t, "payload": p} for t, p in zip(topics, [birth, data], strict=True)])
    )
    schema = "Steps INT"
    first = StreamReader(
        folder.files(),
        partition=0,
        start=0,
        end=1,
        options=StreamOptions(decode="sparkplug", payload_schema=schema, columns=["Steps"]),
    )
    assert read(first).to_pydict() == {"Steps": [7]}

    options = StreamOptions(
        decode="auto", payload_schema=schema, columns=["Steps"], aliases=first.aliases
    )
    second = StreamReader(folder.files(), partition=0, start=1, end=2, options=options)

    assert read(second).to_pydict() == {"Steps": [9]}
    assert StreamReader([], partition=0, start=0, end=0).aliases is None


def test_rows_that_do_not_decode_are_dropped(folder: StreamFolder) -> None:
    folder.seal(rows([{"payload": payload} for payload in DOCUMENTS]))
    options = StreamOptions(decode="json", payload_schema="t DOUBLE", on_error="drop")

    seen = read(StreamReader(folder.files(), partition=0, start=0, end=4, options=options))

    assert seen["offset"].to_pylist() == [0]
    assert pa.schema(options.schema) == row_schema().append(pa.field("t", pa.float64()))


def test_a_row_that_does_not_decode_is_named(folder: StreamFolder) -> None:
    folder.seal(rows([{"payload": payload} for payload in DOCUMENTS], base=40))
    options = StreamOptions(
        decode="json", payload_schema="t DOUBLE", on_error="fail", columns=["t"]
    )
    reader = StreamReader(folder.files(), partition=0, start=40, end=44, options=options)

    with pytest.raises(StreamDecodeError, match="partition 0: the payload at offset 41 does not"):
        read(reader)
    assert list(reader) == []


def test_a_typed_column_that_a_file_lacks_is_null(folder: StreamFolder) -> None:
    folder.seal(rows(messages(2)))
    options = StreamOptions(typed="speed DOUBLE", columns=["speed", "offset"])

    seen = read(StreamReader(folder.files(), partition=0, start=0, end=2, options=options))

    assert seen.to_pydict() == {"speed": [None, None], "offset": [0, 1]}


def test_only_what_the_filter_and_the_times_want_comes(folder: StreamFolder) -> None:
    table = rows(messages(30))
    folder.seal(table)
    options = StreamOptions(
        filter="+/2", start_us=START_US + 5_000_000, end_us=START_US + 14_000_000
    )

    sealed = StreamReader(folder.files(), partition=0, start=3, end=25, options=options)
    assert read(sealed)["offset"].to_pylist() == [5, 8, 11]

    part = ipc(table.slice(3, 22))
    tail = StreamReader.tail(part, partition=0, start=3, end=25, options=options)
    assert read(tail)["offset"].to_pylist() == [5, 8, 11]


def test_the_tail_has_all_rows_or_says_which_are_missing() -> None:
    table = rows(messages(9), base=7)

    tail = StreamReader.tail(ipc(table), partition=0, start=7, end=16)
    assert read(tail) == table

    short = StreamReader.tail(ipc(table), partition=0, start=7, end=20)
    with pytest.raises(StreamRangeError, match=r"offsets 16 to 20 \(exclusive\) are missing"):
        read(short)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(StreamOptionError, match='filter: "plant/#/a"'):
        StreamOptions(filter="plant/#/a")
    with pytest.raises(StreamOptionError, match='decode: unknown format "xml"; allowed: json'):
        StreamOptions(decode="xml", payload_schema="a INT")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(StreamOptionError, match="payload_schema: unknown type speed"):
        StreamOptions(decode="json", payload_schema="a speed")
    with pytest.raises(StreamOptionError, match='on_error: unknown value "skip"'):
        StreamOptions(on_error="skip")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(StreamOptionError, match='columns: there is no column "speed"'):
        StreamOptions(columns=["offset", "speed"])


def test_a_file_that_cannot_be_read_is_named(folder: StreamFolder) -> None:
    path = folder.seal(rows(messages(5)))
    whole = path.read_bytes()

    for broken in (b"", b"PAR1", whole[:-20], whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(StreamFileError, match=f"{path.name} cannot be read"):
            read(StreamReader(folder.files(), partition=0, start=0, end=5))
    path.unlink()
    with pytest.raises(StreamFileError, match=f"{path.name}: No such file"):
        read(StreamReader(folder.files(), partition=0, start=0, end=5))


def test_a_file_that_no_stream_wrote_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "foreign.parquet"
    pq.write_table(rows(messages(5)), path)

    with pytest.raises(StreamFileError, match=r"no mqttcore\.stream in the footer"):
        read_stream_file_meta(path)


def test_rows_that_are_not_dense_are_not_written(tmp_path: pathlib.Path) -> None:
    table = rows(messages(5))
    gap = pa.concat_tables([table.slice(0, 2), table.slice(3)])

    with pytest.raises(StreamFileError, match="found offset 3, expected 2"):
        write_stream_file(tmp_path / "new.parquet", ipc(gap), stream="plant")


def test_bytes_that_are_no_arrow_stream_are_refused(tmp_path: pathlib.Path) -> None:
    whole = ipc(rows(messages(5)))

    for broken in (b"", b"nothing of this kind", whole[:-200]):
        with pytest.raises(StreamFileError):
            write_stream_file(tmp_path / "new.parquet", broken, stream="plant")


def test_threads_share_a_reader(folder: StreamFolder) -> None:
    table = rows(messages(400))
    folder.seal(table)
    options = StreamOptions(batch_rows=10)
    reader = StreamReader(folder.files(), partition=0, start=0, end=400, options=options)
    seen: list[pa.RecordBatch] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(map(pa.record_batch, reader))) for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert pa.Table.from_batches(seen).sort_by("offset") == table


def read_in_child(
    files: list[tuple[str, int, int]], answers: "multiprocessing.SimpleQueue[int]"
) -> None:
    answers.put(read(StreamReader(files, partition=0, start=0, end=50)).num_rows)


def test_a_forked_child_reads(folder: StreamFolder) -> None:
    folder.seal(rows(messages(50)))
    assert read(StreamReader(folder.files(), partition=0, start=0, end=50)).num_rows == 50
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    child = context.Process(target=read_in_child, args=(folder.files(), answers))
    child.start()
    child.join(30)

    assert (child.exitcode, answers.get()) == (0, 50)


def test_importing_the_core_starts_no_thread_and_opens_no_file() -> None:
    script = """
import os
def state():
    return os.listdir("/proc/self/task"), [os.readlink(f"/proc/self/fd/{fd}") for fd in range(64)
        if os.path.exists(f"/proc/self/fd/{fd}")]
before = state()
from mqttcore._core import StreamOptions, StreamReader
StreamOptions(columns=["offset"]).schema
StreamReader([], partition=0, start=0, end=0)
assert state() == before, (before, state())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)  # noqa: S603
