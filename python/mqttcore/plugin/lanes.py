"""The threads on which hooks run: one for `def`, one for events; `event_loop` has the third.

The engine puts questions into queues of `_core.Lanes` and never waits here. A question has a
deadline that a thread without Python enforces, so a hook that hangs, even with the interpreter
locked, refuses its client in time; a thread that it blocks is replaced, up to a cap.
"""

import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from mqttcore._core import Event, Lanes, Question
from mqttcore.plugin.chain import BoundHook, Chain

BATCH = 64
JOIN_S = 0.3

T = TypeVar("T")


class Loop(Protocol):
    """What the thread of the events needs of the event loop."""

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], *, timeout: float) -> T:
        """Runs one coroutine and waits for it."""


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
            if not question.start(hook.title, hook.mark.timeout):
                return
            if self._chain.recall(question, hook) or self._chain.shut_out(question, hook):
                return
            if self._call(question, hook):
                return
        self._chain.exhaust(question)

    def _call(self, question: Question, hook: BoundHook) -> bool:
        self._current = question
        try:
            with hook.meter.call(waited=question.waited):
                answer = hook.function(question.subject)
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        finally:
            self._current = None
        return self._chain.settle(question, hook, answer)


class EventLane:
    """One thread that tells events, batch by batch."""

    def __init__(self, lanes: Lanes, chain: Chain, loop: Loop | None) -> None:
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
            with hook.meter.call():
                if hook.mark.is_async and self._async is not None:
                    self._async.call(partial(hook.function, events), timeout=hook.mark.timeout)
                else:
                    hook.function(events)
            hook.meter.count("passed")
        except BaseException as error:
            is_late = hook.mark.is_async and isinstance(error, TimeoutError)
            hook.meter.count("timed_out" if is_late else "failed")
            self._chain.failures.warn(hook.title, "-", f"raised over {len(events)} events", error)
