"""The thread on which `async def` hooks run, and the plugins' start and stop.

A module of its own, because asyncio takes a third of the broker's start: it is imported only where
there is a plugin.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mqttcore._core import Ask, Lanes, Login, Question
from mqttcore.errors import OverloadedError
from mqttcore.plugin.chain import BoundHook, Chain
from mqttcore.plugin.exchange import Exchange
from mqttcore.plugin.lanes import JOIN_S

CONCURRENT = 64
CHALLENGED_MAX = 4_096
"""Clients that have a challenge to answer; more are told that the server is busy."""
ABANDONED_CHECK_S = 0.25
TIMEOUT_GRACE_S = 0.05

T = TypeVar("T")


class AsyncLane:
    """One thread with an event loop: `async def` hooks, and the plugins' start and stop."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._lanes: Lanes | None = None
        self._tasks: dict[asyncio.Task[None], Question] = {}
        self._challenged: dict[int, asyncio.Future[bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqttcore-hooks-async", daemon=True)
        self._thread.start()

    def call(
        self, make: Callable[[], Coroutine[Any, Any, T]], *, timeout: float
    ) -> T:  # Any: as there
        """Runs one coroutine on the loop and waits for it, from another thread.

        Raises:
            TimeoutError: it took too long, and was cancelled, or another one holds the loop.
        """

        async def bounded() -> T:
            async with asyncio.timeout(timeout):
                return await make()

        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result(timeout + TIMEOUT_GRACE_S)
        finally:
            future.cancel()

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
        # a hook whose client is thinking takes no place
        running = len(self._tasks) - len(self._challenged)
        for question in self._lanes.take_async(max(0, CONCURRENT - running)):
            if question.rounds:
                self._resume(question)
                continue
            task = self._loop.create_task(self._ask(question))
            self._tasks[task] = question
            task.add_done_callback(self._done)

    def _resume(self, question: Question) -> None:
        """Hands a client's answer to the hook that waits for it, unless that was cancelled."""
        future = self._challenged.pop(question.key, None)
        if future is None or future.done():
            question.refuse()
        else:
            future.set_result(question.data)

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
            if self._chain.recall(question, hook) or self._chain.shut_out(question, hook):
                return
            if await self._call(question, hook):
                return
        self._chain.exhaust(question)

    def _subject(self, question: Question, hook: BoundHook) -> Login | Ask | Exchange:
        """What the hook is called with."""
        subject = question.subject
        if question.method is None or not isinstance(subject, Login):
            return subject

        async def ask(data: bytes, text: str | None) -> bytes:
            if question.key in self._challenged:
                raise RuntimeError("the last challenge is not answered yet")
            if len(self._challenged) >= CHALLENGED_MAX:
                raise OverloadedError("too many clients have a challenge to answer")
            with hook.meter.rest():
                return await self._challenge(question, data, text)

        return Exchange(
            subject,
            method=question.method,
            data=question.data,
            is_again=question.again,
            ask=ask,
        )

    async def _challenge(self, question: Question, data: bytes, text: str | None) -> bytes:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._challenged[question.key] = future
        try:
            if not question.challenge(data, text=text):
                raise asyncio.CancelledError  # the client left, and `_cancel_abandoned` comes later
            self._loop.call_soon(self._drain)  # there is one more place
            return await future
        finally:
            if self._challenged.get(question.key) is future:
                del self._challenged[question.key]

    async def _call(self, question: Question, hook: BoundHook) -> bool:
        try:
            # the queue's own deadline refuses the client; this one only ends the coroutine, and an
            # exchange has its time again with each step
            limit = None if question.method else hook.mark.timeout + TIMEOUT_GRACE_S
            async with asyncio.timeout(limit):
                with hook.meter.call(waited=question.waited):
                    answer = await hook.function(self._subject(question, hook))
        except asyncio.CancelledError:
            self._chain.abandon(question, hook)
            raise
        except TimeoutError as error:
            if not question.is_answered:
                self._chain.fail(question, hook, "raised", error)
            return True
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        return self._chain.settle(question, hook, answer)
