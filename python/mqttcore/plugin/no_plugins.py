"""The plugin host of a broker without plugins, which starts without the modules of plugins."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mqttcore._core import HookQueues
from mqttcore.errors import PluginError
from mqttcore.plugin.engine_log import EngineLog
from mqttcore.sessions.policy import SessionPolicy

if TYPE_CHECKING:
    from mqttcore.plugin.stats import HookStats


class NoPlugins:
    """Asks nobody, and writes the lines of the engine into the log, as `PluginHost` does.

    Args:
        sessions: The default session policy of each listener.
    """

    def __init__(self, sessions: Mapping[str, SessionPolicy]) -> None:
        self.queues = HookQueues(
            workers=(),
            logins=None,
            grants=None,
            methods=(),
            rules=(),
            connects=None,
            subscribes=None,
            publishes=(),
            delivers=(),
            wills=(),
            controls=(),
            events=(),
            counters=(),
            sessions=dict(sessions),
        )
        self._log = EngineLog(self.queues)

    def hook_stats(self) -> "list[HookStats]":
        """No counters."""
        return []

    def forget(self) -> None:
        """Does nothing: there are no cached answers."""

    def tell_health_to(self, tell: Callable[[Sequence[str]], None]) -> None:
        """Reports that no plugin is degraded."""
        tell([])

    def changed_users(self, _before: object) -> Collection[str] | None:
        """Nobody: rights that plugins have given stay."""
        return ()

    def invalidate(self, _users: Collection[str] | None) -> None:
        """Does nothing."""

    def authorizes(self, name: str) -> bool:
        """Refuses: there is no such plugin."""
        raise PluginError(f"no plugin {name} runs")

    def reload_plugin(self, name: str) -> int | None:
        """Refuses: there is no such plugin."""
        raise PluginError(f"no plugin {name} runs")

    def try_acl_file(self, _asked: str) -> object:
        """Refuses: no plugin has a file."""
        raise PluginError("no ACL file is in use")

    def close(self) -> None:
        """Closes the queues."""
        self.queues.close()

    def drain(self) -> None:
        """Stops."""
        self.stop()

    def stop(self) -> None:
        """Ends the thread of the log."""
        self.close()
        self._log.join()
