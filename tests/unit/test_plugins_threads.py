"""Threads of plugins, without a broker; and what a `Grant` refuses."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import pytest
from mqttcore._core import Question
from mqttcore.plugin import Event, Grant, Limits, Plugin, hook
from mqttcore.plugin.breaker import HELD_MAX
from mqttcore.plugin.chain import BoundHook, Chain
from mqttcore.plugin.workers import CallThread, EventWorker, SyncHookWorker


def threads_of(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


def test_a_call_is_waited_for_as_long_as_it_may_take() -> None:
    before = threads_of("mqttcore-events")
    calls = CallThread()
    (thread,) = threads_of("mqttcore-events") - before
    held, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        held.set()
        release.wait()

    assert thread.daemon
    calls.call(lambda: None, timeout=20.0)
    assert not calls.is_stuck()
    with pytest.raises(TimeoutError):
        calls.call(hang, timeout=0.0)
    assert held.wait(20)
    assert calls.is_stuck()
    calls.retire(ended.set)
    assert not ended.is_set()
    release.set()

    assert ended.wait(20)
    assert not calls.is_stuck()
    thread.join(20)
    assert not thread.is_alive()


def test_a_call_that_raises_is_over() -> None:
    calls = CallThread()

    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: cast("None", 1 / 0), timeout=20.0)

    assert not calls.is_stuck()
    calls.stop()


class NoQuestions:
    """Queues that are closed."""

    def take(self, _number: int, _limit: int) -> None:
        """Nothing comes."""


class Asked:
    """A question that is the same as itself alone."""

    def is_same(self, other: object) -> bool:
        """Whether it is this one."""
        return other is self


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_thread_is_retired_by_the_question_that_holds_it_alone(*, is_its_own: bool) -> None:
    worker = SyncHookWorker(cast("Any", NoQuestions()), 0, cast("Chain", None))
    worker.join()
    first, other = cast("Question", Asked()), cast("Question", Asked())
    hook = cast("BoundHook", object())

    assert not worker.retire_if_held_by(first, hook), "nothing runs"
    worker._current = first

    assert worker.retire_if_held_by(first if is_its_own else other, hook) is is_its_own
    assert worker._culprit is (hook if is_its_own else None)


@dataclass
class Happened:
    """An event of a kind."""

    kind: str


class Telling:
    """Queues that tell these batches, and then the end."""

    def __init__(self, *batches: list[Happened], dropped: int = 0) -> None:
        self.batches = list(batches)
        self.dropped = dropped
        self.limits: set[tuple[int, float]] = set()
        self.thread = threading.current_thread()

    def events(self, _number: int, limit: int, wait_s: float) -> list[Happened] | None:
        """The next batch."""
        self.limits.add((limit, wait_s))
        self.thread = threading.current_thread()
        return self.batches.pop(0) if self.batches else None

    def take_dropped_events(self, _number: int) -> int:
        """How many were not told."""
        dropped, self.dropped = self.dropped, 0
        return dropped


class Observer(Plugin):
    """Notes what it is told, and raises where that is asked for."""

    def __init__(self) -> None:
        super().__init__(Plugin.Config())
        self.told: list[list[str]] = []
        self.error: Exception | None = None

    @hook.events("connected", "disconnected", batch=2, every=0.5)
    def tell(self, events: Sequence[Event]) -> None:
        """Is told."""
        self.told.append([event.kind for event in events])
        if self.error is not None:
            raise self.error


def tell_all(observer: Observer, queues: Telling, *, held: int = 0) -> BoundHook:
    chain = Chain([observer])
    for _ in range(held):
        chain.events[0].breaker.hold()
    before = threads_of("mqttcore-events")

    def no_loop() -> Any:  # noqa: ANN401 -- never called
        raise AssertionError("no hook is a coroutine")

    worker = EventWorker(cast("Any", queues), 0, chain.events, chain, new_loop=no_loop)
    worker.join()
    assert threads_of("mqttcore-events") <= before
    return chain.events[0]


def test_events_are_told_by_their_kind_in_batches(caplog: pytest.LogCaptureFixture) -> None:
    observer = Observer()
    five = [Happened(kind) for kind in ("connected", "other", "disconnected", "connected")]
    queues = Telling(five, [Happened("other")], dropped=3)

    bound = tell_all(observer, queues)

    assert observer.told == [["connected", "disconnected"], ["connected"]]
    assert queues.limits == {(2, 0.5)}
    assert (queues.thread.name, queues.thread.daemon) == ("mqttcore-events", True)
    assert (bound.stats().calls, bound.stats().passed) == (2, 2)
    (record,) = caplog.records
    owner = bound.title.rpartition(".")[0]
    told = f"plugin {owner}: 3 events were dropped: its hooks are too slow"
    assert record.getMessage() == told


def test_a_hook_of_events_that_raises_is_logged_and_told_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Observer()
    observer.error = OSError("no disk")
    batches = [[Happened("connected")] for _ in range(2)]

    bound = tell_all(observer, Telling(*batches))

    first = caplog.records[0]
    assert first.getMessage() == f"plugin {bound.title}: client -: raised an exception for 1 events"
    assert first.exc_info is not None
    assert first.exc_info[1] is observer.error
    assert (bound.stats().failed, len(observer.told)) == (2, 2)


def test_a_hook_of_events_that_holds_its_threads_is_told_nothing() -> None:
    observer = Observer()

    bound = tell_all(observer, Telling([Happened("connected")]), held=HELD_MAX)

    assert not observer.told
    assert (bound.stats().shut_out, bound.stats().calls) == (1, 0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"publish": "a/#"}, "publish is a string, but must be a list: write ['a/#']"),
        ({"subscribe": "a/#"}, "subscribe is a string, but must be a list: write ['a/#']"),
        ({"deny": "a/#"}, "deny is a string, but must be a list: write ['a/#']"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at has no time zone"),
        ({"promise": "disk"}, "promise is 'disk': one of memory, os, fsync"),
        ({"queue_policy": "keep"}, "queue_policy is 'keep': one of drop, refuse"),
    ],
)
def test_a_grant_says_what_is_wrong_with_it(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Grant(**fields)
    assert str(caught.value) == why


@pytest.mark.parametrize("fields", [{"promise": "os"}, {"queue_policy": "refuse"}])
def test_a_grant_takes_the_words_that_it_knows(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert getattr(Grant(**fields), name) == fields[name]


def test_limits_say_all_that_is_wrong_with_them() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Limits(max_qos=3, messages_per_second=0)
    assert str(caught.value) == (
        "Limits: max_qos: 3 is out of range; allowed: 0 to 2; "
        "Limits: messages_per_second: 0 is out of range; allowed: 1 to 4_294_967_295"
    )
