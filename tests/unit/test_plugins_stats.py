"""Counters of hooks: durations by size, and answers from the cache."""

import math

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Grant, HookStats, Login, Message, Plugin, hook
from mqttcore.plugin.stats import Meter

from tests.wire import Wire, publish

CLOSED = Listener(address="127.0.0.1:0", name="closed")


class Caching(Plugin):
    """Lets everybody in, and remembers it."""

    @hook.authenticate(cache=60)
    def login(self, _: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"]))

    @hook.publish("hook/#")
    async def leave(self, _: Message) -> None:
        """Passes."""


def read(meter: Meter) -> HookStats:
    return meter.read("hook", point="publish", breaker="closed")


def calls_by_limit(found: HookStats) -> dict[float, int]:
    return {limit: count for limit, count in found.run_times if count}


def test_calls_are_counted_by_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mqttcore.plugin.stats.time.perf_counter", lambda: now[0])
    meter = Meter()

    for seconds in (0.000_05, 0.001, 3_600.0):
        with meter.call():
            now[0] += seconds
    with meter.running(waited=0) as turn:
        turn.calls = 64
        now[0] += 64 * 0.002

    assert calls_by_limit(read(meter)) == {0.000_1: 1, 0.001: 1, 0.005: 64, math.inf: 1}


def test_a_turn_without_messages_counts_no_call() -> None:
    meter = Meter()

    with meter.running(waited=0):
        pass

    assert calls_by_limit(read(meter)) == {}


def test_waits_for_a_client_are_not_the_hook_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mqttcore.plugin.stats.time.perf_counter", lambda: now[0])
    meter = Meter()

    with meter.call(waited=0.25):
        now[0] += 1
        with meter.rest():
            now[0] += 60
        assert read(meter).run_s == 0, "metrics have a counter, which must not become smaller"
        assert meter.is_running
    with meter.call():
        now[0] += 2

    found = read(meter)
    assert (found.run_s, found.wait_s, found.calls, found.in_flight) == (3, 0.25, 2, 0)
    assert not meter.is_running


def test_results_have_names_that_are_known() -> None:
    meter = Meter()

    meter.count("failed")

    assert (read(meter).failed, read(meter).allowed) == (1, 0)
    with pytest.raises(ValueError, match="no such result"):
        meter.counters.count("lost")


def test_messages_and_answers_from_the_cache_are_counted() -> None:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Caching()]) as broker:
        for _ in range(3):
            with Wire(broker.port) as wire:
                wire.connect("c", username="joe", password=b"pw")
                wire.send(publish("hook/a", b"") * 10)
                wire.ping()
        login, publishes = broker.hook_stats()

    assert (login.calls, login.cache_hits) == (1, 2)
    assert (publishes.calls, publishes.cache_hits) == (30, 0)
    for found in (login, publishes):
        assert sum(count for _, count in found.run_times) == found.calls
