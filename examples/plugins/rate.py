"""A rate limit for each user, over all of its clients: messages above it are refused.

`Limits(messages_per_second=)` in a grant limits each client, without Python.
"""

import time

from mqttcore.plugin import Deny, Message, Plugin, PluginConfig, hook


class Rate(Plugin):
    class Config(PluginConfig):
        messages_per_second: float = 100.0

    config: Config

    async def start(self) -> None:
        self.left: dict[str | None, tuple[float, float]] = {}

    @hook.publish("#")
    def limit(self, message: Message) -> Deny | None:
        rate, now, user = self.config.messages_per_second, time.monotonic(), message.client.username
        tokens, since = self.left.get(user, (rate, now))
        tokens = min(rate, tokens + (now - since) * rate)
        if tokens < 1:
            return Deny("quota_exceeded", "more messages a second than this user may publish")
        self.left[user] = (tokens - 1, now)
        return None
