"""All workers of one plugin: no other plugin runs on them, and blocked ones are replaced."""

import contextlib
import copy
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from mqttcore._core import HookQueues, Question
from mqttcore.errors import PluginError
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.bound_hook import TIMED, UNASKED, BoundHook
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.timers import Report, TimerWorker
from mqttcore.plugin.workers import EventWorker, SyncHookWorker

if TYPE_CHECKING:
    from mqttcore.plugin.event_loop import AsyncHookWorker, Prepare
    from mqttcore.plugin.loop_thread import LoopThread

log = logging.getLogger("mqttcore.plugins")

LOOP, LOOP_OF_EVENTS = "mqttcore-hooks-async", "mqttcore-events-async"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
"""Time for a plugin to finish its work; a second Ctrl-C ends `serve` at once."""


class PluginWorkers:
    """A plugin and its workers, which also run its start and its stop.

    Coroutines that decide run on one event loop, coroutines for events on another one, so that
    events do not delay clients. Start and stop run on the first of these that exists.
    """

    def __init__(
        self,
        plugin: Plugin,
        hooks: Sequence[BoundHook],
        chain: Chain,
        *,
        report: Report = lambda _hook, _reason: None,
    ) -> None:
        self.plugin = plugin
        self._report = report
        self.hooks = hooks
        self._chain = chain
        self._asked = [hook for hook in hooks if hook.mark.point not in UNASKED]
        self._timed = [hook for hook in hooks if hook.mark.point in TIMED]
        self._told = [hook for hook in hooks if hook.mark.point == "events"]
        self._sync: dict[int, SyncHookWorker] = {}
        self._async: AsyncHookWorker | None = None
        self._events: EventWorker | None = None
        self._timer: TimerWorker | None = None
        self._held: list[AsyncHookWorker] = []
        self._home: LoopThread | None = None
        self._loop_of_events: LoopThread | None = None
        self._queues: HookQueues | None = None

    @property
    def kinds(self) -> list[str]:
        """The event kinds of its hooks."""
        return sorted({kind for hook in self._told for kind in hook.mark.kinds})

    def start(self) -> None:
        """Starts the plugin.

        Raises:
            PluginError: its start raised, or took too long.
        """
        try:
            if is_own(self.plugin, "start"):
                self._at_home().call(self.plugin.start, timeout=START_TIMEOUT_S)
        except BaseException as error:
            self.end()
            if not isinstance(error, Exception):
                raise
            what = str(error) or type(error).__name__
            raise PluginError(f"plugin {self.plugin.name} did not start: {what}") from error

    def serve(self, queues: HookQueues, *, observer: int | None) -> None:
        """Starts the workers; ``observer`` is the number of its event queue."""
        self._queues = queues
        for number in self._worker_numbers(is_async=False):
            self._sync[number] = SyncHookWorker(queues, number, self._chain)
        if numbers := self._worker_numbers(is_async=True):
            self._async = async_worker(self._at_home(), queues, numbers, self._chain)
        if self._timed:
            if any(hook.mark.is_async for hook in self._timed):
                self._at_home()
            self._timer = TimerWorker(
                self._timed, self._chain, home=self._at_home, report=self._report
            )
        if observer is not None:
            self._events = EventWorker(
                queues, observer, self._told, self._chain, new_loop=self._new_loop_of_events
            )

    def is_fault(self, question: Question, hook: BoundHook) -> bool:
        """Whether ``hook`` caused the timeout of a question; replaces a blocked thread first."""
        if hook.mark.is_async:
            return self._is_fault_on_loop(question, hook)
        if (
            self._queues is not None
            and self._sync[hook.worker].retire_if_held_by(question, hook)
            and self._chain.hold(hook)
        ):
            self._sync[hook.worker] = SyncHookWorker(self._queues, hook.worker, self._chain)
        return True

    def _is_fault_on_loop(self, question: Question, hook: BoundHook) -> bool:
        for held in self._held:
            if held.has(question):
                return held.is_held_by(question)
        worker, queues = self._async, self._queues
        if queues is None or worker is None or not worker.is_stuck():
            return True
        culprit = worker.held_by()
        holder = hook if culprit is None else self._chain.next_hook(culprit) or hook
        if self._chain.hold(holder):
            worker.retire(culprit, holder.breaker.let_go)
            self._held = [*(held for held in self._held if held.is_alive), worker]
            self._home = loop_thread(LOOP)
            numbers = self._worker_numbers(is_async=True)
            self._async = async_worker(
                self._home, queues, numbers, self._chain, prepare=self._start_again
            )
        return culprit is not None and culprit.is_same(question)

    def reload(self) -> Collection[str] | None:
        """Has the plugin read its files again.

        Returns:
            The users whose rights may have changed; None: everybody.

        Raises:
            PluginError: it cannot, or its files cannot be used; it is as before.
        """
        if not is_own(self.plugin, "reload"):
            raise PluginError(f"plugin {self.plugin.name} reads no files: reload the configuration")
        before = copy.copy(self.plugin)
        try:
            self._at_home().call(self.plugin.reload, timeout=START_TIMEOUT_S)
        except Exception as error:
            what = str(error) or type(error).__name__
            raise PluginError(f"plugin {self.plugin.name} is as before: {what}") from error
        return self.plugin.changed_users(before)

    def stop(self) -> None:
        """Stops the plugin and ends its threads; threads that a hook blocks are abandoned."""
        for worker in (self._timer, *self._sync.values(), self._events):
            if worker is not None:
                worker.join()
        try:
            if is_own(self.plugin, "stop"):
                home = self._at_home()
                if home.is_stuck():
                    raise TimeoutError("a hook blocks its event loop")
                home.call(self.plugin.stop, timeout=STOP_TIMEOUT_S)
        except Exception:  # the others are stopped all the same
            log.warning("plugin %s did not stop cleanly", self.plugin.name, exc_info=True)
        self.end()

    def end(self) -> None:
        """Ends the event loops."""
        for loop in {self._home, self._loop_of_events}:
            if loop is not None:
                loop.stop()

    def _worker_numbers(self, *, is_async: bool) -> list[int]:
        return sorted({hook.worker for hook in self._asked if hook.mark.is_async == is_async})

    def _at_home(self) -> "LoopThread":
        """The event loop of `start` and `stop`, and of coroutines that decide."""
        if self._home is None:
            self._home = loop_thread(LOOP)
        return self._home

    def _new_loop_of_events(self) -> "LoopThread":
        """Creates the event loop of `async def` events hooks, or replaces it."""
        if self._async is not None:
            self._loop_of_events = loop_thread(LOOP_OF_EVENTS)
        elif self._loop_of_events is None:
            self._loop_of_events = self._at_home()
        else:
            self._home = self._loop_of_events = loop_thread(LOOP)
            with contextlib.suppress(TimeoutError):
                self._home.call(self._start_again, timeout=START_TIMEOUT_S)
        return self._loop_of_events

    async def _start_again(self) -> None:
        """Starts the plugin again: its resources belong to the event loop that is blocked."""
        try:
            await self.plugin.start()
        except Exception:
            log.exception("plugin %s did not start on its new event loop", self.plugin.name)


def is_own(plugin: Plugin, method: str) -> bool:
    """Whether a plugin overrides ``method``; the method of `Plugin` needs no thread."""
    return getattr(type(plugin), method) is not getattr(Plugin, method)


def loop_thread(name: str) -> "LoopThread":
    """A thread with an event loop."""
    from mqttcore.plugin.loop_thread import LoopThread  # it takes a third of the start

    return LoopThread(name)


def async_worker(
    thread: "LoopThread",
    queues: HookQueues,
    numbers: Sequence[int],
    chain: Chain,
    *,
    prepare: "Prepare | None" = None,
) -> "AsyncHookWorker":
    """Creates the worker of `async def` hooks on that thread."""
    from mqttcore.plugin.event_loop import AsyncHookWorker  # as above

    return AsyncHookWorker(thread, queues, numbers, chain, prepare=prepare)
