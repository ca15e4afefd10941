"""`mqttcore bench`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from mqttcore import Broker
from mqttcore.cli import bench, load
from mqttcore.cli.histogram import Histogram
from mqttcore.config import Access, Listener

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
    assert "Requests waited for others" in done.out


def test_long_runs_tell_how_far_they_are(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "PROGRESS_NS", 1)
    monkeypatch.setattr(bench, "SHORT_S", 0.0)
    done = run("bench", "-p", broker.port, "--rate", 100, "--seconds", "0.1")

    assert "s: sent " in done.error
    assert done.status == 0


def test_each_subscriber_of_a_fan_gets_each_message(run: Run, broker: RunningBroker) -> None:
    options = ("--publishers", 2, "--subscribers", 3, "--rate", 500, "--seconds", "0.1", "-q", 1)
    done = run("bench", "fan", "-p", broker.port, *options, "--json")

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["publishers"], found["subscribers"]) == (2, 6)
    assert (found["sent"], found["received"], found["lost"]) == (50, 150, 0)
    assert found["acknowledgement"]["p50_ms"] > 0


def test_more_connections_than_select_has_descriptors_are_measured(
    run: Run, broker: RunningBroker
) -> None:
    options = ("--pairs", 520, "--rate", 520, "--seconds", "0.1", "--json")
    done = run("bench", "-p", broker.port, *options)

    found = json.loads(done.out)
    assert (done.status, found["received"], found["lost"]) == (0, 52, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishers_alone_are_measured_until_the_acknowledgement(
    run: Run, broker: RunningBroker, qos: int
) -> None:
    options = ("--rate", 500, "--seconds", "0.1", "-q", qos)
    done = run("bench", "pub", "-p", broker.port, *options, "--json")

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["sent"], found["received"], found["lost"]) == (50, 0, 0)
    assert found["latency"] == found["acknowledgement"]
    assert (found["latency"] is None) == (qos == 0)


def test_refused_messages_end_with_exit_status_4(
    run: Run, start_broker: Callable[..., Broker]
) -> None:
    access = Access(publish=("other",), subscribe=("#",))
    broker = start_broker(listeners=(Listener(address="127.0.0.1:0", anonymous=access),))
    done = run("bench", "-p", broker.port, "--seconds", "0.1", "--window", 2, "-q", 1, "--json")

    found = json.loads(done.out)
    assert (done.status, found["received"], found["lost"]) == (4, 0, 0)
    assert found["refused"] == found["sent"] > 2
    assert "the broker refused" in done.error


@pytest.mark.parametrize("rate", [0, 500])
def test_connections_are_made_and_ended(run: Run, broker: RunningBroker, rate: int) -> None:
    options = ("--clients", 25, "--rate", rate, "--window", 5, "--hold", "0.01", "--json")
    done = run("bench", "conn", "-p", broker.port, *options)

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["connected"], found["refused"], found["lost"]) == (25, 0, 0)
    assert found["latency_from"] == ("due" if rate else "sent")
    assert 0 < found["service_time"]["p50_ms"] <= found["latency"]["max_ms"]


def test_connections_to_nothing_are_the_failure_of_the_first(run: Run) -> None:
    done = run("bench", "conn", "-p", 1, "--json")

    assert (done.status, done.out) == (3, "")
    assert "cannot reach localhost:1" in done.error


@pytest.mark.parametrize("rate", [0, 2_000])
def test_subscriptions_are_measured_until_the_suback(
    run: Run, broker: RunningBroker, rate: int
) -> None:
    options = ("--clients", 3, "--subscriptions", 100, "--rate", rate, "--window", 7, "--json")
    done = run("bench", "sub", "-p", broker.port, *options)

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["begun"], found["done"], found["lost"], found["refused"]) == (100, 100, 0, 0)
    assert 0 < found["service_time"]["p50_ms"] <= found["latency"]["max_ms"]


@pytest.mark.parametrize("qos", [0, 2])
def test_retained_messages_all_arrive_and_are_removed(
    run: Run, broker: RunningBroker, topic: str, qos: int
) -> None:
    options = ("--messages", 30, "--clients", 4, "--window", 2, "-t", topic, "-q", qos, "--json")
    done = run("bench", "retained", "-p", broker.port, *options)
    left = run("sub", "-p", broker.port, "-t", f"{topic}/#", "-C", 1, "-W", "0.2")

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert (found["done"], found["received"], found["lost"]) == (4, 120, 0)
    assert 0 < found["first_message"]["p50_ms"] <= found["latency"]["max_ms"]
    assert (left.status, left.out) == (27, "")


def test_each_measurement_has_a_text_with_units(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "PROGRESS_NS", 1)
    for name, arguments, words in (
        ("pub", ("--seconds", "0.05"), "not measured: there is no answer to QoS 0"),
        ("conn", ("--clients", 3), "connected     3 of 3"),
        ("sub", ("--subscriptions", 3), "10 clients, 3 subscriptions"),
        ("retained", ("--messages", 2, "--clients", 2), "received      4 messages"),
    ):
        done = run("bench", name, "-p", broker.port, *arguments)

        assert (done.status, words in done.out) == (0, True), done
        assert "/s" in done.out


def test_two_brokers_are_measured_in_turn_and_compared(
    run: Run, broker: RunningBroker, fresh_broker: Broker
) -> None:
    addresses = [f"localhost:{port}" for port in (broker.port, fresh_broker.port)]
    options = ("-p", broker.port, "--against", addresses[1], "--rounds", 2, "--rate", 500)
    done = run("bench", *options, "--seconds", "0.1", "--json")
    text = run("bench", "pub", *options, "--seconds", "0.05")

    found = json.loads(done.out)
    assert (done.status, done.error) == (0, "")
    assert found["brokers"] == addresses
    assert [list(one) for one in found["rounds"]] == [addresses] * 2
    assert {one[name]["received"] for one in found["rounds"] for name in addresses} == {50}
    assert set(found["ratio"]) == {"rate", "p50_ms", "p99_ms"}
    assert 0.5 < found["ratio"]["rate"]["median"] < 2
    assert text.status == 0
    assert f"rate: {addresses[1]} has " in text.out
    assert text.error.splitlines() == ["round 1 of 2 is done", "round 2 of 2 is done"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--size", "8"), "argument --size: the number is from 16"),
        (("--rate", "-1"), "argument --rate: the number is from 0"),
        (("--rate", "nan"), "argument --rate: the number is from 0"),
        (("--seconds", "inf"), "argument --seconds: the number is from 0"),
        (("-i", "me"), "-i, -I and -c are for one client"),
        (("--against", "localhost"), "--against names the broker of -h: localhost:1883"),
        (("--against", "a:b"), "'a:b' is not HOST or HOST:PORT"),
        (("--against", "a/b"), "'a/b' is not HOST or HOST:PORT"),
        (("--against", "a", "--unix", "/x"), "--unix names one broker only"),
        (("--pairs", "0"), "argument --pairs: the number is from 1"),
        (("conn", "-L", "mqtt://localhost/t"), "leave out 't'"),
        (("conn", "--clients", "999999999"), "raise it (ulimit -n)"),
    ],
)
def test_a_wrong_command_line_is_refused(run: Run, arguments: tuple[str, ...], why: str) -> None:
    done = run("bench", *arguments)

    assert done.status == 2
    assert why in done.error
