"""Plugins that make a broker do what no client can."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mqttcore.config import Access, Listener
from mqttcore.plugin import Allow, Ask, Deny, Exchange, Grant, Limits, Login, Plugin, hook

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


class Broken(Plugin):
    """Fails when it is asked about `slow/#`, until it is mended."""

    is_mended = False

    @hook.authorize(action="publish", filter="slow/#", cache=0)
    def may_publish(self, ask: Ask) -> bool:
        """Raises."""
        if not self.is_mended:
            raise RuntimeError("broken on purpose")
        return True


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


QUESTION, ANSWER, WELCOME = b"six times seven?", b"42", b"well said"


class Riddle(Plugin):
    """Enhanced authentication by the method RIDDLE: a question until it is answered.

    Who says `friend` at once is let in, who says `foe` is not; who answers wrongly is asked again,
    and who answers nothing is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text: str | None = None
        self.user_properties: Sequence[tuple[str, str]] = ()

    @hook.enhanced_auth("RIDDLE")
    async def lead(self, exchange: Exchange) -> Allow | Deny:
        """Asks."""
        said = exchange.data
        while said not in (ANSWER, b"friend"):
            if said == b"foe":
                return Deny("banned", "no foes")
            said = await exchange.challenge(QUESTION, text=self.text)
            if not said:
                return Deny("not_authorized", "no answer")
        return Allow(EVERYTHING, data=WELCOME, user_properties=self.user_properties)
