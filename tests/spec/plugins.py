"""Plugins that make a broker do what no client can."""

from __future__ import annotations

import threading

from mqttcore.config import Access, Listener
from mqttcore.plugin import Ask, Plugin, hook

from tests.wire import PATIENCE_S

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
