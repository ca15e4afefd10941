"""An HTTP service for tests: answers with what a test says, byte by byte if it wants to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

Answer = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the service got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Its body, if it is JSON."""
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        """Its body, if it is a form."""
        return dict(urllib.parse.parse_qsl(self.body.decode(), strict_parsing=True))


def reply(status: int, body: object = b"", *headers: str) -> Answer:
    """A whole answer; what is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(data)}", *headers, "", ""]

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + data)

    return answer


def raw(data: bytes, *, closes: bool = True) -> Answer:
    """Bytes that need not be HTTP; then the connection is closed, or left open."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if closes:
            await writer.drain()
            writer.close()

    return answer


async def silence(_: Request, _writer: asyncio.StreamWriter) -> None:
    """No answer, until the service ends."""
    await asyncio.Event().wait()


@dataclass
class HttpService:
    """What answers; change `answer` at any time."""

    answer: Answer
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def url(self, path: str = "/login", *, scheme: str = "http") -> str:
        """Where it listens."""
        return f"{scheme}://localhost:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self.tasks.add(task)
        try:
            while not writer.is_closing():
                request = await read_request(reader)
                self.requests.append(request)
                await self.answer(request, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def end(self) -> None:
        """Closes all connections."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """One request from its first to its last byte."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, body)


@contextlib.asynccontextmanager
async def http_service(
    answer: Answer, *, context: ssl.SSLContext | None = None
) -> AsyncIterator[HttpService]:
    """A service on a free port of this machine."""
    service = HttpService(answer)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, ssl=context)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        await service.end()
