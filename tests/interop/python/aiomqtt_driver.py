"""aiomqtt."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

import aiomqtt
from checks import KEPT_S, Message, Peer, main
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


class Aio(Peer):
    """One aiomqtt client; a task moves its messages to the inbox."""

    client: aiomqtt.Client
    reader: asyncio.Task[None]

    async def connect(self) -> bool:
        options: dict[str, Any] = {}
        if self.place.version == 5:
            kept = Properties(PacketTypes.CONNECT)
            kept.SessionExpiryInterval = 0 if self.clean else KEPT_S
            options = {"clean_start": self.clean, "properties": kept}
        else:
            options = {"clean_session": self.clean}
        if self.will:
            topic, payload = self.will
            options["will"] = aiomqtt.Will(topic, payload, 1)
        if self.place.is_encrypted:
            options["tls_context"] = ssl.create_default_context()
        if self.place.is_framed:
            options |= {"transport": "websockets", "websocket_path": "/mqtt"}
        self.client = aiomqtt.Client(
            self.place.host,
            self.place.port,
            protocol=aiomqtt.ProtocolVersion(self.place.version),
            identifier=self.client_id,
            **options,
        )
        present: list[bool] = []
        inner = self.client._client
        told = inner.on_connect

        def note(client: Any, data: Any, flags: Any, *rest: Any) -> None:  # noqa: ANN401 -- paho's
            present.append(bool(flags.session_present))
            assert told is not None
            told(client, data, flags, *rest)

        inner.on_connect = note
        await self.client.__aenter__()
        self.reader = asyncio.create_task(self._read())
        return present[0]

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for one in self.client.messages:
                assert isinstance(one.payload, bytes)
                message = Message(str(one.topic), one.payload, one.qos, one.retain)
                self.inbox.put_nowait(message)

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        await self.client.subscribe(topic_filter, qos)

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        await self.client.publish(topic, payload, qos, retain)

    async def disconnect(self) -> None:
        self.reader.cancel()
        await self.client.__aexit__(None, None, None)

    async def drop(self) -> None:
        self.reader.cancel()
        sock = self.client._client.socket()
        assert sock is not None
        self.client._client._sock_close()
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(None, None, None)


if __name__ == "__main__":
    main(Aio, "aiomqtt")
