"""Plugins that make a broker do what no client can."""

from __future__ import annotations

import threading

from mqttcore.config import Access, Listener
from mqttcore.plugin import Allow, Ask, Deny, Grant, Limits, Login, Plugin, hook

from tests.wire import PATIENCE_S

EVERYTHING = Grant(publish=["#"], subscribe=["#"])

ASKED_ABOUT = (
    Listener(
        address="127.0.0.1:0",
        anonymous=Access(publish=("quick/#", "+/a"), subscribe=("quick/#", "slow/#", "+/a")),
    ),
)
"""Everybody may publish to `quick/#`; a plugin is asked about the rest."""


class Gatekeeper(Plugin):
    """Lets messages to `slow/#` pass, but not before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()

    @hook.authorize(action="publish", filter="slow/#", timeout=PATIENCE_S, cache=0)
    def may_publish(self, ask: Ask) -> bool:
        """Waits."""
        return self.may_answer.wait(PATIENCE_S)


class Doorkeeper(Plugin):
    """Lets in who has the password `open`; tells all others `text`.

    The listener lets those in that name no user, so that a bystander is not asked.
    """

    def __init__(self, text: str | None = None, *, limits: Limits | None = None) -> None:
        super().__init__()
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
