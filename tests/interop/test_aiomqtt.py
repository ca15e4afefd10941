"""The asyncio client aiomqtt against the broker, in all three versions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.conftest import RunningBroker
from tests.wire import PATIENCE_S, Wire, unique


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs one test's coroutine, with a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await coroutine

    asyncio.run(bounded())


def connect(port: int, version: int, **options: Any) -> aiomqtt.Client:  # noqa: ANN401 -- aiomqtt's
    """A client of the broker, to be entered."""
    options.setdefault("identifier", unique("aio"))
    protocol = aiomqtt.ProtocolVersion(version)
    return aiomqtt.Client("127.0.0.1", port, protocol=protocol, **options)


def keep(version: int) -> dict[str, Any]:
    """What makes a session outlive its connection."""
    if version < 5:
        return {"clean_session": False}
    kept = Properties(PacketTypes.CONNECT)
    kept.SessionExpiryInterval = 60
    return {"clean_start": False, "properties": kept}


async def take(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    """The next messages."""
    found = []
    async for message in client.messages:
        found.append(message)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aiomqtt_hears_itself(broker: RunningBroker, topic: str, version: int, qos: int) -> None:
    async def talk() -> None:
        async with connect(broker.port, version) as one:
            await one.subscribe(f"{topic}/#", qos)
            for number in range(20):
                await one.publish(f"{topic}/{number}", b"%d" % number, qos)
            found = await take(one, 20)

        assert [each.payload for each in found] == [b"%d" % number for number in range(20)]
        assert {each.qos for each in found} == {qos}

    run(talk())


def test_aiomqtt_gets_retained_messages(broker: RunningBroker, topic: str, version: int) -> None:
    async def talk() -> None:
        async with connect(broker.port, version) as one:
            await one.publish(topic, b"kept", 1, retain=True)
            await one.subscribe(topic, 1)
            [found] = await take(one, 1)
            await one.publish(topic, b"", 1, retain=True)

        assert (found.payload, found.retain) == (b"kept", True)

    run(talk())


def test_aiomqtt_leaves_a_will(broker: RunningBroker, topic: str, version: int) -> None:
    async def talk() -> None:
        name = unique("aio")
        async with connect(broker.port, version) as watcher:
            await watcher.subscribe(topic, 1)
            will = aiomqtt.Will(topic, b"gone", 1)
            with contextlib.suppress(aiomqtt.MqttError):
                async with connect(broker.port, version, identifier=name, will=will) as one:
                    # Taken over, the connection ends without a DISCONNECT of its own.
                    with Wire(broker.port, version=4) as thief:
                        thief.connect(name)
                        await take(one, 1)
            [found] = await take(watcher, 1)

        assert (found.payload, found.qos) == (b"gone", 1)

    run(talk())


def test_aiomqtt_resumes_its_session(broker: RunningBroker, topic: str, version: int) -> None:
    async def talk() -> None:
        name = unique("aio")
        async with connect(broker.port, version, identifier=name, **keep(version)) as first:
            await first.subscribe(topic, 2)
        async with connect(broker.port, version) as sender:
            for number in range(3):
                await sender.publish(topic, b"%d" % number, 2)
        async with connect(broker.port, version, identifier=name, **keep(version)) as second:
            found = await take(second, 3)

        assert [each.payload for each in found] == [b"0", b"1", b"2"]

    run(talk())


def test_aiomqtt_shares_a_subscription(broker: RunningBroker, topic: str) -> None:
    async def talk() -> None:
        async with (
            connect(broker.port, 5) as one,
            connect(broker.port, 5) as other,
            connect(broker.port, 5) as sender,
        ):
            for member in (one, other):
                await member.subscribe(f"$share/group/{topic}", 1)
            for number in range(10):
                await sender.publish(topic, b"%d" % number, 1)
            found = await asyncio.gather(take(one, 5), take(other, 5))

        numbers = [int(each.payload) for part in found for each in part]
        assert sorted(numbers) == list(range(10))

    run(talk())


def test_many_aiomqtt_clients_at_once(broker: RunningBroker, topic: str, version: int) -> None:
    async def one_client(number: int) -> None:
        own = f"{topic}/{number}"
        async with connect(broker.port, version) as one:
            await one.subscribe(own, 1)
            await one.publish(own, b"%d" % number, 1)
            [found] = await take(one, 1)
        assert int(found.payload) == number

    async def talk() -> None:
        await asyncio.gather(*(one_client(number) for number in range(50)))

    run(talk())
