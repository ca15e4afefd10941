"""Actions of a running broker for the operators that ask its HTTP endpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mqttcore._record import Record
from mqttcore.broker import Broker
from mqttcore.config.faults import fault_items
from mqttcore.errors import MqttError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqttcore.changes import Changes
    from mqttcore.config.reading import Loaded
    from mqttcore.plugin.host import PluginHost
    from mqttcore.plugin.no_plugins import NoPlugins


class Actions(Record):
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
        """Errors and warnings of another configuration, and what a reload would change."""
        try:
            settings = self.read(text or None).settings
            warnings = Broker(settings).check()
        except MqttError as error:
            none: dict[str, object] = {"warnings": [], "changed": [], "needs_restart": []}
            return {"errors": fault_items(error), **none}
        return {"errors": [], "warnings": warnings, **named(self.broker.preview(settings))}

    def risks(self, _: str) -> object:
        """The risks of the settings in force, as warnings of the endpoint."""
        from mqttcore.risks import find_risks

        return [
            {
                "code": risk.subject,
                "text": risk.what,
                "fix": risk.remedy,
                "view_text": risk.view_text,
            }
            for risk in find_risks(self.broker.settings)
        ]

    def reload(self, _: str) -> object:
        """Reads the configuration again."""
        return named(self.broker.reload_origin())

    def invalidate(self, text: str) -> object:
        """Invalidates the rights of clients."""
        return {"connected": self.broker.invalidate(**json.loads(text))}

    def reload_plugin(self, name: str) -> object:
        """Has a plugin read its files again."""
        return {"changed_users": self.plugin_host and self.plugin_host.reload_plugin(name)}


def named(found: Changes) -> dict[str, object]:
    """Changes as JSON."""
    return {"changed": list(found.applied), "needs_restart": list(found.restart)}
