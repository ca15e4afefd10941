"""`mqttcore bench`."""

from __future__ import annotations

import json

import pytest
from mqttcore.cli import bench, load
from mqttcore.cli.histogram import Histogram

from tests.cli.conftest import Run
from tests.conftest import RunningBroker


def test_percentiles_are_within_two_percent() -> None:
    times = Histogram()
    for number in range(1, 10_001):
        times.add(number * 1_000)

    for percent in (50, 90, 99, 99.9):
        exact = percent * 100 * 1_000
        assert exact <= times.percentile_ns(percent) <= exact * 1.02
    assert times.percentile_ns(100) == times.maximum_ns == 10_000_000
    assert Histogram().percentile_ns(99) == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_rate_is_sent_on_schedule(run: Run, broker: RunningBroker, qos: int) -> None:
    options = ("--rate", 500, "--seconds", "0.2", "--pairs", 3, "-q", qos, "--json")
    done = run("bench", "-p", broker.port, *options)

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["sent"], found["received"], found["lost"]) == (100, 100, 0)
    assert found["latency_from"] == "due"
    assert 0 < found["service_time"]["p50_ms"] <= found["latency"]["p50_ms"]
    assert found["latency"]["p50_ms"] <= found["latency"]["max_ms"]


def test_without_a_rate_the_messages_in_flight_limit_it_and_the_text_says_so(
    run: Run, broker: RunningBroker
) -> None:
    done = run("bench", "-p", broker.port, "--seconds", "0.1", "--window", 2, "-V", "311")

    assert done.status == 0
    assert "lost 0" in done.out
    assert "Publishers waited for their subscribers" in done.out


def test_long_runs_tell_how_far_they_are(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "PROGRESS_NS", 1)
    monkeypatch.setattr(bench, "SHORT_S", 0.0)
    done = run("bench", "-p", broker.port, "--rate", 100, "--seconds", "0.1")

    assert "s: sent " in done.error
    assert done.status == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--size", "8"), "--size is 16 or more"),
        (("--rate", "-1"), "--rate and --seconds are above 0"),
        (("-i", "me"), "-i, -I and -c are for one client"),
        (("--pairs", "0"), "must be 1 or more"),
    ],
)
def test_a_wrong_command_line_is_refused(run: Run, arguments: tuple[str, ...], why: str) -> None:
    done = run("bench", *arguments)

    assert done.status == 2
    assert why in done.error
