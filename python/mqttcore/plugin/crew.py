"""One set of plugins with its threads: started, watched over, stopped."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mqttcore._core import Lanes, Question
from mqttcore.errors import PluginError
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.lanes import JOIN_S, EventLane, SyncLane
from mqttcore.plugin.stats import HookStats
from mqttcore.sessions.policy import SessionPolicy

if TYPE_CHECKING:
    from mqttcore.plugin.event_loop import AsyncLane

log = logging.getLogger("mqttcore.plugins")
engine_log = logging.getLogger("mqttcore.engine")

STUCK_MAX = 4
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
"""For a plugin that has something to finish; a second Ctrl-C ends `serve` at once."""

T = TypeVar("T")


class Crew:
    """The plugins of one configuration, the threads that run them, and the one that watches.

    Args:
        plugins: All of them, in the order in which they are asked.
        sessions: Each listener's default policy.
        observers: Those without which it goes on when they do not start.

    Raises:
        PluginError: a plugin did not start; those before it are stopped again.
    """

    def __init__(
        self,
        plugins: Sequence[Plugin],
        sessions: Mapping[str, SessionPolicy],
        *,
        observers: Sequence[Plugin] = (),
    ) -> None:
        self._chain = Chain(plugins)
        self._plugins: list[Plugin] = []
        self._stuck: list[SyncLane] = []
        self._async = event_loop(self._chain) if plugins else None
        try:
            for plugin in plugins:
                self._start(plugin, may_skip=any(plugin is observer for observer in observers))
        except BaseException:
            self._stop_plugins()
            raise
        self.lanes = Lanes(
            logins_async=first_lane(self._chain),
            methods=list(self._chain.exchanges),
            rules=[
                (hook.mark.action, hook.mark.filter, hook.mark.is_async)
                for hook in self._chain.asks
            ],
            events=sorted({kind for hook in self._chain.events for kind in hook.mark.kinds}),
            sessions=dict(sessions),
        )
        has_sync = any(not hook.mark.is_async for hook in [*self._chain.logins, *self._chain.asks])
        self._sync = SyncLane(self.lanes, self._chain) if has_sync else None
        self._events = (
            EventLane(self.lanes, self._chain, self._async) if self._chain.events else None
        )
        if self._async is not None:
            self._async.serve(self.lanes)
        self._watch = threading.Thread(target=self._run, name="mqttcore-log", daemon=True)
        self._watch.start()

    def hook_stats(self) -> list[HookStats]:
        """What became of the calls of each hook: who comes in first, then asks, then events."""
        return self._chain.stats()

    def stop(self) -> None:
        """Refuses what waits, stops the plugins, ends the threads; leaves what a hook holds."""
        self.lanes.close()
        for lane in (self._sync, self._events):
            if lane is not None:
                lane.join()
        self._stop_plugins()
        self._watch.join(JOIN_S)

    def _start(self, plugin: Plugin, *, may_skip: bool) -> None:
        if self._async is None:
            return
        try:
            self._async.call(plugin.start, timeout=START_TIMEOUT_S)
        except Exception as error:
            what = f"plugin {plugin.name} did not start: {str(error) or type(error).__name__}"
            if not may_skip:
                raise PluginError(what) from error
            log.error("%s; going on without it", what)
            self._chain.leave_out(plugin)
        else:
            self._plugins.append(plugin)

    def _stop_plugins(self) -> None:
        if self._async is None:
            return
        for plugin in reversed(self._plugins):
            try:
                self._async.call(plugin.stop, timeout=STOP_TIMEOUT_S)
            except Exception:  # the others are stopped all the same
                log.warning("plugin %s did not stop cleanly", plugin.name, exc_info=True)
        self._async.stop()

    def _run(self) -> None:
        while (notes := self.lanes.notes()) is not None:
            each(notes.lines, lambda line: engine_log.log(line[0], "%s", line[1]))
            each(notes.expired, lambda late: self._expired(*late))
            if dropped := self.lanes.take_dropped_events():
                log.warning("%d events were dropped: event hooks are too slow", dropped)

    def _expired(self, question: Question, hook: str, timeout: float) -> None:
        self._chain.expire(question, hook, timeout)
        lane = self._sync
        if lane is None or not lane.is_stuck_in(question):
            return
        self._stuck = [stuck for stuck in self._stuck if stuck.is_held]
        if len(self._stuck) >= STUCK_MAX:
            log.error("plugin %s holds %d threads; no more are started", hook, STUCK_MAX)
            return
        log.warning("plugin %s holds its thread; another one takes over", hook)
        lane.retire()
        self._stuck.append(lane)
        self._sync = SyncLane(self.lanes, self._chain)


def event_loop(chain: Chain) -> "AsyncLane":
    """The thread of the `async def` hooks."""
    from mqttcore.plugin.event_loop import AsyncLane  # it takes a third of the start

    return AsyncLane(chain)


def first_lane(chain: Chain) -> bool | None:
    """Whether a login starts on the event loop; None: no plugin authenticates."""
    return chain.logins[0].mark.is_async if chain.logins else None


def each(items: Iterable[T], tell: Callable[[T], None]) -> None:
    """Tells one after the other; a log handler that raises does not end the thread."""
    for item in items:
        with contextlib.suppress(Exception):
            tell(item)
