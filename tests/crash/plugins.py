"""A plugin of brokers that die: who a client is says what its acknowledgements mean."""

from __future__ import annotations

from typing import cast, get_args

from mqttcore.plugin import Allow, Grant, Login, Plugin, hook
from mqttcore.sessions import Durability, FullQueuePolicy


class Wishes(Plugin):
    """Gives each client the durability, or the policy of full queues, that its user name names."""

    @hook.authenticate()
    def login(self, ask: Login) -> Allow:
        """Lets everybody in."""
        wish = ask.username
        durability = cast(Durability | None, wish if wish in get_args(Durability) else None)
        policy = cast(FullQueuePolicy | None, wish if wish in get_args(FullQueuePolicy) else None)
        return Allow(
            Grant(publish=["#"], subscribe=["#"], durability=durability, queue_policy=policy)
        )
