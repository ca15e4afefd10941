"""Plugins for brokers of a test's own: who is let in, and what anybody may do, is the test's."""

from __future__ import annotations

from mqttcore.plugin import Allow, Deny, Grant, Limits, Login, Plugin, hook

EVERYTHING = Grant(publish=["#"], subscribe=["#"])


class Doorkeeper(Plugin):
    """Lets in who has the password `open`; tells all others `text`.

    The listener lets those in that name no user, so that a bystander is not asked.
    """

    def __init__(self, text: str | None = None, *, limits: Limits | None = None) -> None:
        self._text = text
        self._grant = EVERYTHING
        if limits is not None:
            self._grant = Grant(publish=["#"], subscribe=["#"], limits=limits)

    @hook.authenticate()
    def login(self, login: Login) -> Allow | Deny:
        """Decides by the password alone."""
        if login.password == b"open":
            return Allow(self._grant)
        return Deny("not_authorized", self._text)
