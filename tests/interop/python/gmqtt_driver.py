"""gmqtt: 3.1.1 and 5.0, over TCP and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any

import gmqtt
from checks import KEPT_S, PATIENCE_S, Message, Peer, main

logging.getLogger("gmqtt").setLevel(logging.CRITICAL)


class Gmqtt(Peer):
    """One gmqtt client."""

    client: gmqtt.Client
    subscribed: asyncio.Queue[Any]

    async def connect(self) -> bool:
        self.subscribed = asyncio.Queue()
        options: dict[str, Any] = {}
        if self.will:
            options["will_message"] = gmqtt.Message(*self.will, qos=1, will_delay_interval=0)
        if not self.clean:
            options["session_expiry_interval"] = KEPT_S
        self.client = gmqtt.Client(self.client_id, clean_session=self.clean, **options)
        flags: asyncio.Queue[int] = asyncio.Queue()
        self.client.on_connect = lambda _c, found, _r, _p: flags.put_nowait(found)
        self.client.on_subscribe = lambda _c, _m, reasons, _p: self.subscribed.put_nowait(reasons)
        self.client.on_message = self._note
        await self.client.connect(
            self.place.host,
            self.place.port,
            ssl=ssl.create_default_context() if self.place.is_encrypted else False,
            version=self.place.version,
        )
        return bool(await asyncio.wait_for(flags.get(), PATIENCE_S))

    async def _note(self, _c: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:  # noqa: ANN401 -- gmqtt's
        self.inbox.put_nowait(Message(topic, bytes(payload), qos, bool(properties["retain"])))
        return 0

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        self.client.subscribe(topic_filter, qos)
        reasons = await asyncio.wait_for(self.subscribed.get(), PATIENCE_S)
        if max(reasons) >= 0x80:
            raise ConnectionError(str(reasons))

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain)

    async def disconnect(self) -> None:
        # It leaves before the last flows have ended; asyncio calls what still comes a fault of TLS.
        with contextlib.suppress(ssl.SSLError):
            await self.client.disconnect()

    async def drop(self) -> None:
        self.client._is_active = False
        self.client._connection._transport.abort()


if __name__ == "__main__":
    main(Gmqtt, "gmqtt")
