"""Ends loops between bridges: a user property counts the passes through this broker.

Bridges that speak MQTT 5.0 pass user properties on; MQTT 3.1.1 has none. Each message costs a call
of Python, so use a filter for the bridged topics, not `#`.
"""

from mqttcore.plugin import Drop, Message, Plugin, Replace, hook

NAME, MOST = "hops", 8


class HopCount(Plugin):
    @hook.publish("bridged/#")
    def count(self, message: Message) -> Replace | Drop:
        others = [pair for pair in message.user_properties if pair[0] != NAME]
        hops = max((int(v) for n, v in message.user_properties if n == NAME), default=0) + 1
        if hops > MOST:
            return Drop()
        return Replace(user_properties=[*others, (NAME, str(hops))])
