"""A crowd, as a process of its own: `python -m tests.storm.crowd PORT CROWD`.

It says `ready`, and begins when it reads a line: it opens connections as fast as it can, keeps as
many open as its name says, and opens another one for each that the broker closes. They come from
other addresses than the bystander. When its standard input ends it says as JSON
how many it has opened, and how many the broker has closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import ssl
import sys
import time
from dataclasses import dataclass, replace
from typing import Final

from tests import wire as mqtt
from tests.storm.attacker import NICENESS

A_ROUND: Final = 200
"""Connections that are opened, and bytes that trickle, between two looks at what was closed."""
ROUND_S: Final = 0.01
NETWORK: Final = "127.1"
USER, PASSWORD = "honest", b"right"
"""The login that a crowd guesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Connections that want nothing but to be there."""

    name: str
    size: int
    first: bytes = b""
    """What each sends at once."""
    trickle: bytes = b""
    """What each sends after that, byte for byte."""
    is_encrypted: bool = False
    is_guessing: bool = False
    """Each sends a CONNECT with a wrong password, to a listener whose logins are hashed."""
    addresses: int = 1
    """They have so many addresses; from several, each connection guesses another user name."""
    limits: str = ""
    """The broker's `[limits]` that are not the default."""
    descriptors: int | None = None
    """The broker's limit of open files, if it is not that of this process."""

    def first_of(self, number: int) -> bytes:
        """What the connection of a number sends at once."""
        if not self.is_guessing:
            return self.first
        user = USER if self.addresses == 1 else f"user-{number}"
        return mqtt.connect("", version=4, username=user, password=b"guess %d" % number)


def client_hello() -> bytes:
    """The first flight of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake takes two")


ROOM: Final = "pending_connections = 16_384"
"""More than a crowd needs: the loopback has no limit by address (ADR 0111)."""
STRANGERS: Final = 'exempt_addresses = ["127.0.0.1"]'
"""The crowd has the limits of other machines, and the bystander has not."""


def strangers(size: int) -> Crowd:
    """Connections that send nothing, from an address that has its limits."""
    return Crowd(name=f"{size:,} from one address", size=size, limits="exempt_addresses = []")


def handshakes_of_strangers(size: int) -> Crowd:
    """TLS handshakes that never get to their end, from an address that has its limits."""
    name = f"{size:,} handshakes from one address"
    return replace(slow_handshakes(size), name=name, limits="exempt_addresses = []")


def guessers(size: int, addresses: int) -> Crowd:
    """Connections that guess a password, and come back when they are refused."""
    places = f"{addresses} addresses" if addresses > 1 else "one address"
    return Crowd(
        name=f"{size} guessers, {places}",
        size=size,
        is_guessing=True,
        addresses=addresses,
        limits=STRANGERS,
    )


def half_open(size: int) -> Crowd:
    """Connections that send nothing, all of which have a place."""
    return Crowd(name=f"{size:,} half-open", size=size, limits=ROOM)


def slow_handshakes(size: int) -> Crowd:
    """TLS handshakes that never get to their end, all of which have a place."""
    hello = client_hello()
    return Crowd(
        name=f"{size:,} slow handshakes",
        size=size,
        trickle=hello[:-1],
        is_encrypted=True,
        limits=ROOM,
    )


def descriptors(limit: int) -> Crowd:
    """More clients than the broker has descriptors."""
    return Crowd(
        name=f"{limit:,} descriptors",
        size=limit * 3 // 2,
        first=mqtt.connect("", version=4, keep_alive=0),
        descriptors=limit,
    )


FULL: Final = (
    strangers(10_000),
    half_open(10_000),
    handshakes_of_strangers(10_000),
    slow_handshakes(10_000),
    guessers(200, 1),
    guessers(200, 200),
    descriptors(2_000),
)
SMALL: Final = (
    strangers(20),
    half_open(20),
    handshakes_of_strangers(20),
    slow_handshakes(20),
    guessers(5, 1),
    guessers(5, 5),
    descriptors(100),
)


class Members:
    """The open connections of a crowd."""

    def __init__(self, crowd: Crowd, port: int) -> None:
        self.crowd = crowd
        self.port = port
        self.sent: dict[socket.socket, int] = {}
        self.turn: list[socket.socket] = []
        self.poll = select.epoll()
        self.by_number: dict[int, socket.socket] = {}
        self.first: dict[socket.socket, bytes] = {}
        self.opened = self.closed = 0

    def fill(self) -> None:
        """Opens some of those that are missing."""
        for _ in range(min(A_ROUND, self.crowd.size - len(self.sent))):
            one = socket.socket()
            one.setblocking(False)
            at = self.opened % self.crowd.addresses
            one.bind((f"{NETWORK}.{at // 250}.{at % 250 + 1}", 0))
            one.connect_ex(("127.0.0.1", self.port))
            self.sent[one] = 0
            self.first[one] = self.crowd.first_of(self.opened)
            self.by_number[one.fileno()] = one
            self.poll.register(one, select.EPOLLIN | select.EPOLLRDHUP)
            self.opened += 1

    def take(self, wait_s: float) -> None:
        """Reads what came, and forgets those that the broker has closed."""
        for number, _ in self.poll.poll(wait_s, A_ROUND):
            one = self.by_number[number]
            with contextlib.suppress(ConnectionError):
                if one.recv(1 << 12):
                    continue
            self.poll.unregister(one)
            del self.by_number[number], self.sent[one], self.first[one]
            one.close()
            self.closed += 1

    def trickle(self) -> None:
        """Sends the next bytes of some."""
        if not self.turn:
            self.turn = list(self.sent)
        for one in self.turn[:A_ROUND]:
            if one in self.sent:
                self._send(one)
        del self.turn[:A_ROUND]

    def _send(self, one: socket.socket) -> None:
        at, first = self.sent[one], self.first[one]
        said = (first if at == 0 else b"") or (first + self.crowd.trickle)[at : at + 1]
        with contextlib.suppress(OSError):  # it is not open yet, or no more
            self.sent[one] += one.send(said) if said else 0


def main() -> None:
    """One crowd."""
    port, name = int(sys.argv[1]), sys.argv[2]
    crowd = next(each for each in (*FULL, *SMALL) if each.name == name)
    os.nice(NICENESS)
    members = Members(crowd, port)
    print("ready", flush=True)
    sys.stdin.readline()
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        members.fill()
        members.trickle()
        members.take(max(0.0, began + ROUND_S - time.monotonic()))
    print(json.dumps({"opened": members.opened, "closed": members.closed}), flush=True)


if __name__ == "__main__":
    main()
