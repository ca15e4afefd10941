"""paho-mqtt, whose network loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import paho.mqtt.client as paho
from checks import KEPT_S, PATIENCE_S, Message, Peer, main
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


class Paho(Peer):
    """One paho client; its callbacks are passed on to the event loop."""

    client: paho.Client
    answers: asyncio.Queue[Any]

    def _make(self) -> paho.Client:
        options = {} if self.place.version == 5 else {"clean_session": self.clean}
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            self.client_id,
            protocol=MQTTProtocolVersion(self.place.version),
            transport="websockets" if self.place.is_framed else "tcp",
            **options,
        )
        if self.place.is_encrypted:
            client.tls_set_context(ssl.create_default_context())
        loop = asyncio.get_running_loop()

        def pass_on(queue: asyncio.Queue[Any], item: Any) -> None:  # noqa: ANN401 -- paho's
            loop.call_soon_threadsafe(queue.put_nowait, item)

        client.on_connect = lambda _c, _u, flags, reason, _p: pass_on(self.answers, (flags, reason))
        client.on_subscribe = lambda _c, _u, _m, reasons, _p: pass_on(self.answers, reasons)
        client.on_message = lambda _c, _u, one: pass_on(
            self.inbox, Message(one.topic, bytes(one.payload), one.qos, one.retain)
        )
        if self.will:
            topic, payload = self.will
            client.will_set(topic, payload, qos=1)
        return client

    async def connect(self) -> bool:
        self.answers = asyncio.Queue()
        self.client = self._make()
        options: dict[str, Any] = {}
        if self.place.version == 5:
            kept = Properties(PacketTypes.CONNECT)
            kept.SessionExpiryInterval = 0 if self.clean else KEPT_S
            options = {"clean_start": self.clean, "properties": kept}
        self.client.connect(self.place.host, self.place.port, **options)
        self.client.loop_start()
        flags, reason = await asyncio.wait_for(self.answers.get(), PATIENCE_S)
        if reason.is_failure:
            raise ConnectionError(str(reason))
        return bool(flags.session_present)

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        self.client.subscribe(topic_filter, qos)
        [reason] = await asyncio.wait_for(self.answers.get(), PATIENCE_S)
        if reason.is_failure:
            raise ConnectionError(str(reason))

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        info = self.client.publish(topic, payload, qos, retain)
        await asyncio.to_thread(info.wait_for_publish, PATIENCE_S)
        if not info.is_published():
            raise TimeoutError("the publish did not end")

    async def disconnect(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)

    async def drop(self) -> None:
        await asyncio.to_thread(self.client.loop_stop)
        sock = self.client.socket()
        assert sock is not None
        sock.close()


if __name__ == "__main__":
    main(Paho, "paho-mqtt")
