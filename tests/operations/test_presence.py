"""`mqttcore.presence`: messages about clients that come and go."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import pytest
from mqttcore import Broker, Settings
from mqttcore._core import Event
from mqttcore.config import Access, Listener
from mqttcore.plugin import Allow, Grant, Login, Plugin, hook
from mqttcore.presence import Presence

from tests.wire import Wire, unique

ALL = "$SYS/broker/clients/#"
SETTINGS = Settings(listeners=(Listener(address="127.0.0.1:0"),), sys_interval_s=0.0)


class Everybody(Plugin):
    """Lets everybody in."""

    @hook.authenticate()
    async def enter(self, _: Login) -> Allow:
        """Gives a permission for messages about clients."""
        return Allow(Grant(publish=["#"], subscribe=["#", ALL]))


@contextmanager
def running(plugin: Presence) -> Iterator[Broker]:
    with Broker(SETTINGS, plugins=[Everybody(), plugin]) as broker:
        yield broker


class Reader:
    """A client that reads messages about others."""

    def __init__(self, broker: Broker, filters: str = ALL) -> None:
        self.wire = Wire(broker.port)
        self.wire.connect(unique("reader"))
        self.wire.subscribe((filters, 2))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def next(self, client_id: str) -> tuple[str, dict[str, object]]:
        """The last level of the next message about this client, and its content."""
        while True:
            found = self.wire.receive_publish()
            content = json.loads(found.payload)
            if content["client_id"] == client_id:
                assert not found.retain
                assert found.property("content_type") == "application/json"
                return found.topic.removeprefix("$SYS/broker/clients/"), content


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_comes_and_goes(qos: int) -> None:
    plugin = Presence(Presence.Config(qos=qos))
    with running(plugin) as broker, Reader(broker) as reader, Wire(broker.port) as wire:
        begun = time.time() * 1_000
        wire.connect("truck7", username="joe")
        port = wire.socket.getsockname()[1]
        come, connected = reader.next("truck7")
        wire.disconnect(4)
        gone, disconnected = reader.next("truck7")

    assert (come, gone) == ("truck7/connected", "truck7/disconnected")
    ts_ms = connected.pop("ts_ms")
    assert isinstance(ts_ms, int)
    assert begun - 1_000 < ts_ms < begun + 60_000
    about = {"client_id": "truck7", "username": "joe", "ip": "127.0.0.1", "port": port}
    assert connected == about
    del disconnected["ts_ms"]
    assert disconnected == {**about, "reason_code": 4}


@pytest.mark.parametrize(
    ("client_id", "level"),
    [("plant/7", "plant%2F7"), ("50%2F", "50%252F"), ("größe 1", "größe 1")],
)
def test_a_client_identifier_is_one_level_of_the_topic(client_id: str, level: str) -> None:
    filters = "$SYS/broker/clients/+/connected"
    with (
        running(Presence()) as broker,
        Reader(broker, filters) as reader,
        Wire(broker.port) as wire,
    ):
        wire.connect(client_id)
        assert reader.next(client_id)[0] == f"{level}/connected"


def test_a_taken_over_connection_is_told_by_its_port() -> None:
    with (
        running(Presence()) as broker,
        Reader(broker) as reader,
        Wire(broker.port) as first,
        Wire(broker.port) as second,
    ):
        first.connect("same")
        port = first.socket.getsockname()[1]
        assert reader.next("same")[0] == "same/connected"
        second.connect("same")
        found = dict(reader.next("same") for _ in range(2))

    assert found["same/disconnected"]["port"] == port
    assert found["same/disconnected"]["reason_code"] == 0x8E
    assert found["same/connected"]["port"] != port


def test_one_needs_a_permission_for_these_topics(start_broker: Callable[..., Broker]) -> None:
    closed = Listener(address="127.0.0.1:0", anonymous=Access(publish=("#",), subscribe=("#",)))
    broker = start_broker(Presence(), listeners=(closed,))
    with Wire(broker.port) as wire:
        wire.connect("curious")

        assert wire.subscribe((ALL, 0)).reasons == (0x87,)


def test_what_cannot_be_published_is_logged_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = Presence()
    with (
        running(plugin) as broker,
        Reader(broker) as reader,
        caplog.at_level(logging.WARNING),
    ):
        long = "x" * 70_000

        plugin.tell([Event("connected", client_id=name, at=1.5) for name in (long, "short")])

        assert reader.next("short") == ("short/connected", {"ts_ms": 1_500, "client_id": "short"})
    assert [record.getMessage()[:9] for record in caplog.records] == ["client 'x"]


def test_without_a_broker_nothing_is_published() -> None:
    Presence().tell([Event("connected", client_id="a")])
