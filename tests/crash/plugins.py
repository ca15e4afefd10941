"""A plugin of brokers that die: who a client is says how safe what it does is."""

from __future__ import annotations

from typing import cast, get_args

from mqttcore.plugin import Allow, Grant, Login, Plugin, hook
from mqttcore.sessions import Promise


class Wishes(Plugin):
    """Gives each client the promise that it names as its user name."""

    @hook.authenticate()
    def login(self, ask: Login) -> Allow:
        """Lets everybody in."""
        wish = ask.username if ask.username in get_args(Promise) else None
        promise = cast(Promise | None, wish)
        return Allow(Grant(publish=["#"], subscribe=["#"], promise=promise))
