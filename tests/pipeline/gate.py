"""A gate between clients and a server: while it is shut, the server is away for them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

Outage = Literal["refused", "silent"]
"""Connections end and new ones are refused; or nothing passes, in either direction."""
CHUNK: Final = 65_536
PATIENCE_S: Final = 10.0


class Gate:
    """Passes the bytes of any number of connections on to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._may_pass = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut("refused")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def open(self) -> None:
        """The server is there, at the same port as before."""
        self._run(self._open())

    def shut(self, how: Outage) -> None:
        """The server is away until `open`."""
        self._run(self._shut(how))

    def _run(self, step: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(PATIENCE_S)

    async def _open(self) -> None:
        self._may_pass.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self, how: Outage) -> None:
        if how == "silent":
            self._may_pass.clear()
            return
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in list(self._ends):
            end.transport.abort()
        self._may_pass.set()
        await asyncio.sleep(0)  # the transports say that they are lost

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._ends.add(client)
        with contextlib.suppress(OSError):
            answers, server = await asyncio.open_connection("127.0.0.1", self.to)
            self._ends.add(server)
            await asyncio.gather(self._pass(reader, server), self._pass(answers, client))
            self._ends.discard(server)
        self._ends.discard(client)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends, which ends the other one."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._may_pass.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass(slots=True, kw_only=True)
class Outages:
    """Takes a server away for some seconds, in a way and for a time that chance decides."""

    gate: Gate
    random: random.Random
    lengths_s: tuple[float, float]
    """The shortest and the longest one."""
    told: collections.Counter[str]
    """Counts them by kind."""
    end: threading.Timer | None = None

    def begin(self) -> str:
        """Waits for the one before; returns at once, so that a kill may come meanwhile."""
        self.wait()
        kinds: tuple[Outage, ...] = ("refused", "silent")
        kind, length_s = self.random.choice(kinds), self.random.uniform(*self.lengths_s)
        self.gate.shut(kind)
        self.end = threading.Timer(length_s, self.gate.open)
        self.end.start()
        self.told[kind] += 1
        return f"store {kind} for {length_s:.1f} s"

    def wait(self) -> None:
        """Returns when the outage is over."""
        if self.end is not None:
            self.end.join()
