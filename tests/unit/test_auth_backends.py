"""Plugins that ask a server, under a real broker: who waits for a server that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pathlib
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker
from mqttcore._core import hash_password
from mqttcore.auth.http import Http
from mqttcore.auth.sql import Sql
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Grant, Login, Plugin, Secret, hook

from tests.http_service import HttpService, Request, http_service, reply
from tests.wire import Wire, connect

LISTENER = Listener(address="127.0.0.1:0")


class Doors(Plugin):
    """Admits doors, without a server."""

    @hook.authenticate
    def login(self, login: Login) -> Allow | None:
        """Doors have no password."""
        return Allow(Grant(publish=["#"])) if login.username == "door" else None


@pytest.mark.parametrize(
    ("plugin", "package", "extra"),
    [
        ("http", "aiohttp", "http"),
        ("sql", "sqlalchemy", "sql"),
        ("redis", "redis.asyncio", "redis"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, plugin: str, package: str, extra: str
) -> None:
    name = f"mqttcore.auth.{plugin}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ImportError, match=rf"pip install 'mqttcore\[{extra}\]'"):
        importlib.import_module(name)


def test_a_server_that_hangs_delays_only_its_own_logins(
    start_broker: Callable[..., Broker],
) -> None:
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        service = Http(Http.Config(url=url, timeout_s=2.0, connections=4))
        broker = start_broker(Doors(), service, listeners=(LISTENER,))
        waiting = [stack.enter_context(Wire(broker.port)) for _ in range(12)]
        for number, wire in enumerate(waiting):
            wire.send(connect(f"c{number}", username="ann", password=b"red"))

        started = time.monotonic()
        stack.enter_context(Wire(broker.port)).connect("door", username="door", reason=0)
        assert time.monotonic() - started < 2.0
        codes = {wire.receive().reason for wire in waiting}

    assert 0x88 in codes
    assert codes <= {0x88, 0x89}


@contextlib.contextmanager
def accounts() -> Iterator[HttpService]:
    """An HTTP service in a thread: everybody may log in, and publish on ``open/...``."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        is_allowed = request.path == "/login" or request.json["topic"].startswith("open/")
        await reply(200, {"result": "allow" if is_allowed else "deny"})(request, writer)

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        manager = http_service(answer)
        service = runner.run(manager.__aenter__())
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield service
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(manager.__aexit__(None, None, None))


def test_topics_are_decided_by_the_service_until_rights_are_invalidated(
    start_broker: Callable[..., Broker],
) -> None:
    with accounts() as service:
        config = Http.Config(url=service.url(), acl_url=service.url("/acl"), cache_s=60.0)
        broker = start_broker(Http(config), listeners=(LISTENER,))
        with Wire(broker.port) as client:
            client.connect("c1", username="ann", password=b"red", reason=0)
            codes = [client.publish(f"open/{n % 2}", qos=1).reason for n in range(6)]
            assert codes == [0x10] * 6
            assert [request.path for request in service.requests] == ["/login", "/acl", "/acl"]
            assert client.publish("shut/1", qos=1).reason == 0x87
            assert client.subscribe("#").reasons == (0x87,)

            broker.invalidate(username="ann")
            assert client.receive().reason == 0x98
        with Wire(broker.port) as client:
            client.connect("c1", username="ann", password=b"red", reason=0)

    assert [request.path for request in service.requests].count("/login") == 2


def test_a_client_of_another_plugin_does_not_get_the_rights_of_a_user_of_its_name(
    start_broker: Callable[..., Broker], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "accounts.db"
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE users (name, password_hash, is_superuser)")
        row = ("door", hash_password(b"red", salt=bytes(16)), 1)
        database.execute("INSERT INTO users VALUES (?, ?, ?)", row)
    query = "SELECT name AS username, password_hash, is_superuser FROM users WHERE name = :username"
    users = Sql(Sql.Config(url=Secret(f"sqlite:///{file}"), user_query=query))
    broker = start_broker(Doors(), users, listeners=(LISTENER,))
    with Wire(broker.port) as door:
        door.connect("c1", username="door", reason=0)
        assert door.subscribe("secret").reasons == (0x87,)

        broker.invalidate(username="door")

        assert door.receive().reason == 0x98


def test_a_rule_of_redis_knows_the_key_of_its_hash() -> None:
    from mqttcore.auth.redis import rules_of  # another test imports the module anew

    found = rules_of({b"a/#": b"publish", b"b": b"deny"}, "mqtt:acl:%u")

    assert found == [("deny", "b"), ("write", "a/#")]
    assert [getattr(rule, "place", None) for _, rule in found] == ["mqtt:acl:%u"] * 2
