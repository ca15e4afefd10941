"""Hook workers: one thread for the `def` hooks of a plugin, one for its events.

The engine puts questions into queues of `_core.HookQueues` and never waits here. A thread without
Python enforces the deadlines of questions, so a hook that hangs, even if it blocks the interpreter,
refuses its client in time. A blocked thread is replaced, up to a limit.
"""

import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from mqttcore._core import Event, HookQueues, Question
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.chain import MESSAGES, Chain

BATCH = 64
JOIN_S = 0.3

T = TypeVar("T")


class SyncHookWorker:
    """The thread that runs the `def` hooks of one queue, in batches of questions."""

    def __init__(self, queues: HookQueues, number: int, chain: Chain) -> None:
        self._queues = queues
        self._number = number
        self._chain = chain
        self._lock = threading.Lock()
        self._current: Question | None = None
        self._culprit: BoundHook | None = None
        self._rest: deque[Question] = deque()
        """Questions of a batch that are not asked yet."""
        self._thread = threading.Thread(target=self._run, name="mqttcore-hooks", daemon=True)
        self._thread.start()

    def retire_if_held_by(self, question: Question, hook: BoundHook) -> bool:
        """Ends the thread as soon as ``hook`` returns. Returns False if it has returned already.

        The questions behind this one go back to the queue, for the thread that takes over.
        """
        with self._lock:
            if self._current is None or not self._current.is_same(question):
                return False
            self._culprit = hook
            rest, self._rest = self._rest, deque()
        if rest:
            self._queues.give_back(self._number, list(rest))
        return True

    def join(self) -> None:
        """Waits for the thread, at most `JOIN_S`; a thread that a hook blocks is abandoned."""
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while self._ask_batch():
            pass

    def _ask_batch(self) -> bool:
        """Waits for questions and asks them; False: the thread ends.

        It keeps no reference to them: otherwise the last password would stay in memory until the
        next question.
        """
        questions = self._queues.take(self._number, BATCH)
        if questions is None:
            return False
        with self._lock:
            self._rest.extend(questions)
        del questions
        while (question := self._next_question()) is not None:
            self._ask(question)
            if (culprit := self._culprit) is not None:
                culprit.breaker.let_go()
                return False
        return True

    def _next_question(self) -> Question | None:
        with self._lock:
            return self._rest.popleft() if self._rest else None

    def _ask(self, question: Question) -> None:
        while hook := self._chain.next_hook(question):
            if hook.worker != self._number:
                question.hand_over(hook.worker)
                return
            if question.point in MESSAGES:
                if self._call_each(question, hook):
                    return
                continue
            if not question.start(hook.title, hook.mark.timeout):
                return
            if self._chain.recall(question, hook) or self._chain.shut_out(question, hook):
                return
            if self._call(question, hook):
                return
        self._chain.exhaust(question)

    def _call(self, question: Question, hook: BoundHook) -> bool:
        with self._lock:
            self._current = question
        try:
            with hook.meter.call(waited=question.waited):
                answer = hook.function(question.subject)
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        finally:
            with self._lock:
                self._current = None
        return self._chain.settle(question, hook, answer)

    def _call_each(self, question: Question, hook: BoundHook) -> bool:
        """Asks a publish hook about the messages of a turn. True: the question is over or waits."""
        with self._lock:
            self._current = question
        try:
            with hook.meter.running(waited=question.waited) as turn:
                turn.calls = self._chain.call_turn(question, hook)
        finally:
            with self._lock:
                self._current = None
        return self._chain.end_turn(question, hook)


class Caller(Protocol):
    """Runs events hooks; `LoopThread` implements it for coroutines."""

    def call(
        self, make: Callable[[], Coroutine[Any, Any, None]], *, timeout: float
    ) -> None:  # Any: as there
        """Runs one coroutine and waits for it. `TimeoutError`: it took too long."""

    def is_stuck(self) -> bool:
        """Whether a call blocks the thread."""

    def retire(self, at_end: Callable[[], None]) -> None:
        """Ends the thread as soon as its call returns."""


class CallThread:
    """A thread for calls that may hang: callers wait with a timeout."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None]
        self._calls = queue.SimpleQueue()
        self._last: Future[None] = Future()
        self._at_end: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="mqttcore-events", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None], *, timeout: float) -> None:
        """Calls ``function`` and waits for it.

        Raises:
            TimeoutError: it has not come back.
        """
        self._last = Future()
        self._calls.put((function, self._last))
        self._last.result(timeout)

    def is_stuck(self) -> bool:
        """Whether the last call blocks the thread."""
        return not self._last.done()

    def retire(self, at_end: Callable[[], None]) -> None:
        """Ends the thread as soon as its call returns, and then calls ``at_end``."""
        self._at_end = at_end
        self._calls.put(None)

    def stop(self) -> None:
        """Ends the thread; a thread that a call blocks is abandoned."""
        self._calls.put(None)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
        self._at_end()


async def contained(call: Awaitable[T]) -> T:
    """Waits for a hook; an exit that it raises does not end its event loop."""
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the hook raised {type(error).__name__}") from error


class EventWorker:
    """Passes events to one plugin, in batches; no question waits for it.

    Args:
        queues: The source of events.
        number: Number of its queue.
        hooks: The events hooks of the plugin.
        chain: Logs failures.
        new_loop: Creates an event loop for `async def` hooks, also to replace a blocked one.
    """

    def __init__(
        self,
        queues: HookQueues,
        number: int,
        hooks: Sequence[BoundHook],
        chain: Chain,
        *,
        new_loop: Callable[[], Caller],
    ) -> None:
        self._queues = queues
        self._number = number
        self._hooks = hooks
        self._chain = chain
        self._new_loop = new_loop
        self._loop = new_loop() if any(hook.mark.is_async for hook in hooks) else None
        has_sync = any(not hook.mark.is_async for hook in hooks)
        self._calls = CallThread() if has_sync else None
        self._thread = threading.Thread(target=self._run, name="mqttcore-events", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the threads, at most `JOIN_S`; a thread that a hook blocks is abandoned."""
        self._thread.join(JOIN_S)
        if self._calls is not None:
            self._calls.stop()

    def _run(self) -> None:
        limit = max(hook.mark.batch for hook in self._hooks)
        wait_s = min(hook.mark.every for hook in self._hooks)
        while (events := self._queues.events(self._number, limit, wait_s)) is not None:
            if dropped := self._queues.take_dropped_events(self._number):
                self._chain.warn_dropped(self._hooks[0], dropped)
            for hook in self._hooks:
                wanted = [event for event in events if event.kind in hook.mark.kinds]
                for start in range(0, len(wanted), hook.mark.batch):
                    self._tell(hook, wanted[start : start + hook.mark.batch])

    def _tell(self, hook: BoundHook, events: list[Event]) -> None:
        if not hook.breaker.admit(timeout=hook.mark.timeout):
            hook.meter.count("shut_out")
            return
        try:
            self._call(hook, events)
        except BaseException as error:
            is_late = isinstance(error, TimeoutError)
            hook.meter.count("timed_out" if is_late else "failed")
            self._chain.failures.warn(
                hook.title, "-", f"raised an exception for {len(events)} events", error
            )
            if is_late:
                self._relieve(hook)
        else:
            hook.meter.count("passed")

    def _call(self, hook: BoundHook, events: list[Event]) -> None:
        async def tell_loop() -> None:
            with hook.meter.call():
                await contained(hook.function(events))

        def tell() -> None:
            with hook.meter.call():
                hook.function(events)

        if self._loop is not None and hook.mark.is_async:
            self._loop.call(tell_loop, timeout=hook.mark.timeout)
        elif self._calls is not None:
            self._calls.call(tell, timeout=hook.mark.timeout)

    def _relieve(self, hook: BoundHook) -> None:
        """Replaces the thread that runs the hook, if the hook blocks it."""
        held: Caller | CallThread | None = self._loop if hook.mark.is_async else self._calls
        if held is None or not held.is_stuck() or not self._chain.hold(hook):
            return
        held.retire(hook.breaker.let_go)
        if hook.mark.is_async:
            self._loop = self._new_loop()
        else:
            self._calls = CallThread()
