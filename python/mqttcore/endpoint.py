"""Actions of a running broker for the operators that ask its HTTP endpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqttcore.broker import Broker
from mqttcore.errors import ConfigError, MqttError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqttcore.config.reading import Loaded
    from mqttcore.plugin.host import PluginHost
    from mqttcore.plugin.no_plugins import NoPlugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Each takes a text and returns what becomes JSON."""

    broker: Broker
    loaded: Loaded
    """The configuration in force."""
    read: Callable[[str | None], Loaded]
    """Reads the configuration that a reload would read, or one with this text as its file."""
    plugin_host: PluginHost | NoPlugins | None

    def call(self, action: str, argument: str) -> object:
        """Does an action by its name."""
        actions: dict[str, Callable[[str], object]] = {
            "config": self.config,
            "check": self.check,
            "risks": self.risks,
            "reload": self.reload,
            "invalidate": self.invalidate,
            "reload_plugin": self.reload_plugin,
            "try_acl_file": lambda text: self.plugin_host and self.plugin_host.try_acl_file(text),
        }
        return actions[action](argument)

    def config(self, _: str) -> object:
        """The keys of the configuration in force, with their values and sources."""
        from mqttcore.config.effective import effective

        return [vars(key) for key in effective(self.loaded)]

    def check(self, text: str) -> object:
        """Errors and warnings of another configuration."""
        try:
            warnings = Broker(self.read(text or None).settings).check()
        except MqttError as error:
            faults = error.faults if isinstance(error, ConfigError) else [str(error)]
            return {"errors": list(faults), "warnings": []}
        return {"errors": [], "warnings": warnings}

    def risks(self, _: str) -> object:
        """The risks of the settings in force, as warnings of the endpoint."""
        from mqttcore.risks import find_risks

        return [
            {"code": risk.subject, "text": risk.what, "fix": risk.remedy}
            for risk in find_risks(self.broker.settings)
        ]

    def reload(self, _: str) -> object:
        """Reads the configuration again."""
        found = self.broker.reload_origin()
        return {"changed": list(found.applied), "needs_restart": list(found.restart)}

    def invalidate(self, text: str) -> object:
        """Invalidates the rights of clients."""
        return {"connected": self.broker.invalidate(**json.loads(text))}

    def reload_plugin(self, name: str) -> object:
        """Has a plugin read its files again."""
        return {"changed_users": self.plugin_host and self.plugin_host.reload_plugin(name)}
