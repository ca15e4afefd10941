"""Offsets, ranges and limits: the arithmetic of the source, without Spark."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mqttcore.errors import StreamEpochError, StreamOptionError
from mqttcore.spark.admission import FEW_ROWS, Admission, Pace, limited
from mqttcore.spark.offsets import (
    UNRESOLVED,
    SourceOffset,
    advanced,
    lag,
    lag_rows,
    split_start,
)
from mqttcore.spark.planner import OffsetRange, plan, ranges_between, task_count
from mqttcore.spark.positions import AtOffsets, parse_position

EPOCH = "8c2e:3"
spans = st.lists(
    st.tuples(st.integers(0, 2**40), st.integers(0, 3_000_000)), min_size=1, max_size=12
)


def places(spans_: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where each partition begins and ends."""
    return tuple(first for first, _ in spans_), tuple(first + rows for first, rows in spans_)


@given(spans, st.integers(1, 40))
def test_each_row_is_in_exactly_one_task(spans_: list[tuple[int, int]], tasks: int) -> None:
    start, end = places(spans_)

    planned = plan(ranges_between(start, end), tasks)

    pieces = [piece for task in planned for piece in task]
    for partition, (first, last) in enumerate(zip(start, end, strict=True)):
        mine = [piece for piece in pieces if piece.partition == partition]
        assert [first, *(piece.end for piece in mine)] == [*(p.start for p in mine), last]
        assert all(piece.rows > 0 for piece in mine)
    assert len(planned) <= tasks


@given(spans, st.integers(1, 40))
def test_tasks_are_of_one_size(spans_: list[tuple[int, int]], tasks: int) -> None:
    planned = plan(ranges_between(*places(spans_)), tasks)

    sizes = [sum(piece.rows for piece in task) for task in planned]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_big_ranges_are_split_and_small_ones_packed() -> None:
    planned = plan([OffsetRange(0, 0, 900), OffsetRange(1, 50, 100), OffsetRange(2, 0, 50)], 2)

    assert planned == [
        (OffsetRange(0, 0, 500),),
        (OffsetRange(0, 500, 900), OffsetRange(1, 50, 100), OffsetRange(2, 0, 50)),
    ]


def test_nothing_to_read_is_no_task() -> None:
    assert plan(ranges_between((3, 4), (3, 4)), 5) == []


@pytest.mark.parametrize(
    ("rows", "cores", "least", "tasks"),
    [
        (0, 8, None, 1),
        (400, 8, None, 1),
        (600_000, 8, None, 2),
        (2_000_000, 2, None, 4),  # no task of more than half a million rows
        (8_000_000, 8, None, 16),
        (100, 8, 3, 3),
        (2, 8, 5, 2),  # a task without rows serves nobody
    ],
)
def test_tasks_are_as_many_as_the_rows_are_worth(
    rows: int, cores: int, least: int | None, tasks: int
) -> None:
    assert task_count(rows, cores=cores, min_partitions=least, max_rows_per_task=500_000) == tasks


@given(spans, st.integers(1, 4_000_000))
def test_a_limited_batch_takes_exactly_what_it_may(
    spans_: list[tuple[int, int]], max_rows: int
) -> None:
    start, end = places(spans_)

    taken = limited(start, end, max_rows)

    assert lag_rows(start, taken) == min(max_rows, lag_rows(start, end))
    assert all(a <= b <= c for a, b, c in zip(start, taken, end, strict=True))


def test_shares_are_proportional_to_the_lag() -> None:
    assert limited((0, 100, 7), (9_000, 1_100, 7), 1_000) == (899, 201, 7)


@given(spans, st.integers(1, 4_000_000))
def test_a_limited_batch_has_a_row_of_each_partition_in_which_rows_wait(
    spans_: list[tuple[int, int]], max_rows: int
) -> None:
    start, end = places(spans_)
    waiting = sum(first < last for first, last in zip(start, end, strict=True))
    assume(max_rows >= waiting)

    taken = limited(start, end, max_rows)

    moved = sum(first < last for first, last in zip(start, taken, strict=True))
    assert moved == waiting


@given(spans, st.integers(1, 1_000_000))
def test_batches_one_after_the_other_read_everything(
    spans_: list[tuple[int, int]], max_rows: int
) -> None:
    start, end = places(spans_)
    batches = [start]
    while batches[-1] != end and len(batches) < 200:
        batches.append(limited(batches[-1], end, max_rows))

    assert all(lag_rows(a, b) > 0 for a, b in pairwise(batches))
    assert batches[-1] == end or len(batches) == 200


def admission(**changes: Any) -> Admission:  # noqa: ANN401 -- fields of the dataclass
    return Admission(
        **{"max_rows": None, "max_bytes": None, "min_rows": None, "max_delay_s": 10.0, **changes}
    )


def test_the_smaller_limit_holds() -> None:
    both = admission(max_rows=100, max_bytes=1000)

    assert both.end((0,), (500,), row_bytes=20.0, now_s=0) == (50,)
    assert both.end((0,), (500,), row_bytes=2.0, now_s=0) == (100,)


def test_a_row_larger_than_the_limit_is_taken_alone() -> None:
    assert admission(max_bytes=10).end((0,), (500,), row_bytes=1e6, now_s=0) == (1,)


def test_too_few_rows_wait_for_more_but_not_for_ever() -> None:
    patient = admission(min_rows=100)

    assert patient.end((0,), (99,), row_bytes=1.0, now_s=5.0) == (0,)
    assert patient.end((0,), (99,), row_bytes=1.0, now_s=14.9) == (0,)
    assert patient.end((0,), (99,), row_bytes=1.0, now_s=15.0) == (99,)
    assert patient.end((99,), (199,), row_bytes=1.0, now_s=15.1) == (199,)
    assert patient.end((199,), (200,), row_bytes=1.0, now_s=90.0) == (199,)


@pytest.mark.parametrize(
    ("took_s", "rows"),
    [
        ((), FEW_ROWS),
        ((10.0,), 2 * FEW_ROWS),
        ((16.0,), FEW_ROWS * 5 // 4),
        ((1.0, 1.0), 4 * FEW_ROWS),
        ((1.0, 1.0, 1.0, 1.0, 1.0), 1_000_000),
        ((1.0, 1.0, 1.0, 25.0), 8 * FEW_ROWS * 4 // 5),
        ((1.0, 1.0, 1.0, 400.0), 4 * FEW_ROWS),
        ((400.0,), FEW_ROWS),
    ],
    ids=["first", "quick", "a little quick", "twice", "most", "slow", "very slow", "least"],
)
def test_the_rows_of_a_batch_follow_the_time_of_the_one_before(
    took_s: tuple[float, ...], rows: int
) -> None:
    pace, now_s = Pace(20.0, 1_000_000), 0.0

    for batch_s in took_s:
        pace.begin(pace.rows, 10**7, now_s)
        now_s += batch_s
        pace.end(now_s)
        pace.adjust(10**7)

    assert pace.rows == rows


def test_a_quick_batch_of_few_rows_shows_nothing_about_many() -> None:
    pace = Pace(20.0)
    pace.begin(FEW_ROWS - 1, FEW_ROWS - 1, 0.0)
    pace.end(1.0)
    pace.adjust(FEW_ROWS)

    assert pace.rows == FEW_ROWS


def test_a_query_that_falls_behind_gets_larger_batches_also_if_they_are_slow() -> None:
    pace = Pace(20.0, 5 * FEW_ROWS)
    for waiting in (10**6, 2 * 10**6, 3 * 10**6):
        pace.adjust(waiting)
        pace.begin(pace.rows, waiting, 0.0)
        pace.end(60.0)
    assert pace.rows == 4 * FEW_ROWS

    pace.adjust(4 * 10**6)
    assert pace.rows == 5 * FEW_ROWS

    pace.begin(pace.rows, 4 * 10**6, 0.0)
    pace.end(60.0)
    pace.adjust(4 * 10**6)
    assert pace.rows == 5 * FEW_ROWS // 2


def test_the_time_of_a_batch_ends_with_the_first_question_after_it() -> None:
    patient = admission(min_rows=10, pace=Pace(20.0))
    taken = patient.end((0,), (FEW_ROWS * 9,), row_bytes=1.0, now_s=0)
    patient.batch_ended(10.0)
    assert patient.end((0,), (9,), row_bytes=1.0, now_s=10.0) == (0,)
    patient.batch_ended(500.0)
    patient.end(taken, (FEW_ROWS * 9,), row_bytes=1.0, now_s=500.0)

    assert patient.pace is not None
    assert patient.pace.rows == 2 * FEW_ROWS


def test_a_wait_without_rows_is_no_batch() -> None:
    pace = Pace(20.0)
    for _ in range(2):
        pace.begin(pace.rows, 10**7, 0.0)
        pace.end(1.0)
        pace.adjust(0)
    pace.begin(0, 0, 1.0)
    pace.end(3600.0)
    pace.adjust(10**7)

    assert pace.rows == 4 * FEW_ROWS


def test_a_limit_that_somebody_chose_below_the_least_of_a_pace_stays() -> None:
    pace = Pace(20.0, 300)
    pace.begin(300, 10**7, 0.0)
    pace.end(0.1)
    pace.adjust(10**7)

    assert pace.rows == 300


def test_a_pace_limits_batches_as_other_limits_do() -> None:
    paced = admission(max_bytes=1_000_000, pace=Pace(20.0))

    assert paced.end((0,), (FEW_ROWS * 9,), row_bytes=1.0, now_s=0) == (FEW_ROWS,)
    paced.batch_ended(10.0)
    assert paced.end((0,), (FEW_ROWS * 9,), row_bytes=1.0, now_s=10) == (2 * FEW_ROWS,)
    assert paced.end((0,), (FEW_ROWS * 9,), row_bytes=2e4, now_s=10) == (50,)


def test_the_same_offset_is_the_same_text() -> None:
    ends = tuple(range(12))
    one = SourceOffset(epoch=EPOCH, ends=ends)

    text = json.dumps(one.to_dict())

    assert list(json.loads(text)) == [*sorted(map(str, range(12))), "epoch"]
    again = SourceOffset.parse(json.loads(text))
    assert again == one
    assert again is not None
    assert json.dumps(again.to_dict()) == text


def test_the_first_batch_says_where_it_began() -> None:
    first = SourceOffset(epoch=EPOCH, starts=(3, 4), ends=(10, 4)).to_dict()
    second = SourceOffset(epoch=EPOCH, ends=(12, 5)).to_dict()

    assert split_start(UNRESOLVED, first)[1] == (3, 4)
    assert split_start(first, second)[1] == (10, 4)


def test_a_first_batch_of_an_earlier_version_is_understood() -> None:
    first = {"epoch": EPOCH, "from": {"0": 3, "1": 4}, "reads": ["a/#"], "to": {"0": 10, "1": 4}}

    offset, begin = split_start(UNRESOLVED, first)

    assert (offset.ends, begin, offset.reads) == ((10, 4), (3, 4), ("a/#",))
    assert parse_position(json.dumps(first)) == AtOffsets({0: 10, 1: 4}, EPOCH)


def test_progress_has_the_lag_of_each_stream_under_the_names_of_kafka() -> None:
    end = SourceOffset(epoch=EPOCH, starts=(0, 0), ends=(3, 4), stream="plant").to_dict()
    latest = SourceOffset(epoch=EPOCH, ends=(10, 5), stream="plant").to_dict()
    sources = [
        {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)},
        {"endOffset": '{"topic":{"0":1}}', "latestOffset": '{"topic":{"0":1}}'},
        {"endOffset": None, "latestOffset": None},
    ]

    assert lag({"sources": sources}) == [
        {
            "stream": "plant",
            "minOffsetsBehindLatest": 1,
            "maxOffsetsBehindLatest": 7,
            "avgOffsetsBehindLatest": 4.0,
        }
    ]


def test_a_batch_begins_where_the_one_before_ended_also_if_its_end_says_where_the_query_began() -> (
    None
):
    first = SourceOffset(epoch=EPOCH, starts=(3,), ends=(10,)).to_dict()
    again = SourceOffset(epoch=EPOCH, starts=(3,), ends=(12,)).to_dict()

    assert split_start(first, again)[1] == (10,)


@pytest.mark.parametrize("starts", [None, (3,)])
def test_what_a_query_takes_in_stands_in_its_offsets(starts: tuple[int, ...] | None) -> None:
    offset = SourceOffset(epoch=EPOCH, starts=starts, ends=(10,), reads=("a/#", "b"))

    again = SourceOffset.parse(offset.to_dict())

    assert again is not None
    assert (again, again.reads) == (offset, ("a/#", "b"))
    assert again == SourceOffset(epoch=EPOCH, starts=starts, ends=(10,))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"0": 1},
        {"epoch": "x"},
        {"epoch": "x", "1": 3},
        {"epoch": "x", "0": "3"},
        {"epoch": "x", "0": -1},
        {"epoch": "x", "0": True},
        {"epoch": "x", "from": {"0": -1}, "to": {"0": 3}},
    ],
)
def test_a_checkpoint_of_another_source_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(StreamOptionError, match="checkpoint"):
        SourceOffset.parse(value)


def test_a_first_batch_without_beginning_is_refused() -> None:
    with pytest.raises(StreamOptionError, match="no start"):
        split_start(UNRESOLVED, {"epoch": EPOCH, "0": 4})


def test_rule_2_offsets_never_go_back() -> None:
    assert advanced((10, 5), (8, 6)) == (10, 6)
    assert lag_rows((10, 5), (8, 6)) == 1


def test_rule_4_offsets_of_another_epoch_are_refused() -> None:
    offset = SourceOffset(epoch="8c2e:3", ends=(1,))

    offset.check_epoch("8c2e:3", "plant")
    with pytest.raises(StreamEpochError, match=r"plant.*8c2e:3.*8c2e:4"):
        offset.check_epoch("8c2e:4", "plant")


def test_offsets_of_another_number_of_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        advanced((1,), (1, 2))
    with pytest.raises(ValueError, match="longer"):
        lag_rows((1,), (1, 2))


def test_a_batch_that_ends_nowhere_is_refused() -> None:
    with pytest.raises(
        StreamOptionError, match="a batch ends at an offset that does not exist yet"
    ):
        split_start(UNRESOLVED, UNRESOLVED)
