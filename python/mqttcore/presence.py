"""Presence of clients: a message below ``$SYS`` for each client that comes or goes.

    [[plugins]]
    use = "mqttcore.presence"

``$SYS/broker/clients/ID/connected`` and ``$SYS/broker/clients/ID/disconnected`` get a JSON object
each time; subscribers need a permission for ``$SYS/broker/clients/#``. ID is the client identifier
with ``%25`` for ``%`` and ``%2F`` for ``/``, so that it is one level of the topic.

Messages are not retained: `mqttcore clients` and the HTTP API list the clients of now. When a
connection takes over the session of another one, ``disconnected`` of the older may come behind
``connected``; their ports differ.
"""

import json
import logging
from collections.abc import Sequence
from typing import Annotated, Final

from mqttcore._core import Event
from mqttcore._schema import Range
from mqttcore.errors import MqttError, StoppedError
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.limited_log import LimitedLog
from mqttcore.plugin.options import PluginConfig

log = LimitedLog(logging.getLogger(__name__))

ESCAPES: Final = str.maketrans({"%": "%25", "/": "%2F"})
"""Characters that no level of a topic may have; of a client with ``+`` or ``#`` in its identifier,
which needs ``client_id_strict = false``, nothing is published, and a log line says so."""


class Presence(Plugin):
    """Publishes a message for each client that connects or disconnects."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``."""

        qos: Annotated[int, Range(0, 2)] = 0
        """QoS of the messages; with 1 or 2, kept sessions queue them while their client is
        offline."""

    config: Config

    @hook.events("connected", "disconnected")
    def tell(self, events: Sequence[Event]) -> None:
        """Publishes the messages of these events, in their order."""
        for event in events:
            try:
                self._tell(event)
            except StoppedError:
                return
            except MqttError as error:  # as a client identifier that is too long for a topic
                text = "client %r %s: not published: %s"
                log.warn(event.kind, text, event.client_id, event.kind, error)

    def _tell(self, event: Event) -> None:
        if self._publish is None:
            return
        topic = f"$SYS/broker/clients/{event.client_id.translate(ESCAPES)}/{event.kind}"
        text = json.dumps(fields(event), ensure_ascii=False)
        self._publish(topic, text, qos=self.config.qos, content_type="application/json")


def fields(event: Event) -> dict[str, str | int]:
    """The keys of a message, and only those that are known."""
    ip, port = event.peer or (None, None)
    found: dict[str, str | int | None] = {
        "ts_ms": round(event.at * 1_000),
        "client_id": event.client_id,
        "username": event.username,
        "ip": ip,
        "port": port,
        "reason_code": event.reason if event.kind == "disconnected" else None,
    }
    return {key: value for key, value in found.items() if value is not None}
