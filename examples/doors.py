"""A plugin: authenticates doors, decides single requests, receives events.

`doors.toml` beside this file uses it:

    cd examples && mqttcore serve -c doors.toml
"""

import logging
from collections.abc import Sequence

from mqttcore.plugin import (
    Allow,
    Ask,
    Deny,
    Event,
    Grant,
    Limits,
    Login,
    Plugin,
    PluginConfig,
    Secret,
    SessionPolicy,
    hook,
)

log = logging.getLogger(__name__)


class Doors(Plugin):
    """Doors report their state; guards on duty may open them."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``; the broker refuses any other."""

        token: Secret[str]
        """The password of every door."""
        guards: tuple[str, ...] = ()
        """User names of the guards on duty."""

    config: Config

    async def start(self) -> None:
        """If a plugin cannot work, it raises here, and the broker does not start."""
        log.info("guards on duty: %s", ", ".join(self.config.guards) or "nobody")

    @hook.authenticate(timeout=2.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Asked once for each CONNECT; Rust enforces the answer for every message."""
        if login.username in self.config.guards:
            return Allow(Grant(subscribe=["door/#"]))
        if login.username != "door":
            return None  # not mine: the next plugin is asked, and at the end it is a no
        if not self.config.token.matches(login.password):
            return Deny("bad_credentials")
        return Allow(
            Grant(
                publish=[f"door/{login.client_id}/state"],
                subscribe=[f"door/{login.client_id}/open"],
                limits=Limits(max_qos=1, messages_per_second=50),
                session=SessionPolicy(expiry_max_s=3600),
            )
        )

    @hook.authorize(action="publish", filter="door/+/open", cache=0)
    def may_open(self, ask: Ask) -> bool | None:
        """Asked about publishes that the filter matches and no grant covers."""
        return ask.client.username in self.config.guards

    @hook.events("connected", "disconnected", "denied")
    def record(self, events: Sequence[Event]) -> None:
        """Gets events in batches; nothing waits for it."""
        for event in events:
            log.info("%s %s %s", event.kind, event.client_id, event.topic or "")
