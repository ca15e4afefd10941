"""What the streaming source answers Spark, rule by rule, without a query."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from mqttcore.errors import (
    EndpointUnreachableError,
    StreamEpochError,
    StreamFolderError,
    StreamOptionError,
    StreamRangeError,
)
from mqttcore.spark.log import open_log
from mqttcore.spark.options import parse_options
from mqttcore.spark.planner import OffsetRange
from mqttcore.spark.reading import RowReader, Task
from mqttcore.spark.source import BatchReader, MqttcoreDataSource
from mqttcore.spark.streaming import MqttcoreStreamReader
from mqttcore.streams.client import StreamClient, StreamInfo

from tests.spark.conftest import SimulatedTime, at, numbered
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import StreamFolder, rows

limits = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="limits of a batch came with Spark 4.2"
)
Make = Callable[..., StreamFolder]
ALL = limits.ReadAllAvailable()


@pytest.fixture
def endpoint(make_stream: Make) -> Iterator[FakeEndpoint]:
    """A broker with a stream of two partitions: ten rows and five, all in the tail."""
    with FakeEndpoint(make_stream(partitions=2)) as running:
        running.write(numbered(10))
        running.write(numbered(5, partition=1))
        yield running


@pytest.fixture
def open_reader(endpoint: FakeEndpoint) -> Iterator[Callable[..., MqttcoreStreamReader]]:
    """A reader as a query has it: `open_reader(startingOffsets="earliest")`."""
    with contextlib.ExitStack() as stack:

        def open_with(**options: Any) -> MqttcoreStreamReader:  # noqa: ANN401 -- texts
            place = {} if "endpoint" in options else {"path": str(endpoint.stream.root)}
            reader = MqttcoreStreamReader(parse_options({**place, "columns": "offset", **options}))
            stack.callback(reader.stop)
            return reader

        yield open_with


Open = Callable[..., MqttcoreStreamReader]


def batch(
    reader: MqttcoreStreamReader,
    start: dict[str, Any],
    limit: Any = None,  # noqa: ANN401 -- any
) -> dict[str, Any]:
    """The end of the next batch, as it comes back from Spark's offset log."""
    end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, limit or ALL)))
    return end


def ends_of(offset: dict[str, Any]) -> dict[str, int]:
    """Where an offset ends in each partition."""
    return {key: end for key, end in offset.items() if key.isdigit()}


def as_in_a_worker(reader: MqttcoreStreamReader) -> MqttcoreStreamReader:
    """A copy that came through Spark."""
    copy: MqttcoreStreamReader = pickle.loads(pickle.dumps(reader))  # noqa: S301 -- our own
    return copy


def rows_of(
    reader: MqttcoreStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int]]:
    """Partition and offset of each row of a batch, read by a copy as a worker has it."""
    worker = as_in_a_worker(reader)
    found = []
    for task in reader.partitions(start, end):
        assert isinstance(task, Task)
        ranges = {one.partition for one in task.ranges}
        batches = list(worker.read(task))
        offsets = pa.concat_arrays([b.column(0) for b in batches]).to_pylist() if batches else []
        partition = ranges.pop() if len(ranges) == 1 else -1
        found += [(partition, offset) for offset in offsets]
    return found


def test_rule_1_the_beginning_is_a_constant_that_the_first_batch_pins(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader()
    first = reader.initialOffset()
    assert first == open_reader().initialOffset()

    end = batch(reader, first)
    endpoint.write(numbered(3, base=10))

    # "latest" was the end when the query began, not when the batch is planned or planned again
    places = {"0": 10, "1": 5, "from": {"0": 10, "1": 5}, "reads": ["#"], "stream": "plant"}
    assert end == {"epoch": endpoint.epoch, **places}
    assert rows_of(open_reader(), first, end) == []
    after = batch(open_reader(), end)
    assert rows_of(open_reader(), end, after) == [(0, 10), (0, 11), (0, 12)]


def test_rule_1_earliest_and_times_are_pinned_too(open_reader: Open) -> None:
    earliest = open_reader(startingOffsets="earliest")
    timed = open_reader(startingTimestamp=at(4))

    assert batch(earliest, earliest.initialOffset())["from"] == {"0": 0, "1": 0}
    assert batch(timed, timed.initialOffset())["from"] == {"0": 4, "1": 4}


def test_rule_2_an_end_that_falls_back_is_no_new_offset(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")
    end = batch(reader, reader.initialOffset())

    # nobody answers: only the files count, and there are none
    endpoint.close()

    assert batch(reader, end) == end


def test_rule_4_a_checkpoint_of_another_epoch_is_refused(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")
    first, end = reader.initialOffset(), batch(reader, reader.initialOffset())
    endpoint.epoch = f"{endpoint.epoch}9"

    with pytest.raises(StreamEpochError, match="the stream has epoch"):
        reader.latestOffset(end, ALL)
    with pytest.raises(StreamEpochError, match="the stream has epoch"):
        open_reader().partitions(first, end)


def test_a_stream_that_gets_no_new_rows_is_reported_once(
    endpoint: FakeEndpoint, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="mqttcore")
    reader = open_reader()
    end = batch(reader, reader.initialOffset())
    assert caplog.messages == []

    endpoint.is_configured = False
    for _ in range(3):
        assert batch(reader, end) == end

    assert caplog.messages == [
        "stream plant: the broker has it no more in its configuration, so it gets no new rows"
    ]


@pytest.mark.parametrize(
    ("start", "end", "partition"),
    [((4, 0), (3, 5), 0), ((0, 3), (3, 2), 1), ((9, 1), ("earliest", "latest"), 0)],
)
def test_a_batch_that_begins_behind_its_end_is_refused(
    endpoint: FakeEndpoint, start: tuple[Any, Any], end: tuple[Any, Any], partition: int
) -> None:
    def read(**places: tuple[Any, Any]) -> None:
        given = {name: json.dumps(dict(enumerate(place))) for name, place in places.items()}
        BatchReader(parse_options({"path": str(endpoint.stream.root), **given})).partitions()

    with pytest.raises(StreamRangeError, match=f"partition {partition} begins at offset"):
        read(startingOffsets=start, endingOffsets=end)
    read(startingOffsets=start, endingOffsets=start)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_rule_4_offsets_that_name_another_epoch_are_refused(
    endpoint: FakeEndpoint, open_reader: Open, option: str
) -> None:
    def begin() -> None:
        if option == "startingOffsets":
            batch(open_reader(**{option: place}), {"unresolved": True})
        else:
            given = {"path": str(endpoint.stream.root), option: place}
            BatchReader(parse_options(given)).partitions()

    reader = open_reader(startingOffsets="earliest")
    place = json.dumps(batch(reader, reader.initialOffset()))
    begin()

    endpoint.epoch = f"{endpoint.epoch}9"
    with pytest.raises(StreamEpochError, match=f"option {option} is of epoch .*has epoch .*9"):
        begin()


def test_rule_5_a_range_that_was_sealed_meanwhile_is_read_from_its_file(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")
    first = reader.initialOffset()
    end = batch(reader, first)
    (task,) = reader.partitions(first, end)
    endpoint.seal()
    endpoint.write(numbered(5, base=10))

    batches = list(as_in_a_worker(reader).read(task))

    assert sum(one.num_rows for one in batches) == 15


def test_rule_5_half_in_a_file_and_half_in_the_tail_is_each_row_once(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets='{"0": 7, "1": "latest"}')
    endpoint.seal()
    endpoint.write(numbered(4, base=10))
    first = reader.initialOffset()

    assert rows_of(reader, first, batch(reader, first)) == [(0, n) for n in range(7, 14)]


def test_rule_5_rows_that_the_broker_lost_are_an_error_that_names_them(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")
    first = reader.initialOffset()
    end = batch(reader, first)
    (task,) = reader.partitions(first, end)
    endpoint.tails[0].clear()
    endpoint.write(numbered(8))

    with pytest.raises(StreamRangeError, match=r"partition 0, offsets 0 to 10 .* beyond"):
        list(reader.read(task))


def test_rule_6_the_hold_is_placed_before_the_first_batch_and_follows_commits(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets='{"0": 3, "1": 1}', consumer="query")
    end = batch(reader, reader.initialOffset(), limits.ReadMaxRows(4))

    assert endpoint.holds == {"query": [3, 1]}

    reader.commit(end)
    assert endpoint.holds == {"query": list(ends_of(end).values())}
    batch(reader, end)
    assert endpoint.holds == {"query": list(ends_of(end).values())}


def test_rule_6_a_query_that_is_started_again_renews_its_hold(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    batch(open_reader(consumer="query"), {"epoch": endpoint.epoch, "0": 2, "1": 4})

    assert endpoint.holds == {"query": [2, 4]}


def test_without_a_consumer_nothing_is_held(endpoint: FakeEndpoint, open_reader: Open) -> None:
    reader = open_reader()
    reader.commit(batch(reader, reader.initialOffset()))

    assert endpoint.holds == {}


def test_rule_7_rows_that_retention_took_from_a_stopped_query_are_named(
    endpoint: FakeEndpoint, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.seal()
    stopped_at = {"epoch": endpoint.epoch, "0": 2, "1": 5}
    endpoint.earliest = [6, 0]

    with pytest.raises(StreamRangeError, match=r"partition 0, offsets 2 to 6 .* are deleted"):
        batch(open_reader(), stopped_at)

    careless = open_reader(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = batch(careless, stopped_at)
        assert rows_of(careless, stopped_at, end) == [(0, n) for n in range(6, 10)]
    assert "offsets 2 to 6 (exclusive) are deleted" in caplog.text
    assert "at most once" in caplog.text


def test_rule_10_what_comes_after_the_start_is_for_the_next_run(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest", maxRowsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    endpoint.write(numbered(90, base=10))
    limit = reader.getDefaultReadLimit()

    ends = [reader.initialOffset()]
    while len(ends) < 3 or ends[-1] != ends[-2]:
        ends.append(batch(reader, ends[-1], limit))

    assert (
        ends[-2:]
        == [{"epoch": endpoint.epoch, "0": 10, "1": 5, "reads": ["#"], "stream": "plant"}] * 2
    )
    assert len(ends) == 5  # the beginning, 6, 12, 15 rows, and nothing new


def test_rule_10_available_now_does_not_wait_for_more_rows(open_reader: Open) -> None:
    reader = open_reader(startingOffsets="earliest", minRowsPerTrigger="1000")
    waiting = batch(reader, reader.initialOffset(), reader.getDefaultReadLimit())
    assert ends_of(waiting) == waiting["from"]

    reader.prepareForTriggerAvailableNow()
    end = batch(reader, waiting, reader.getDefaultReadLimit())

    assert (end["0"], end["1"]) == (10, 5)


def test_a_batch_is_limited_by_the_lag_of_each_partition(open_reader: Open) -> None:
    reader = open_reader(startingOffsets="earliest", maxRowsPerTrigger="6")

    end = batch(reader, reader.initialOffset(), reader.getDefaultReadLimit())

    assert ends_of(end) == {"0": 4, "1": 2}


def test_a_batch_after_a_slow_one_has_fewer_rows(
    open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.spark.admission.FEW_ROWS", 2)
    now_s = iter((0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 42.0, 42.0))
    monkeypatch.setattr("mqttcore.spark.streaming.monotonic", lambda: next(now_s))
    reader = open_reader(startingOffsets="earliest", targetBatchTime="20s")
    limit = reader.getDefaultReadLimit()

    ends = [reader.initialOffset()]
    for _ in range(4):
        ends.append(batch(reader, ends[-1], limit))

    counts = [sum(ends_of(end).values()) for end in ends]
    assert [after - before for before, after in pairwise(counts)] == [2, 4, 8, 1]
    assert reader.admission.pace is not None
    assert reader.admission.pace.rows == 4


def test_spark_overrules_the_limits_when_it_wants_all(open_reader: Open) -> None:
    reader = open_reader(startingOffsets="earliest", maxRowsPerTrigger="6")

    assert ends_of(batch(reader, reader.initialOffset(), ALL)) == {"0": 10, "1": 5}


def test_a_spark_that_says_nothing_gets_the_offsets_after_the_last_ones(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")

    first = reader.latestOffset()
    assert reader.latestOffset() == first
    endpoint.write(numbered(1, base=10))

    told = {"epoch": endpoint.epoch, "reads": ["#"], "stream": "plant"}
    assert reader.latestOffset() == {"0": 11, "1": 5, **told}
    assert list(rows_of(reader, first, reader.latestOffset())) == [(0, 10)]


def test_the_end_of_the_stream_is_reported(open_reader: Open, endpoint: FakeEndpoint) -> None:
    reader = open_reader(startingOffsets="earliest", maxRowsPerTrigger="1")
    assert reader.reportLatestOffset() is None

    batch(reader, reader.initialOffset(), reader.getDefaultReadLimit())

    told = {"epoch": endpoint.epoch, "stream": "plant"}
    assert reader.reportLatestOffset() == {"0": 10, "1": 5, **told}


def test_a_task_waits_for_a_broker_that_is_away(
    endpoint: FakeEndpoint, open_reader: Open, patience: SimulatedTime
) -> None:
    reader = open_reader(startingOffsets="earliest")
    first = reader.initialOffset()
    (task,) = reader.partitions(first, batch(reader, first))
    endpoint.close()
    waits = comes_back(endpoint, patience)

    assert sum(one.num_rows for one in reader.read(task)) == 15
    assert waits == [0.05, 0.1, 0.2]


def comes_back(endpoint: FakeEndpoint, patience: SimulatedTime) -> list[float]:
    """Has a broker that is away come back in the third wait; answers with the waits."""

    def come_back() -> None:
        if len(patience.waits) == 3:
            endpoint.open()

    patience.meanwhile = come_back
    return patience.waits


@pytest.fixture
def far(endpoint: FakeEndpoint, open_reader: Open) -> MqttcoreStreamReader:
    """A reader that has nothing but the endpoint."""
    return open_reader(
        endpoint=f"unix:{endpoint.path}",
        stream="plant",
        files="endpoint",
        startingOffsets="earliest",
        maxBytesPerTrigger="1g",
    )


ENDS = {"0": 10, "1": 5}


@pytest.mark.parametrize("limit", [ALL, limits.ReadMaxBytes(1 << 30)], ids=["all", "bytes"])
@pytest.mark.parametrize("start", [{"unresolved": True}, {"0": 2, "1": 5}], ids=["first", "later"])
def test_a_query_without_a_folder_waits_for_its_broker_before_each_batch(
    far: MqttcoreStreamReader,
    endpoint: FakeEndpoint,
    patience: SimulatedTime,
    caplog: pytest.LogCaptureFixture,
    start: dict[str, Any],
    limit: Any,  # noqa: ANN401 -- Spark's
) -> None:
    endpoint.seal()
    endpoint.close()
    waits = comes_back(endpoint, patience)
    start = start if "unresolved" in start else {**start, "epoch": endpoint.epoch}

    end = batch(far, start, limit)

    assert {key: end[key] for key in ENDS} == ENDS
    assert waits == [0.05, 0.1, 0.2]
    assert "waiting for stream plant, 300 s at most: unix:" in caplog.text


def test_a_broker_that_was_away_does_not_make_a_batch_slow(
    endpoint: FakeEndpoint,
    open_reader: Open,
    patience: SimulatedTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqttcore.spark.admission.FEW_ROWS", 2)
    monkeypatch.setattr("mqttcore.spark.streaming.monotonic", patience.monotonic)
    reader = open_reader(
        endpoint=f"unix:{endpoint.path}",
        stream="plant",
        files="endpoint",
        startingOffsets="earliest",
        targetBatchTime="100ms",
    )
    first = batch(reader, reader.initialOffset(), reader.getDefaultReadLimit())
    endpoint.close()
    comes_back(endpoint, patience)

    end = batch(reader, first, reader.getDefaultReadLimit())

    assert sum(patience.waits) > 0.3  # a batch that took so long would have too many rows
    assert sum(ends_of(end).values()) == 6


def test_a_query_without_a_folder_waits_when_it_is_started_again(
    far: MqttcoreStreamReader, endpoint: FakeEndpoint, patience: SimulatedTime
) -> None:
    end = batch(far, far.initialOffset())
    again = as_in_a_worker(far)
    again.seen = None
    endpoint.close()
    waits = comes_back(endpoint, patience)
    (task,) = again.partitions(far.initialOffset(), end)
    endpoint.close()
    waits.clear()

    assert sum(one.num_rows for one in again.read(task)) == 15
    assert waits == [0.05, 0.1, 0.2]

    endpoint.close()
    waits.clear()
    again.prepareForTriggerAvailableNow()
    assert again.target == (10, 5)
    again.stop()


def test_a_task_without_a_folder_waits_for_the_list_of_files(
    far: MqttcoreStreamReader, endpoint: FakeEndpoint, patience: SimulatedTime
) -> None:
    endpoint.seal()
    endpoint.close()
    waits = comes_back(endpoint, patience)
    rows = RowReader(log=far.log, options=far.options, topic=None)

    assert rows.sealed_end(OffsetRange(0, 3, 4)) == 10
    assert waits == [0.05, 0.1, 0.2]


def test_a_broker_that_was_never_there_is_not_waited_for(
    endpoint: FakeEndpoint, patience: SimulatedTime
) -> None:
    endpoint.close()
    waits = comes_back(endpoint, patience)

    for files in ("auto", "endpoint"):
        given = {"endpoint": f"unix:{endpoint.path}", "stream": "plant", "files": files}
        with pytest.raises(EndpointUnreachableError, match=r"endpoint\.sock"):
            MqttcoreDataSource(given).schema()

    assert waits == []


@pytest.mark.parametrize(
    ("given", "patient"),
    [
        ({}, False),
        ({"endpoint": "http://localhost:1"}, False),
        ({"endpoint": "http://broker:1"}, True),
    ],
)
def test_a_worker_without_the_folder_waits_for_a_broker_that_may_come_back(
    endpoint: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    patience: SimulatedTime,
    given: dict[str, str],
    patient: bool,
) -> None:
    def away(_: StreamClient, name: str) -> StreamInfo:
        raise EndpointUnreachableError(f"nobody has {name}")

    log = open_log(parse_options({"path": str(endpoint.stream.root), "stream": "plant", **given}))
    endpoint.stream.root.rename(endpoint.stream.root.with_name("elsewhere"))
    monkeypatch.setattr(StreamClient, "stream", away)

    with pytest.raises(StreamFolderError, match=r"mount the broker's data folder"):
        log.on_this_machine()

    assert bool(patience.waits) == patient


def test_a_broker_that_sealed_its_tail_and_went_is_not_waited_for(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    reader = open_reader(startingOffsets="earliest")
    first = reader.initialOffset()
    (task,) = reader.partitions(first, batch(reader, first))
    endpoint.seal()
    endpoint.close()

    assert sum(one.num_rows for one in reader.read(task)) == 15


def test_only_an_endpoint_is_enough_where_its_folder_can_be_seen(
    endpoint: FakeEndpoint, open_reader: Open
) -> None:
    endpoint.seal()
    reader = open_reader(
        endpoint=f"unix:{endpoint.path}", stream="plant", startingOffsets="earliest"
    )
    first = reader.initialOffset()

    assert len(rows_of(reader, first, batch(reader, first))) == 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets and endingTimestamp are for batches"),
        ({"startingOffsets": '{"0": 1}'}, "startingOffsets: names partitions 0"),
    ],
)
def test_options_that_a_stream_cannot_have_are_named(
    open_reader: Open, options: dict[str, str], words: str
) -> None:
    with pytest.raises(StreamOptionError, match=words):
        batch(open_reader(**options), {"unresolved": True})


def test_a_beginning_behind_the_end_is_refused(open_reader: Open) -> None:
    with pytest.raises(StreamRangeError, match="partition 0 ends at 10, offsets up to 11"):
        batch(open_reader(startingOffsets='{"0": 11, "1": 0}'), {"unresolved": True})


def sparkplug(kind: str, value: float, offset: int) -> pa.Table:
    """A row with the metric ``temp``, which only a BIRTH calls so."""
    name = b"\x0a\x04temp" if kind == "NBIRTH" else b""
    # a metric (field 2): name (1), alias (2), datatype Double (4) and double_value (13), by hand
    metric = name + b"\x10\x05\x20\x0a\x69" + struct.pack("<d", value)
    payload = b"\x12" + bytes([len(metric)]) + metric
    return rows([{"topic": f"spBv1.0/g/{kind}/e", "payload": payload}], base=offset)


@pytest.mark.parametrize("files", ["folder", "retained"])
def test_aliases_are_known_in_every_task_behind_their_birth(make_stream: Make, files: str) -> None:
    stream = make_stream()
    stream.seal(sparkplug("NBIRTH", 0.5, 0))
    stream.seal(sparkplug("NDATA", 1.5, 1))
    stream.seal(pa.concat_tables([sparkplug("NDATA", n + 0.5, n) for n in range(2, 8)]))
    if files == "retained":
        stream.write_index([stream.index()[0][2:]])
    reader = MqttcoreStreamReader(
        parse_options(
            {
                "path": str(stream.root),
                "startingOffsets": '{"0": 3}',
                "minPartitions": "3",
                "decode": "sparkplug",
                "payloadSchema": "temp DOUBLE",
                "columns": "temp",
            }
        )
    )

    first = reader.initialOffset()
    tasks = reader.partitions(first, batch(reader, first))
    found = [
        [value for one in reader.read(task) for value in one.column(0).to_pylist()]
        for task in tasks
    ]
    reader.stop()

    assert found == [[3.5], [4.5, 5.5], [6.5, 7.5]]


def test_aliases_of_sparkplug_go_from_one_file_to_the_next_and_into_the_tail(
    make_stream: Make,
) -> None:
    with FakeEndpoint(make_stream()) as endpoint:
        endpoint.write(sparkplug("NBIRTH", 21.5, 0))
        endpoint.write(sparkplug("NDATA", 22.5, 1))
        endpoint.seal()
        endpoint.write(sparkplug("NDATA", 22.5, 2))
        reader = MqttcoreStreamReader(
            parse_options(
                {
                    "path": str(endpoint.stream.root),
                    "startingOffsets": "earliest",
                    "decode": "sparkplug",
                    "payloadSchema": "temp DOUBLE",
                    "columns": "temp",
                }
            )
        )
        first = reader.initialOffset()
        (task,) = reader.partitions(first, batch(reader, first))
        found = [value for one in reader.read(task) for value in one.column(0).to_pylist()]
        reader.stop()

    assert found == [21.5, 22.5, 22.5]
