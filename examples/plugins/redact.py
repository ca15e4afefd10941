"""Clients without user name get messages on `person/#` without the fields that name somebody."""

import json

from mqttcore.plugin import Drop, Message, Plugin, Replace, hook

PRIVATE = {"name", "phone"}


class Redact(Plugin):
    @hook.deliver("person/#")
    def redact(self, message: Message) -> Replace | Drop | None:
        if message.client.username is not None:
            return None  # users get the message as it is
        try:
            fields = json.loads(message.payload)
        except ValueError:
            return Drop()
        if not isinstance(fields, dict):
            return Drop()
        shown = {key: value for key, value in fields.items() if key not in PRIVATE}
        return Replace(payload=json.dumps(shown))
