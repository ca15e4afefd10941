"""Tasks whose first step runs at once: inside, everything is as in any other task."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from mqttcore.plugin.first_step import FirstSteps

Made = tuple[asyncio.Task[None], bool]
"""A task, and whether it was done after its first step."""
Begin = Callable[..., list[Made]]

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="unset")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def begin(loop: asyncio.AbstractEventLoop) -> Begin:
    """Begins coroutines one after another in one callback, and runs the loop until all are done."""

    def begin(*coroutines: Coroutine[object, object, None]) -> list[Made]:
        steps = FirstSteps(loop, contextvars.copy_context())
        made: list[Made] = []

        def call() -> None:
            for coroutine in coroutines:
                task = steps.task(coroutine, name="hook")
                steps.run()
                made.append((task, task.done()))
                assert asyncio.current_task(loop) is None
                assert "call_soon" not in vars(loop)

        async def all_done() -> None:
            begun = asyncio.Event()
            loop.call_soon(call)
            loop.call_soon(begun.set)
            await begun.wait()
            if waiting := [task for task, is_done in made if not is_done]:
                await asyncio.wait(waiting, timeout=20)

        loop.run_until_complete(all_done())
        assert len(made) == len(coroutines)
        assert all(task.done() for task, _ in made)
        return made

    return begin


def test_a_task_that_waits_for_nothing_is_done_at_once(begin: Begin) -> None:
    seen: list[Any] = []

    async def answer() -> None:
        seen.append(asyncio.current_task())

    ((task, is_done),) = begin(answer())

    assert is_done
    assert seen == [task]
    assert task.get_name() == "hook"
    assert task.exception() is None


def test_a_task_that_waits_continues_as_the_same_task(begin: Begin) -> None:
    seen: list[Any] = []

    async def answer() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        seen.append(asyncio.current_task())

    ((task, is_done),) = begin(answer())

    assert not is_done
    assert seen == [task] * 3


def test_a_task_that_raises_at_once_has_its_exception(begin: Begin) -> None:
    error = OSError("no disk")

    async def fail() -> None:
        raise error

    (failed, other) = begin(fail(), asyncio.sleep(0))

    assert failed[1]
    assert failed[0].exception() is error
    assert other[0].exception() is None


def test_a_time_limit_that_begins_in_the_first_step_ends_the_task_in_a_later_one(
    begin: Begin,
) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append("late")
        async with asyncio.timeout(3_600):
            await asyncio.sleep(0)
        ended.append("in time")

    ((task, _),) = begin(wait())

    assert ended == ["late", "in time"]
    assert task.cancelling() == 0


def test_tasks_that_begin_in_a_first_step_run_in_their_turn(begin: Begin) -> None:
    order: list[str] = []

    async def inner() -> None:
        order.append("inner")

    async def outer() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())
            order.append("outer")
        order.append("both")

    ((_, is_done),) = begin(outer())

    assert not is_done
    assert order == ["outer", "inner", "both"]


def test_a_task_that_is_cancelled_in_its_first_step_ends_at_its_first_wait(begin: Begin) -> None:
    order: list[str] = []

    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        order.append("first step")
        await asyncio.sleep(0)
        order.append("too far")

    ((task, is_done),) = begin(give_up())

    assert task.cancelled()
    assert not is_done
    assert order == ["first step"]


def test_a_task_sees_what_it_has_set_and_nobody_else_does(begin: Begin) -> None:
    seen: list[str] = []

    async def speak(said: str) -> None:
        seen.append(word.get())
        word.set(said)
        await asyncio.sleep(0)
        seen.append(word.get())

    begin(speak("one"), speak("two"))

    assert seen == ["unset", "unset", "one", "two"]
    assert word.get() == "unset"


def test_a_loop_whose_task_could_not_be_made_is_as_before(loop: asyncio.AbstractEventLoop) -> None:
    steps = FirstSteps(loop, contextvars.copy_context())
    wrong: Any = "no coroutine"

    with pytest.raises(TypeError):
        steps.task(wrong, name="hook")

    assert "call_soon" not in vars(loop)
    steps.run()
