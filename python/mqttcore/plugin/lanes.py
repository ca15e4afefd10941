"""The threads on which hooks run: one for `def`, one event loop for `async def`, one for events.

The engine puts questions into queues of `_core.Lanes` and never waits here. A question has a
deadline that a thread without Python enforces, so a hook that hangs, even with the interpreter
locked, refuses its client in time; a thread that it blocks is replaced, up to a cap.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mqttcore._core import Event, Lanes, Question
from mqttcore.plugin.chain import BoundHook, Chain

log = logging.getLogger("mqttcore.plugins")

BATCH = 64
CONCURRENT = 64
STUCK_MAX = 4
ABANDONED_CHECK_S = 0.25
TIMEOUT_GRACE_S = 0.05
JOIN_S = 1.0

T = TypeVar("T")


class SyncLane:
    """One thread that asks `def` hooks, batch by batch."""

    def __init__(self, lanes: Lanes, chain: Chain) -> None:
        self._lanes = lanes
        self._chain = chain
        self._current: Question | None = None
        self._retired = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqttcore-hooks", daemon=True)
        self._thread.start()

    def is_stuck_in(self, question: Question) -> bool:
        """Whether its thread still sits in a hook that was asked this."""
        current = self._current
        return current is not None and current.is_same(question)

    @property
    def is_held(self) -> bool:
        """Whether its thread still sits in a hook."""
        return self._current is not None

    def retire(self) -> None:
        """Ends the thread as soon as its hook comes back."""
        self._retired.set()

    def join(self) -> None:
        """Waits a moment for the thread; one that a hook holds is left behind."""
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._retired.is_set():
            questions = self._lanes.take(BATCH)
            if questions is None:
                return
            for index, question in enumerate(questions):
                self._ask(question)
                if self._retired.is_set():
                    self._lanes.give_back(questions[index + 1 :])
                    return

    def _ask(self, question: Question) -> None:
        while hook := self._chain.next_hook(question):
            if hook.mark.is_async:
                question.hand_over(to_async=True)
                return
            if not question.start(hook.title, hook.mark.timeout) or self._call(question, hook):
                return
        self._chain.exhaust(question)

    def _call(self, question: Question, hook: BoundHook) -> bool:
        self._current = question
        try:
            answer = hook.function(question.subject)
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        finally:
            self._current = None
        return self._chain.settle(question, hook, answer)


class AsyncLane:
    """One thread with an event loop: `async def` hooks, and the plugins' start and stop."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._lanes: Lanes | None = None
        self._tasks: dict[asyncio.Task[None], Question] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqttcore-hooks-async", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], *, timeout: float) -> T:  # Any: as asyncio's
        """Runs one coroutine on the loop and waits for it, from another thread.

        Raises:
            TimeoutError: it took too long, and was cancelled.
        """
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(coroutine, timeout), self._loop
        ).result()

    def serve(self, lanes: Lanes) -> None:
        """Starts to take questions."""
        self._lanes = lanes
        self._loop.call_soon_threadsafe(self._serve)

    def stop(self) -> None:
        """Cancels what runs and ends the thread; a hook that holds it is left behind."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _serve(self) -> None:
        if self._lanes is not None:
            self._loop.add_reader(self._lanes.wake_fd, self._drain)
            self._loop.call_later(ABANDONED_CHECK_S, self._cancel_abandoned)
            self._drain()

    def _stop(self) -> None:
        if self._lanes is not None:
            self._loop.remove_reader(self._lanes.wake_fd)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)

    def _drain(self) -> None:
        if self._lanes is None:
            return
        for question in self._lanes.take_async(CONCURRENT - len(self._tasks)):
            task = self._loop.create_task(self._ask(question))
            self._tasks[task] = question
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._drain()

    def _cancel_abandoned(self) -> None:
        for task, question in self._tasks.items():
            if question.is_over:
                task.cancel()
        self._loop.call_later(ABANDONED_CHECK_S, self._cancel_abandoned)

    async def _ask(self, question: Question) -> None:
        while hook := self._chain.next_hook(question):
            if not hook.mark.is_async:
                question.hand_over(to_async=False)
                return
            if not question.start(hook.title, hook.mark.timeout):
                return
            if await self._call(question, hook):
                return
        self._chain.exhaust(question)

    async def _call(self, question: Question, hook: BoundHook) -> bool:
        try:
            # the queue's own deadline refuses the client; this one only ends the coroutine
            async with asyncio.timeout(hook.mark.timeout + TIMEOUT_GRACE_S):
                answer = await hook.function(question.subject)
        except asyncio.CancelledError:
            question.refuse()
            raise
        except TimeoutError as error:
            if not question.is_answered:
                self._chain.fail(question, hook, "raised", error)
            return True
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        return self._chain.settle(question, hook, answer)


class EventLane:
    """One thread that tells events, batch by batch."""

    def __init__(self, lanes: Lanes, chain: Chain, loop: AsyncLane | None) -> None:
        self._lanes = lanes
        self._chain = chain
        self._async = loop
        self._wait_s = min(hook.mark.every for hook in chain.events)
        self._thread = threading.Thread(target=self._run, name="mqttcore-events", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits a moment for the thread."""
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        limit = max(hook.mark.batch for hook in self._chain.events)
        while (events := self._lanes.events(limit, self._wait_s)) is not None:
            for hook in self._chain.events:
                wanted = [event for event in events if event.kind in hook.mark.kinds]
                for start in range(0, len(wanted), hook.mark.batch):
                    self._tell(hook, wanted[start : start + hook.mark.batch])

    def _tell(self, hook: BoundHook, events: list[Event]) -> None:
        try:
            if hook.mark.is_async and self._async is not None:
                self._async.call(hook.function(events), timeout=hook.mark.timeout)
            else:
                hook.function(events)
        except BaseException as error:
            self._chain.failures.warn(hook.title, "-", f"raised over {len(events)} events", error)
