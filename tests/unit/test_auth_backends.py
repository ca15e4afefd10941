"""Plugins that ask a server, under a real broker: who waits for a server that does not answer."""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys
import time
from collections.abc import Callable

import pytest
from mqttcore import Broker
from mqttcore.auth.http import Http
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Grant, Login, Plugin, hook

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
