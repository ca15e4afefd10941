"""amqtt's client: 3.1.1 only."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from amqtt.client import MQTTClient
from checks import Message, Peer, main

logging.disable(logging.CRITICAL)


class Amqtt(Peer):
    """One amqtt client; a task moves its messages to the inbox."""

    client: MQTTClient
    reader: asyncio.Task[None]

    async def connect(self) -> bool | None:
        config: dict[str, Any] = {"auto_reconnect": False, "keep_alive": 30}
        if self.will:
            topic, payload = self.will
            config["will"] = {
                "topic": topic,
                "message": payload.decode(),
                "qos": 1,
                "retain": False,
            }
        self.client = MQTTClient(self.client_id, config=config)
        scheme, path = ("ws", "/mqtt") if self.place.is_framed else ("mqtt", "/")
        options: dict[str, Any] = {}
        if self.place.is_encrypted:
            scheme += "s"
            options["cafile"] = os.environ["SSL_CERT_FILE"]
        uri = f"{scheme}://{self.place.host}:{self.place.port}{path}"
        await self.client.connect(uri, cleansession=self.clean, **options)
        self.reader = asyncio.create_task(self._read())
        return None  # the library keeps the flag to itself

    async def _read(self) -> None:
        while True:
            one = await self.client.deliver_message()
            if one is not None:
                packet = one.publish_packet
                self.inbox.put_nowait(
                    Message(one.topic, bytes(one.data), one.qos, packet.retain_flag)
                )

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        [reason] = await self.client.subscribe([(topic_filter, qos)])
        if reason >= 0x80:
            raise ConnectionError(str(reason))

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        await self.client.publish(topic, payload, qos, retain)

    async def disconnect(self) -> None:
        self.reader.cancel()
        await self.client.disconnect()

    async def drop(self) -> None:
        self.reader.cancel()
        await self.client._handler.writer.close()


if __name__ == "__main__":
    main(Amqtt, "amqtt")
