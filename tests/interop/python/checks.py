"""The checks, once for all clients that are Python packages.

A driver gives a `Peer` for its library; everything that is asked of it stands in that class.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from typing import NamedTuple

PATIENCE_S = 10.0
KEPT_S = 60
NUMBERS = [b"%d" % number for number in range(10)]


class Message(NamedTuple):
    """What a client got."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect, and how."""

    host: str
    port: int
    version: int
    transport: str

    @property
    def is_framed(self) -> bool:
        """Whether WebSocket frames carry the packets."""
        return self.transport in {"websocket", "wss"}

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is below; the CA is that of `SSL_CERT_FILE`."""
        return self.transport in {"tls", "wss"}


@dataclass(slots=True)
class Peer:
    """One client of a library; drivers fill in the methods."""

    place: Place
    client_id: str
    clean: bool = True
    will: tuple[str, bytes] | None = None
    """Topic and payload, at QoS 1."""
    inbox: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    async def connect(self) -> bool | None:
        """Returns Session Present; None: the library does not tell."""
        raise NotImplementedError

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        """Returns when the SUBACK has come; raises when it refuses."""
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Sends it."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Ends with a DISCONNECT."""
        raise NotImplementedError

    async def drop(self) -> None:
        """Loses the connection: no DISCONNECT leaves."""
        raise NotImplementedError

    async def take(self, count: int) -> list[Message]:
        """The next messages."""
        async with asyncio.timeout(PATIENCE_S):
            return [await self.inbox.get() for _ in range(count)]


class Unable(Exception):  # noqa: N818 -- no error: the library has no such thing
    """What the library cannot do."""


class Checks:
    """All checks against one broker, with clients of one library."""

    def __init__(self, kind: type[Peer], place: Place, topic: str) -> None:
        self.kind, self.place, self.topic = kind, place, topic
        self.open: list[Peer] = []

    async def peer(
        self, name: str, *, clean: bool = True, will: tuple[str, bytes] | None = None
    ) -> Peer:
        """A connected client."""
        one = self.kind(self.place, f"{self.topic}-{name}", clean, will)
        await one.connect()
        self.open.append(one)
        return one

    async def connect(self) -> None:
        """CONNECT, CONNACK."""
        await self.peer("connect")

    async def echo(self, qos: int) -> None:
        """Ten messages to itself, in order."""
        one, topic = await self.peer(f"qos{qos}"), f"{self.topic}/qos{qos}"
        await one.subscribe(topic, qos)
        for number in NUMBERS:
            await one.publish(topic, number, qos)
        found = await one.take(10)
        expect(found, [Message(topic, number, qos, False) for number in NUMBERS])

    async def retained(self) -> None:
        """Kept, got later, cleared."""
        one, topic = await self.peer("retained"), f"{self.topic}/retained"
        await one.publish(topic, b"kept", 1, retain=True)
        await one.subscribe(topic, 1)
        expect(await one.take(1), [Message(topic, b"kept", 1, True)])
        await one.publish(topic, b"", 1, retain=True)
        expect(await one.take(1), [Message(topic, b"", 1, False)])

    async def will(self) -> None:
        """What a lost client leaves."""
        topic = f"{self.topic}/will"
        watcher = await self.peer("watcher")
        await watcher.subscribe(topic, 1)
        leaver = await self.peer("leaver", will=(topic, b"gone"))
        self.open.remove(leaver)
        await leaver.drop()
        expect(await watcher.take(1), [Message(topic, b"gone", 1, False)])

    async def resume(self) -> None:
        """What came while it was away."""
        topic = f"{self.topic}/resume"
        first = await self.peer("resume", clean=False)
        await first.subscribe(topic, 1)
        self.open.remove(first)
        await first.disconnect()
        sender = await self.peer("sender")
        for number in NUMBERS[:3]:
            await sender.publish(topic, number, 1)
        second = self.kind(self.place, f"{self.topic}-resume", clean=False)
        present = await second.connect()
        self.open.append(second)
        if present is not None:
            expect(present, self.place.version > 3)
        expect(await second.take(3), [Message(topic, one, 1, False) for one in NUMBERS[:3]])

    async def shared(self) -> None:
        """Each message to one member, to both some."""
        topic = f"{self.topic}/shared"
        members = [await self.peer(f"member{number}") for number in range(2)]
        for member in members:
            await member.subscribe(f"$share/group/{topic}", 1)
        sender = await self.peer("dealer")
        for number in NUMBERS:
            await sender.publish(topic, number, 1)
        found = await asyncio.gather(*(member.take(5) for member in members))
        expect(sorted(one.payload for part in found for one in part), NUMBERS)

    async def close(self) -> None:
        """Ends the clients of a check."""
        while self.open:
            await self.open.pop().disconnect()


def expect(found: object, wanted: object) -> None:
    """Raises unless they are equal."""
    if found != wanted:
        raise AssertionError(f"wanted {wanted}, got {found}")


def say(**line: object) -> None:
    """Prints one line of the protocol."""
    print(json.dumps(line), flush=True)


async def attempt(name: str, check: Callable[[], Awaitable[None]], checks: Checks) -> None:
    """Does one check and says how it went."""
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await check()
            await checks.close()
    except Unable as reason:
        say(check=name, na=str(reason))
    except Exception as error:
        say(check=name, ok=False, why=f"{type(error).__name__}: {error}")
    else:
        say(check=name, ok=True)


async def conduct(kind: type[Peer], place: Place, topic: str) -> None:
    """Does all checks of the version."""
    checks = Checks(kind, place, topic)
    await attempt("connect", checks.connect, checks)
    for qos in range(3):
        await attempt(f"qos{qos}", functools.partial(checks.echo, qos), checks)
    await attempt("retained", checks.retained, checks)
    await attempt("will", checks.will, checks)
    await attempt("resume", checks.resume, checks)
    if place.version == 5:
        await attempt("shared", checks.shared, checks)


def main(kind: type[Peer], package: str) -> None:
    """A driver's whole program."""
    host, port, version, transport, topic = sys.argv[1:]
    say(client=package, version=version_of(package))
    asyncio.run(conduct(kind, Place(host, int(port), int(version), transport), topic))
