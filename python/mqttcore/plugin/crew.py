"""One set of plugins with its threads: started, watched over, stopped."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mqttcore._core import Lanes, Question
from mqttcore.errors import PluginError
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.lanes import JOIN_S
from mqttcore.plugin.stats import HookStats
from mqttcore.plugin.team import Team
from mqttcore.sessions.policy import SessionPolicy

log = logging.getLogger("mqttcore.plugins")
engine_log = logging.getLogger("mqttcore.engine")

DRAIN_S = 5.0
"""For hooks that run while their plugins are replaced; the default timeout of a hook."""
DRAIN_CHECK_S = 0.01

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
        owned = zip(plugins, self._chain.of_plugins, strict=True)
        self._teams: list[Team] = []
        try:
            for plugin, hooks in owned:
                team = Team(plugin, hooks, self._chain)
                self._start(team, may_skip=any(plugin is observer for observer in observers))
            self.lanes = self._make_lanes(sessions)
        except BaseException:
            self._stop_teams()
            raise
        observing = iter(range(len(self._teams)))
        for team in self._teams:
            team.serve(self.lanes, observer=next(observing) if team.kinds else None)
        self._watch = threading.Thread(target=self._run, name="mqttcore-log", daemon=True)
        self._watch.start()

    def hook_stats(self) -> list[HookStats]:
        """What became of the calls of each hook: who comes in first, then asks, then events."""
        return self._chain.stats()

    def close(self) -> None:
        """Refuses what waits; hooks that run may still answer."""
        self.lanes.close()

    def drain(self) -> None:
        """Stops as soon as the hooks that run have come back, or had `DRAIN_S` for it."""
        self.close()
        deadline = time.monotonic() + DRAIN_S
        while self._chain.is_deciding and time.monotonic() < deadline:
            time.sleep(DRAIN_CHECK_S)
        self.stop()

    def stop(self) -> None:
        """Refuses what waits, stops the plugins, ends the threads; leaves what a hook holds."""
        self.close()
        self._stop_teams()
        self._watch.join(JOIN_S)

    def _start(self, team: Team, *, may_skip: bool) -> None:
        try:
            team.start()
        except PluginError as error:
            if not may_skip:
                raise
            log.error("%s; going on without it", error)
            self._chain.leave_out(team.plugin)
        else:
            self._teams.append(team)

    def _make_lanes(self, sessions: Mapping[str, SessionPolicy]) -> Lanes:
        chain = self._chain
        return Lanes(
            lanes=chain.lanes,
            logins=chain.logins[0].lane if chain.logins else None,
            methods=[(method, hook.lane) for method, hook in chain.exchanges.items()],
            rules=[(hook.mark.action, hook.mark.filter, hook.lane) for hook in chain.asks],
            events=[kinds for team in self._teams if (kinds := team.kinds)],
            sessions=dict(sessions),
        )

    def _stop_teams(self) -> None:
        for team in reversed(self._teams):
            team.stop()

    def _run(self) -> None:
        while (notes := self.lanes.notes()) is not None:
            each(notes.lines, lambda line: engine_log.log(line[0], "%s", line[1]))
            each(notes.expired, lambda late: self._expired(*late))

    def _expired(self, question: Question, title: str, timeout: float) -> None:
        hook = self._chain.late_hook(question, title)
        team = next((team for team in self._teams if hook in team.hooks), None)
        is_fault = hook is None or team is None or team.is_fault(question, hook)
        self._chain.expire(question, title, timeout, is_fault=is_fault)


def each(items: Iterable[T], tell: Callable[[T], None]) -> None:
    """Tells one after the other; a log handler that raises does not end the thread."""
    for item in items:
        with contextlib.suppress(Exception):
            tell(item)
