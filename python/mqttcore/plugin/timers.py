"""The timer of a plugin: calls its `every` and `health` hooks; nothing waits for them."""

import threading
import time
from collections.abc import Callable, Sequence

from mqttcore.plugin.answers import Degraded
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.workers import JOIN_S, Caller, CallThread, contained

Report = Callable[[BoundHook, str | None], None]
"""Receives the report of a `health` hook: None, or the reason why its plugin is degraded."""


class TimerWorker:
    """The thread that calls the `every` and `health` hooks of one plugin, one after another.

    Args:
        hooks: The hooks.
        chain: Logs failures.
        home: The event loop that runs `async def` hooks now.
        report: Takes the answers of `health` hooks.
    """

    def __init__(
        self,
        hooks: Sequence[BoundHook],
        chain: Chain,
        *,
        home: Callable[[], Caller],
        report: Report,
    ) -> None:
        self._report = report
        self._hooks = hooks
        self._chain = chain
        self._home = home
        has_sync = any(not hook.mark.is_async for hook in hooks)
        self._calls = CallThread() if has_sync else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqttcore-every", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Ends the threads; waits at most `JOIN_S`, and abandons a thread that a hook blocks."""
        self._over.set()
        self._thread.join(JOIN_S)
        if self._calls is not None:
            self._calls.stop()

    def _run(self) -> None:
        began = time.monotonic()
        due = {hook: began + hook.mark.every for hook in self._hooks}
        while True:
            hook = min(due, key=lambda hook: due[hook])
            if self._over.wait(max(0.0, due[hook] - time.monotonic())):
                return
            self._tick(hook)
            # calls that are missed meanwhile are not made up for
            due[hook] = max(due[hook] + hook.mark.every, time.monotonic())

    def _tick(self, hook: BoundHook) -> None:
        if not hook.breaker.admit(timeout=hook.mark.timeout):
            hook.meter.count("shut_out")
            self._tell(hook, "the hook holds too many threads")
            return
        try:
            reason = self._call(hook)
        except BaseException as error:
            is_late = isinstance(error, TimeoutError)
            hook.meter.count("timed_out" if is_late else "failed")
            self._chain.failures.warn(hook.title, "-", "raised an exception", error)
            self._tell(hook, "the hook does not answer" if is_late else "the hook failed")
            if is_late:
                self._relieve(hook)
        else:
            hook.meter.count("passed")
            self._tell(hook, reason)

    def _tell(self, hook: BoundHook, reason: str | None) -> None:
        if hook.mark.point != "health":
            return
        try:
            self._report(hook, reason)
        except Exception as error:  # the other hooks of the timer are called all the same
            self._chain.failures.warn(hook.title, "-", "its health was not taken", error)

    def _call(self, hook: BoundHook) -> str | None:
        """The reason why the plugin is degraded, if the hook reports one."""
        answers: list[object] = []

        async def call_on_loop() -> None:
            with hook.meter.call():
                answers.append(await contained(hook.function()))

        def call() -> None:
            with hook.meter.call():
                answers.append(hook.function())

        if hook.mark.is_async:
            self._home().call(call_on_loop, timeout=hook.mark.timeout)
        elif self._calls is not None:
            self._calls.call(call, timeout=hook.mark.timeout)
        answer = answers[0] if answers else None
        if isinstance(answer, Degraded):
            # the engine takes no lone surrogates, which names of files may have
            return answer.text.encode(errors="backslashreplace").decode()
        if answer is not None and hook.mark.point == "health":
            raise TypeError(f"Degraded or None is expected, not {type(answer).__name__}")
        return None

    def _relieve(self, hook: BoundHook) -> None:
        """Replaces the thread of `def` hooks, if the hook blocks it."""
        held = None if hook.mark.is_async else self._calls
        if held is not None and held.is_stuck() and self._chain.hold(hook):
            held.retire(hook.breaker.let_go)
            self._calls = CallThread()
