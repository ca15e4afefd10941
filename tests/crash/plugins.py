"""A plugin of brokers that die: who a client is says what its acknowledgements mean."""

from __future__ import annotations

from typing import cast, get_args

from mqttcore.plugin import Allow, Drop, Grant, Login, Message, Plugin, Replace, hook
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


class Veil(Plugin):
    """Lets everybody in, and decides about deliveries."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"]))

    @hook.deliver("veiled/#", timeout=10)
    def veil(self, message: Message) -> Replace | Drop:
        """Marks a message, or keeps it from its subscriber."""
        if message.payload == b"refused":
            return Drop()
        return Replace(payload=message.payload + b" veiled")
