"""`make soak-pipeline` in small, and what it makes of samples and files."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.crash.process import ServerProcess
from tests.marks import NIGHTLY
from tests.pipeline.machines import Crowd
from tests.pipeline.soak import (
    Sample,
    begin_of,
    judged,
    keep_of,
    levels_off,
    parser,
    plot,
    rate_of,
    sizes_of_version,
    soak,
    summary,
)

FIRST = Sample(
    at_s=0.0,
    messages=10,
    stream_files=2,
    stream_bytes=100,
    stream_disk_files=2,
    stream_disk_bytes=100,
    table_files=0,
    table_bytes=0,
    disk_files=0,
    disk_bytes=0,
    lag_messages=10,
    lag_s=0.0,
    broker_bytes=1,
)


def test_a_summary_has_both_ends_and_the_most_between() -> None:
    middle = dataclasses.replace(FIRST, at_s=60.0, stream_files=9, lag_messages=70)
    last = dataclasses.replace(FIRST, at_s=120.0, stream_files=3, lag_messages=0)

    found = summary([FIRST, middle, last], rate=5)

    assert (found["first"]["lag_messages"], found["last"]["lag_messages"]) == (10, 0)
    assert (found["most"]["stream_files"], found["most"]["lag_messages"]) == (9, 70)
    assert found["rate"] == 5


@pytest.mark.parametrize(
    ("files", "is_level"),
    [
        ((2, 20, 40, 41, 12, 40, 44, 13, 42), True),
        ((2, 10, 20, 30, 40, 50, 60, 70, 80), False),
        ((0, 0, 1, 2, 3, 4, 5, 6, 7), True),
    ],
    ids=["merged", "never merged", "a few"],
)
def test_files_level_off_when_the_last_third_has_no_more(
    files: tuple[int, ...], is_level: bool
) -> None:
    assert levels_off(files, 4) is is_level


def healthy(number: int) -> Sample:
    """Every five seconds of a run with 1,000 messages a second."""
    return dataclasses.replace(
        FIRST,
        at_s=5.0 * number,
        messages=300_000 + 5_000 * number,
        stream_files=min(40, 4 * number) + number % 3,
        stream_bytes=min(50_000_000, 8_000_000 * number),
        stream_disk_files=8 * number,
        table_files=8 * number,
        table_bytes=1_000_000 * number,
        lag_messages=max(2_000, 300_000 - 50_000 * number) + (20_000 if number == 24 else 0),
    )


Spoil = Callable[[int, Sample], Sample]


@pytest.mark.parametrize(
    ("spoil", "failed"),
    [
        (lambda _, sample: sample, []),
        (lambda n, sample: dataclasses.replace(sample, messages=4_000 * n), ["rate"]),
        (lambda n, sample: dataclasses.replace(sample, stream_files=4 * n), ["stream files"]),
        (lambda n, sample: dataclasses.replace(sample, stream_bytes=9**6 * n), ["stream bytes"]),
        (lambda n, sample: dataclasses.replace(sample, lag_messages=1_000 * n), ["lag"]),
        (lambda n, sample: dataclasses.replace(sample, table_files=40 * n), ["table files"]),
    ],
    ids=["healthy", "rate", "files", "bytes", "lag", "tables"],
)
def test_a_run_is_judged_by_its_samples(spoil: Spoil, failed: list[str]) -> None:
    during = [spoil(number, healthy(number)) for number in range(30)]
    last = dataclasses.replace(during[-1], at_s=200.0, lag_messages=0)

    found = judged([*during, last], 1_000)

    assert [name for name, is_so in found.items() if not is_so] == failed


def test_what_retention_removed_before_the_first_batch_is_not_awaited(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    first = '{"0": 9, "1": 7, "epoch": "e:1", "from": {"0": 5, "1": 6}}'
    (tmp_path / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{first}')

    assert begin_of(tmp_path) == {"0": 5, "1": 6}


def test_messages_that_are_left_and_too_few_samples_are_not_passed_over() -> None:
    during = [healthy(number) for number in range(30)]

    assert judged(during, 1_000)["all read"] is False
    assert judged(during[:6], 1_000) == {"samples": False}


def test_retention_is_in_use_before_the_second_third_of_a_run() -> None:
    def kept(*given: str) -> int:
        return keep_of(parser().parse_args([*given]))

    assert kept("--rate", "16000", "--seconds", "3600") == 115_200_000
    assert kept() == 1 << 20
    assert kept("--keep", "7") == 7


def test_a_crowd_reports_at_its_rate_over_one_connection(tmp_path: Path) -> None:
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    crowd = Crowd(server, rate=500)
    began = time.monotonic()
    crowd.start()
    try:
        while crowd.stored < 500:
            assert time.monotonic() < began + 60
            crowd.stopping.wait(0.02)
        took_s = time.monotonic() - began
    finally:
        crowd.end()
        server.stop()

    assert crowd.connections == 1
    assert took_s > 0.9


def test_the_rate_is_that_of_the_time_in_which_machines_report() -> None:
    times = ((0.0, 10), (5.0, 510), (10.0, 1_010), (70.0, 1_020))
    samples = [dataclasses.replace(FIRST, at_s=at_s, messages=count) for at_s, count in times]

    assert rate_of(samples) == 100
    assert rate_of(samples[:1]) == 0


def test_samples_become_a_picture(tmp_path: Path) -> None:
    plot([FIRST, dataclasses.replace(FIRST, at_s=60.0)], tmp_path / "soak.png")

    picture = (tmp_path / "soak.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert [int.from_bytes(picture[at : at + 4]) for at in (16, 20)] == [900, 900]


def test_files_of_old_versions_are_not_counted(tmp_path: Path) -> None:
    rows = pa.table({"number": [1, 2, 3]})
    assert sizes_of_version(tmp_path / "load") == []
    for _ in range(3):
        deltalake.write_deltalake(tmp_path / "load", rows, mode="append")
    assert len(sizes_of_version(tmp_path / "load")) == 3

    deltalake.DeltaTable(tmp_path / "load").optimize.compact()

    [size] = sizes_of_version(tmp_path / "load")
    assert size > 0
    assert len(list((tmp_path / "load").glob("*.parquet"))) == 4


@NIGHTLY
@pytest.mark.timeout(900)
def test_a_small_soak_reads_all_that_was_published(tmp_path: Path) -> None:
    samples: list[Sample] = []
    soak(tmp_path, parser().parse_args(["--seconds", "20"]), samples)

    assert samples[-1].lag_messages == 0
    assert samples[-1].messages > 500
    assert samples[-1].table_files > 0
