"""Event loops of plugins, without a broker."""

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from mqttcore._core import Question
from mqttcore.plugin import Plugin
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.event_loop import AsyncHookWorker
from mqttcore.plugin.loop_thread import LoopThread


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    monkeypatch.setattr("mqttcore.plugin.loop_thread.PULSE_S", 20.0)
    made = LoopThread("test-loop")
    yield made
    made.stop()
    made._thread.join(20)
    assert not made.is_alive


class Lanes:
    """One worker that hands these questions out once."""

    def __init__(self, *questions: object) -> None:
        self.questions = list(questions)
        self.read, self.write = os.pipe()
        self.limits: list[int] = []

    def wake_fd(self, number: int) -> int:
        """Readable when there is a question."""
        assert number == 0
        return self.read

    def take_async(self, number: int, limit: int) -> list[object]:
        """Queued questions."""
        assert number == 0
        self.limits.append(limit)
        taken, self.questions = self.questions, []
        return taken


class Answered:
    """A question that comes back with the answer of a client."""

    key, rounds, point, method, position = 1, 1, "authenticate", None, 0

    def __init__(self) -> None:
        self.refused = threading.Event()

    def refuse(self) -> bool:
        """Refuses."""
        self.refused.set()
        return True

    def is_same(self, other: object) -> bool:
        """Whether it is this one."""
        return other is self


@pytest.fixture
def queues() -> Iterator[Lanes]:
    made = Lanes()
    yield made
    os.close(made.read)
    os.close(made.write)


def begun(thread: LoopThread, queues: Lanes) -> AsyncHookWorker:
    worker = AsyncHookWorker(thread, cast("Any", queues), [0], Chain([Plugin(Plugin.Config())]))

    async def nothing() -> None:
        """Comes behind what the worker begins with."""

    for _ in range(3):
        thread.call(nothing, timeout=20.0)
    return worker


def test_a_thread_is_named_and_ends_with_the_program(thread: LoopThread) -> None:
    (found,) = (one for one in threading.enumerate() if one.name == "test-loop")

    assert found.daemon
    assert not thread.is_stuck()


def test_a_coroutine_that_takes_too_long_is_cancelled(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.loop_thread.TIMEOUT_GRACE_S", 3_600.0)
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        thread.call(hang, timeout=0.0)
    assert cancelled.wait(20)


def test_a_coroutine_is_waited_for_a_little_longer_than_it_may_take(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.loop_thread.TIMEOUT_GRACE_S", 3_600.0)

    async def take_turns() -> str:
        for _ in range(10_000):
            await asyncio.sleep(0)
        return "done"

    assert thread.call(take_turns, timeout=60.0) == "done"


def test_a_loop_that_ends_cancels_what_runs_and_takes_nothing_more(thread: LoopThread) -> None:
    began, cancelled, called = threading.Event(), threading.Event(), threading.Event()

    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    thread.post(lambda: asyncio.ensure_future(hang()))
    assert began.wait(20)
    thread.stop()
    thread._thread.join(20)

    assert cancelled.is_set()
    thread.post(called.set)
    assert not called.is_set()
    assert thread.loop.is_closed()


def test_a_loop_that_is_held_is_not_waited_for(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.loop_thread.JOIN_S", 0.0)
    release = threading.Event()
    thread.post(release.wait)

    thread.stop()

    assert thread.is_alive
    release.set()


def test_a_loop_that_is_held_is_stuck_until_its_hook_comes_back(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait()

    thread.post(hold)
    assert held.wait(20)
    monkeypatch.setattr("mqttcore.plugin.loop_thread.PULSE_S", 0.01)
    assert thread.is_stuck()
    thread.retire(ended.set)
    assert not ended.is_set()
    release.set()

    assert ended.wait(20)
    thread.stop()
    assert not thread.is_stuck()


def test_a_retired_worker_ends_its_thread_and_takes_no_more(
    thread: LoopThread, queues: Lanes
) -> None:
    worker = begun(thread, queues)
    culprit, other = (cast("Question", Answered()) for _ in range(2))
    ended = threading.Event()
    assert worker.is_alive
    assert not worker.is_held_by(culprit)
    assert worker.held_by() is None
    taken = len(queues.limits)

    worker.retire(culprit, ended.set)

    assert ended.wait(20)
    assert worker.is_held_by(culprit)
    assert not worker.is_held_by(other)
    os.write(queues.write, b"!")
    assert len(queues.limits) == taken


def test_an_answer_that_no_hook_waits_for_is_refused(thread: LoopThread, queues: Lanes) -> None:
    answered = Answered()
    queues.questions.append(answered)

    begun(thread, queues)

    assert answered.refused.wait(20)
    assert queues.limits[0] == 64
