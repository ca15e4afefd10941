"""Adds the time of arrival and the client to each JSON object on `sensor/...`."""

import json
import time

from mqttcore.plugin import Message, Plugin, Replace, hook


class Stamp(Plugin):
    @hook.publish("sensor/#")
    def stamp(self, message: Message) -> Replace | None:
        try:
            fields = json.loads(message.payload)
        except ValueError:
            return None  # not JSON: it is published as it is
        if not isinstance(fields, dict):
            return None
        stamp = {"received_at": time.time(), "client": message.client.client_id}
        return Replace(payload=json.dumps({**fields, **stamp}))
