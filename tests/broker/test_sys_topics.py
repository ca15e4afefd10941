"""`$SYS/broker/...`: what the broker tells about itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.wire import Wire

Open = Callable[..., Wire]


def test_the_version_is_retained(client: Open, version: int) -> None:
    one = client(version=version)

    one.subscribe("$SYS/broker/version")

    found = one.receive_publish()
    assert found.retain
    assert found.payload.startswith(b"mqttcore ")


@pytest.mark.parametrize(
    "name", ["clients/connected", "connections/accepted", "messages/received", "directory/nodes"]
)
def test_counters_are_numbers(client: Open, name: str) -> None:
    one = client()

    one.subscribe(f"$SYS/broker/{name}")

    assert int(one.receive_publish().payload) >= 0


@pytest.mark.parametrize(
    "name",
    [
        *("messages/received", "messages/sent", "publish/dropped", "publish/received"),
        *("publish/sent", "bytes/received", "bytes/sent", "sockets", "connections"),
    ],
)
@pytest.mark.parametrize("period", ["1min", "5min", "15min"])
def test_averages_have_two_digits_as_those_of_mosquitto(
    client: Open, name: str, period: str
) -> None:
    one = client()

    one.subscribe(f"$SYS/broker/load/{name}/{period}")

    assert re.fullmatch(rb"\d+\.\d\d", one.receive_publish().payload)


def test_averages_move(start_broker: Callable[..., object], client: Open) -> None:
    port = start_broker(sys_interval_s=0.1).port  # type: ignore[attr-defined] # a Broker
    one = client(port=port)

    one.subscribe("$SYS/broker/load/connections/1min")

    while float(one.receive_publish().payload) == 0.0:
        pass


@pytest.mark.parametrize(
    "name", ["clients/active", "clients/inactive", "clients/maximum", "connections/socket/count"]
)
def test_names_of_mosquitto_are_there(client: Open, name: str) -> None:
    one = client()

    one.subscribe(f"$SYS/broker/{name}")

    assert int(one.receive_publish().payload) >= 0


def test_counters_are_renewed(start_broker: Callable[..., object], client: Open) -> None:
    port = start_broker(sys_interval_s=0.1).port  # type: ignore[attr-defined] # a Broker
    one = client(port=port)
    one.subscribe("$SYS/broker/clients/connected")

    while (found := one.receive_publish()).payload != b"1" or found.retain:
        pass

    assert found.topic == "$SYS/broker/clients/connected"


def test_nobody_may_publish_there(client: Open, version: int) -> None:
    one, watcher = client(version=version), client()
    watcher.subscribe("$SYS/broker/mine")

    answer = one.publish("$SYS/broker/mine", b"x", qos=1, retain=True)

    assert answer.reason == (0x87 if version == 5 else 0)
    watcher.ping()
    watcher.subscribe("$SYS/broker/mine")
    watcher.ping()
