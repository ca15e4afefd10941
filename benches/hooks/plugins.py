"""Plugins that do as little as possible, so that the broker's own cost is measured."""

from __future__ import annotations

import time

from mqttcore.plugin import Allow, Deny, Grant, Login, Message, Plugin, hook

EVERYTHING = Grant(publish=["#"], subscribe=["#"])
HANG_S = 5.0


class Granting(Plugin):
    """A coroutine lets everybody in."""

    @hook.authenticate
    async def login(self, _: Login) -> Allow:
        """Lets in."""
        return Allow(EVERYTHING)


class Watching(Granting):
    """It also has a publish hook that leaves each message as it is."""

    @hook.publish("hook/#")
    def leave(self, _: Message) -> None:
        """Passes."""


class Revoking(Granting):
    """It lets nobody stay."""

    @hook.grant
    def present(self, _: Login) -> Deny:
        """Denies."""
        return Deny()


class Hanging(Plugin):
    """A `def` hook that blocks its thread for clients named "hang"."""

    @hook.authenticate(timeout=HANG_S + 1)
    def login(self, login: Login) -> Allow:
        """Lets in, or blocks before."""
        if login.username == "hang":
            time.sleep(HANG_S)
        return Allow(EVERYTHING)
