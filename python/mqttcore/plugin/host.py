"""The plugin host: starts, supervises and stops the plugins of one configuration."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mqttcore._core import HookQueues
from mqttcore.auditing import Entry
from mqttcore.errors import PluginError
from mqttcore.plugin.base import Invalidate, Plugin, Stored, invalidate_users
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.engine_log import EngineLog, Late
from mqttcore.plugin.plugin_workers import PluginWorkers
from mqttcore.plugin.stats import HookStats
from mqttcore.sessions.policy import SessionPolicy

if TYPE_CHECKING:
    from mqttcore.plugin.no_plugins import NoPlugins

log = logging.getLogger("mqttcore.plugins")

DRAIN_S = 5.0
"""Seconds for hooks that run while their plugins are replaced; the default timeout of a hook."""
DRAIN_CHECK_S = 0.01


class PluginHost:
    """The plugins of one configuration, their workers, and the thread that supervises them.

    Args:
        plugins: All plugins, in the order in which their hooks are asked.
        sessions: The default session policy of each listener.
        observers: Plugins that are skipped if they do not start.
        invalidate: What `Plugin.invalidate` calls.
        figures: The figures of the broker; none while it does not run.
        audit: Writes an entry of a plugin into the audit log.
        publish: `mqttcore.Broker.publish`, for plugins of this package.

    Raises:
        PluginError: a plugin did not start; the plugins before it are stopped.
    """

    def __init__(
        self,
        plugins: Sequence[Plugin],
        sessions: Mapping[str, SessionPolicy],
        *,
        observers: Sequence[Plugin] = (),
        invalidate: Invalidate | None = None,
        figures: Callable[[], Mapping[str, int]] | None = None,
        audit: Callable[[Entry], None] | None = None,
        publish: Callable[..., int] | None = None,
    ) -> None:
        self._plugins, self._invalidate = plugins, invalidate
        self._tell_health: Callable[[Sequence[str]], None] | None = None
        self._health_lock = threading.Lock()
        self._degraded: dict[str, str] = {}
        for plugin in plugins:
            plugin._invalidate, plugin._audit = invalidate, audit
            plugin._read_figures, plugin._publish = figures, publish
        self._chain = Chain(plugins)
        owned = zip(plugins, self._chain.of_plugins, strict=True)
        self._plugin_workers: list[PluginWorkers] = []
        try:
            for plugin, hooks in owned:
                workers = PluginWorkers(plugin, hooks, self._chain, report=self._report)
                self._start(workers, may_skip=any(plugin is observer for observer in observers))
            self.queues = self._make_queues(sessions)
        except BaseException:
            self._stop_workers()
            raise
        observing = iter(range(len(self._plugin_workers)))
        for workers in self._plugin_workers:
            workers.serve(self.queues, observer=next(observing) if workers.kinds else None)
        self._log = EngineLog(self.queues, expired=self._expired, stored=self._note_stored)

    def hook_stats(self) -> list[HookStats]:
        """Counters of each hook: logins first, then requests, then events."""
        return self._chain.stats()

    def forget(self) -> None:
        """Drops the cached answers to logins."""
        self._chain.forget()

    def changed_users(self, before: "PluginHost | NoPlugins | None") -> Collection[str] | None:
        """Users that may have other rights than with ``before``; None: everybody.

        Raises:
            PluginError: a plugin refuses to replace the one of ``before``.
        """
        if not isinstance(before, PluginHost):
            return ()
        changed: set[str] | None = set()
        earlier = numbered(before._plugins)
        for key, plugin in numbered(self._plugins).items():
            if key not in earlier or earlier[key] is plugin:
                continue
            try:
                users = plugin.changed_users(earlier[key])
            except Exception as error:
                what = str(error) or type(error).__name__
                raise PluginError(f"plugin {plugin.name} is as before: {what}") from error
            changed = None if changed is None or users is None else changed.union(users)
        return changed

    def invalidate(self, users: Collection[str] | None) -> None:
        """Invalidates the rights of these users; None: everybody's."""
        if self._invalidate is not None:
            invalidate_users(self._invalidate, users)

    def authorizes(self, name: str) -> bool:
        """Whether the plugin with this name, or of this module, answers about single topics.

        Raises:
            PluginError: there is no such plugin.
        """
        hooks = [hook for workers in self._named(name) for hook in workers.hooks]
        return any(hook.mark.point == "authorize" for hook in hooks)

    def _named(self, name: str) -> list[PluginWorkers]:
        found = [workers for workers in self._plugin_workers if name in names_of(workers)]
        if not found:
            raise PluginError(f"no plugin {name} runs")
        return found

    def reload_plugin(self, name: str) -> int | None:
        """Has one plugin read its files again; the others go on.

        Args:
            name: As in `HookStats.plugin`, or the module of the plugin.

        Returns:
            The number of users whose rights are asked for again; None: everybody's.

        Raises:
            PluginError: there is no such plugin, or it is as before.
        """
        changed: set[str] | None = set()
        for workers in self._named(name):
            users = workers.reload()
            self.forget()
            if self._invalidate is not None:
                invalidate_users(self._invalidate, users)
            changed = None if changed is None or users is None else changed.union(users)
        return None if changed is None else len(changed)

    def try_acl_file(self, asked: str) -> object:
        """What another ACL file would change for sessions, as JSON has it.

        Args:
            asked: JSON: the text of the file as ``acl_file``, and the ``sessions``.

        Raises:
            PluginError: no plugin has an ACL file, or several have one.
        """
        import json

        given = json.loads(asked)
        tried = (plugin._try_acl_file(**given) for plugin in self._plugins)
        found = [changes for changes in tried if changes is not None]
        if len(found) != 1:
            why = "no ACL file is in use" if not found else "several plugins have an ACL file"
            raise PluginError(why)
        return found[0]

    def close(self) -> None:
        """Refuses all queued questions; running hooks may still answer."""
        with self._health_lock:
            self._tell_health = None
        self.queues.close()

    def tell_health_to(self, tell: Callable[[Sequence[str]], None]) -> None:
        """Calls ``tell`` with the reports of degraded plugins: now, and after each call of a hook.

        Call it when these plugins are in force; until then, the old ones report.
        """
        with self._health_lock:
            self._tell_health = tell
            tell(self._reasons())

    def _report(self, hook: BoundHook, reason: str | None) -> None:
        with self._health_lock:
            if reason is None:
                self._degraded.pop(hook.title, None)
            else:
                self._degraded[hook.title] = reason
            if self._tell_health is not None:
                self._tell_health(self._reasons())

    def _reasons(self) -> list[str]:
        return [f"{title}: {why}" for title, why in sorted(self._degraded.items())]

    def drain(self) -> None:
        """Stops as soon as the running hooks have returned, or after `DRAIN_S`."""
        self.close()
        deadline = time.monotonic() + DRAIN_S
        while self._chain.is_deciding and time.monotonic() < deadline:
            time.sleep(DRAIN_CHECK_S)
        self.stop()

    def stop(self) -> None:
        """Refuses queued questions, stops the plugins, ends the threads that are not blocked."""
        self.close()
        self._log.join()  # plugins are told of the last messages before they stop
        self._stop_workers()

    def _start(self, workers: PluginWorkers, *, may_skip: bool) -> None:
        try:
            workers.start()
        except PluginError as error:
            if not may_skip:
                raise
            log.error("%s; the broker continues without it", error)
            self._chain.leave_out(workers.plugin)
        else:
            self._plugin_workers.append(workers)

    def _make_queues(self, sessions: Mapping[str, SessionPolicy]) -> HookQueues:
        chain = self._chain
        return HookQueues(
            workers=chain.workers,
            logins=first_worker(chain.logins),
            grants=first_worker(chain.of("grant")),
            methods=[(method, hook.worker) for method, hook in chain.exchanges.items()],
            rules=[
                (
                    hook.mark.action,
                    hook.mark.filter,
                    hook.worker,
                    hook.title,
                    hook.place,
                    hook.mark.may_be_tried,
                )
                for hook in chain.of("authorize")
            ],
            connects=first_worker(chain.of("connect")),
            subscribes=first_worker(chain.of("subscribe")),
            publishes=[(hook.mark.filter, hook.worker) for hook in chain.of("publish")],
            delivers=[(hook.mark.filter, hook.worker) for hook in chain.of("deliver")],
            wills=[(hook.mark.filter, hook.worker) for hook in chain.of("will")],
            controls=[(hook.mark.filter, hook.worker) for hook in chain.of("control")],
            events=[kinds for workers in self._plugin_workers if (kinds := workers.kinds)],
            counters=[hook.meter.counters for hooks in chain.of_plugins for hook in hooks],
            sessions=dict(sessions),
        )

    def _stop_workers(self) -> None:
        for workers in reversed(self._plugin_workers):
            workers.stop()

    def _note_stored(self, times: Stored) -> None:
        for plugin in self._plugins:
            plugin._note_stored(times)

    def _expired(self, late: Late) -> None:
        question, title, timeout = late
        hook = self._chain.late_hook(question, title)
        workers = next((workers for workers in self._plugin_workers if hook in workers.hooks), None)
        is_fault = hook is None or workers is None or workers.is_fault(question, hook)
        self._chain.expire(question, title, timeout, is_fault=is_fault)


def numbered(plugins: Sequence[Plugin]) -> dict[tuple[type[Plugin], int], Plugin]:
    """The plugins by their class, those of one class by their order."""
    count: Counter[type[Plugin]] = Counter()
    found: dict[tuple[type[Plugin], int], Plugin] = {}
    for plugin in plugins:
        kind = type(plugin)
        found[kind, count[kind]] = plugin
        count[kind] += 1
    return found


def names_of(workers: PluginWorkers) -> set[str]:
    """The names of a plugin for operators: that of its hooks' counters, and its module."""
    owners = {hook.title.rpartition(".")[0] for hook in workers.hooks}
    return owners | {owner.rpartition(".")[0] for owner in owners}


def first_worker(hooks: Sequence[BoundHook]) -> int | None:
    """The worker of the first of these hooks."""
    return hooks[0].worker if hooks else None
