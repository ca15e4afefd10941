"""Servers that hang or go away after the start: failures in time, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from mqttcore.auth.backend import BackendError, BackendPlugin
from mqttcore.auth.ldap import Ldap
from mqttcore.auth.redis import RedisUsers
from mqttcore.auth.sql import Sql
from mqttcore.plugin import Login
from mqttcore.testing import async_harness

from tests.services.servers import SUFFIX
from tests.services.state import HOST, PASSWORD, USER, Running

QUERY = (
    "SELECT username, 'x' AS password_hash FROM (SELECT :username AS username) AS users"
    " WHERE username = 'x'"
)


class Proxy:
    """A way to a server that can be cut, or left open without a byte that passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.port = 0
        self.passes = asyncio.Event()
        self.passes.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        there, back = await asyncio.open_connection(HOST, self._port)
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self.passes.wait()
                target.write(data)
                await target.drain()
        target.close()

    async def cut(self) -> None:
        """Closes all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a port."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.cut()


def config_of(name: str, port: int) -> tuple[type[BackendPlugin], Mapping[str, object]]:
    """A plugin, and its keys."""
    if name == "redis":
        return RedisUsers, {"url": f"redis://{HOST}:{port}", "password": PASSWORD}
    if name == "slapd":
        reader = {"bind_dn": f"cn=reader,{SUFFIX}", "password": PASSWORD}
        return Ldap, {"url": f"ldap://{HOST}:{port}", "base": f"ou=people,{SUFFIX}", **reader}
    database = "postgres" if name == "postgresql" else USER
    url = f"{name}://{USER}:{PASSWORD}@{HOST}:{port}/{database}"
    return Sql, {"url": url, "user_query": QUERY}


@pytest.mark.parametrize("name", ["postgresql", "mariadb", "redis", "slapd"])
def test_a_server_that_hangs_or_goes_away_is_a_failure_until_it_is_back(
    name: str, service: Callable[[str], Running], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = service(name).port
    who = Login(client_id="c1", username="eve", password=b"client-secret")

    async def run() -> None:
        async with proxied(port) as proxy:
            kind, config = config_of(name, proxy.port)
            plugin = async_harness(kind, {**config, "timeout_s": 0.7, "connections": 2})
            async with plugin:
                assert await plugin.authenticate(who) is None
                proxy.passes.clear()
                started = time.monotonic()
                found = await asyncio.gather(
                    *[plugin.authenticate(who) for _ in range(2)], return_exceptions=True
                )
                assert [type(answer) for answer in found] == [BackendError] * 2
                assert time.monotonic() - started < 6
                assert await plugin.health()
                await proxy.cut()
                proxy.passes.set()
                assert await back(plugin.authenticate, who) is None
                assert await plugin.health() == []

    asyncio.run(run())
    assert "client-secret" not in caplog.text
    assert PASSWORD not in caplog.text


async def back(ask: Callable[[Login], object], who: Login) -> object:
    """The first answer that is no failure."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return await ask(who)  # type: ignore[misc] # a coroutine
        except BackendError:
            assert time.monotonic() < deadline
