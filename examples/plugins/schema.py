"""Refuses messages on `order/...` that are not JSON objects with the fields of an order."""

import json

from mqttcore.plugin import Deny, Message, Plugin, hook

FIELDS: dict[str, type | tuple[type, ...]] = {
    "number": int,
    "article": str,
    "price": (int, float),
}


class Schema(Plugin):
    @hook.publish("order/#")
    def check(self, message: Message) -> Deny | None:
        try:
            order = json.loads(message.payload)
        except ValueError:
            return Deny("payload_format_invalid", "an order is JSON")
        if not isinstance(order, dict):
            return Deny("payload_format_invalid", "an order is a JSON object")
        for name, kind in FIELDS.items():
            if not isinstance(order.get(name), kind):
                return Deny("payload_format_invalid", f"field {name!r} is missing or wrong")
        return None
