"""The threads of one plugin: they run no other plugin's hooks, and those that hang are replaced."""

import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mqttcore._core import Lanes, Question
from mqttcore.errors import PluginError
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.chain import BoundHook, Chain
from mqttcore.plugin.lanes import EventLane, SyncLane

if TYPE_CHECKING:
    from mqttcore.plugin.event_loop import AsyncLane, Prepare
    from mqttcore.plugin.loop_thread import LoopThread

log = logging.getLogger("mqttcore.plugins")

LOOP, LOOP_OF_EVENTS = "mqttcore-hooks-async", "mqttcore-events-async"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
"""For a plugin that has something to finish; a second Ctrl-C ends `serve` at once."""


class Team:
    """A plugin and the threads that run its hooks, its start and its stop.

    Coroutines that decide run on one event loop, those that are told events on another one: none
    of the latter can hold up a client. Start and stop run on the first of them that there is.
    """

    def __init__(self, plugin: Plugin, hooks: Sequence[BoundHook], chain: Chain) -> None:
        self.plugin = plugin
        self.hooks = hooks
        self._chain = chain
        self._asked = [hook for hook in hooks if hook.mark.point != "events"]
        self._told = [hook for hook in hooks if hook.mark.point == "events"]
        self._sync: SyncLane | None = None
        self._async: AsyncLane | None = None
        self._events: EventLane | None = None
        self._held: list[AsyncLane] = []
        self._home: LoopThread | None = None
        self._loop_of_events: LoopThread | None = None
        self._lanes: Lanes | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of events that it is told."""
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

    def serve(self, lanes: Lanes, *, observer: int | None) -> None:
        """Begins to ask and to tell; ``observer`` is the number of its queue of events."""
        self._lanes = lanes
        if (number := self._lane(is_async=False)) is not None:
            self._sync = SyncLane(lanes, number, self._chain)
        if (number := self._lane(is_async=True)) is not None:
            self._async = async_lane(self._at_home(), lanes, number, self._chain)
        if observer is not None:
            self._events = EventLane(
                lanes, observer, self._told, self._chain, new_loop=self._new_loop_of_events
            )

    def is_fault(self, question: Question, hook: BoundHook) -> bool:
        """Whether a question that was refused for lateness was ``hook``'s own fault.

        A thread that is held is replaced first.
        """
        if hook.mark.is_async:
            return self._is_fault_on_loop(question, hook)
        if (
            self._lanes is not None
            and self._sync is not None
            and self._sync.retire_if_held_by(question, hook)
            and self._chain.hold(hook)
        ):
            self._sync = SyncLane(self._lanes, hook.lane, self._chain)
        return True

    def _is_fault_on_loop(self, question: Question, hook: BoundHook) -> bool:
        for held in self._held:
            if held.has(question):
                return held.is_held_by(question)
        lane, lanes = self._async, self._lanes
        if lanes is None or lane is None or not lane.is_stuck():
            return True
        culprit = lane.held_by()
        holder = hook if culprit is None else self._chain.next_hook(culprit) or hook
        if self._chain.hold(holder):
            lane.retire(culprit, holder.breaker.let_go)
            self._held = [*(held for held in self._held if held.is_alive), lane]
            self._home = loop_thread(LOOP)
            self._async = async_lane(
                self._home, lanes, hook.lane, self._chain, prepare=self._start_again
            )
        return culprit is not None and culprit.is_same(question)

    def stop(self) -> None:
        """Stops the plugin and ends the threads; those that a hook holds are left behind."""
        for lane in (self._sync, self._events):
            if lane is not None:
                lane.join()
        try:
            if is_own(self.plugin, "stop"):
                home = self._at_home()
                if home.is_stuck():
                    raise TimeoutError("a hook holds its event loop")
                home.call(self.plugin.stop, timeout=STOP_TIMEOUT_S)
        except Exception:  # the others are stopped all the same
            log.warning("plugin %s did not stop cleanly", self.plugin.name, exc_info=True)
        self.end()

    def end(self) -> None:
        """Ends the event loops."""
        for loop in {self._home, self._loop_of_events}:
            if loop is not None:
                loop.stop()

    def _lane(self, *, is_async: bool) -> int | None:
        lanes = (hook.lane for hook in self._asked if hook.mark.is_async == is_async)
        return next(lanes, None)

    def _at_home(self) -> "LoopThread":
        """The event loop of start and stop, and of the coroutines that decide if there are any."""
        if self._home is None:
            self._home = loop_thread(LOOP)
        return self._home

    def _new_loop_of_events(self) -> "LoopThread":
        """An event loop for `async def` hooks of events, in the place of the last one."""
        if self._lane(is_async=True) is not None:
            self._loop_of_events = loop_thread(LOOP_OF_EVENTS)
        elif self._loop_of_events is None:
            self._loop_of_events = self._at_home()
        else:
            self._home = self._loop_of_events = loop_thread(LOOP)
            with contextlib.suppress(TimeoutError):
                self._home.call(self._start_again, timeout=START_TIMEOUT_S)
        return self._loop_of_events

    async def _start_again(self) -> None:
        """Starts the plugin once more: what it opened belongs to the event loop that is held."""
        try:
            await self.plugin.start()
        except Exception:
            log.exception("plugin %s did not start on its new event loop", self.plugin.name)


def is_own(plugin: Plugin, method: str) -> bool:
    """Whether a plugin has something to do there: what `Plugin` does itself needs no thread."""
    return getattr(type(plugin), method) is not getattr(Plugin, method)


def loop_thread(name: str) -> "LoopThread":
    """A thread with an event loop."""
    from mqttcore.plugin.loop_thread import LoopThread  # it takes a third of the start

    return LoopThread(name)


def async_lane(
    thread: "LoopThread",
    lanes: Lanes,
    number: int,
    chain: Chain,
    *,
    prepare: "Prepare | None" = None,
) -> "AsyncLane":
    """Asks `async def` hooks on that thread."""
    from mqttcore.plugin.event_loop import AsyncLane  # as above

    return AsyncLane(thread, lanes, number, chain, prepare=prepare)
