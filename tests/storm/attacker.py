"""An attacker, as a process of its own: `python -m tests.storm.attacker PORT ATTACK`.

It says `ready` when the subscribers are there and floods when it reads a line, until the broker or
its standard input ends or a bound is reached. Then it says as JSON what it has sent.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from typing import Final

from tests.storm.attacks import FULL, PACKET_IDS, SMALL, VERSION, Attack
from tests.wire import Wire, WireError

FILTERS_A_PACKET: Final = 100
FLOOD_S: Final = 120.0
FLOOD_BYTES: Final = 8 << 30
RECONNECTS: Final = 1_000
PUBACK_BYTES: Final = 4
TICK_S: Final = 1.0
# What is measured is the bystander, also where both share a core.
NICENESS: Final = 5


def subscribe(attack: Attack, port: int) -> list[socket.socket]:
    """Connects the subscribers; answers with the sockets of those that stay."""
    found = []
    for number in range(attack.subscribers):
        one = Wire(port, version=VERSION)
        one.connect(f"storm-{number}", clean=not attack.is_offline, keep_alive=0)
        filters = attack.filters(number)
        for first in range(0, len(filters), FILTERS_A_PACKET):
            one.subscribe(*filters[first : first + FILTERS_A_PACKET])
        if attack.is_offline:
            one.disconnect()
        else:
            found.append(one.socket)
    return found


class Publisher:
    """One connection that writes as fast as the broker reads, and comes back when it is closed."""

    def __init__(self, attack: Attack, port: int) -> None:
        self.port = port
        self.chunks = attack.chunks()
        self.packet_bytes = attack.packet_bytes
        self.is_acknowledged = attack.qos > 0
        self.bytes = self.reconnects = 0
        self.connect()

    def connect(self) -> None:
        """Opens a connection, which begins with the first chunk."""
        wire = Wire(self.port, version=VERSION)
        wire.connect("storm-publisher", keep_alive=0)
        self.socket = wire.socket
        self.socket.setblocking(False)
        self.unsent = memoryview(b"")
        self.writes = self.under_way = self.came = 0

    def reconnect(self) -> bool:
        """Whether there is a connection again."""
        self.reconnects += 1
        self.socket.close()
        try:
            self.connect()
        except (OSError, WireError):
            return False
        return self.reconnects < RECONNECTS

    def has_next(self) -> bool:
        """Whether the packet ids of the next write are free."""
        if self.unsent or not self.is_acknowledged:
            return True
        under_way = self.under_way - self.came // PUBACK_BYTES
        return under_way + len(self._next()) // self.packet_bytes <= PACKET_IDS

    def _next(self) -> bytes:
        return self.chunks[self.writes % len(self.chunks)]

    def write(self) -> None:
        """Writes what the socket takes of one chunk."""
        if not self.unsent:
            self.unsent = memoryview(self._next())
            self.under_way += len(self.unsent) // self.packet_bytes
            self.writes += 1
        count = self.socket.send(self.unsent)
        self.unsent = self.unsent[count:]
        self.bytes += count

    def read(self) -> None:
        """Takes acknowledgements.

        Raises:
            ConnectionError: The broker has closed.
        """
        count = discard(self.socket)
        if not count:
            raise ConnectionResetError
        self.came += count


def discard(peer: socket.socket) -> int:
    """Reads what came; returns how many bytes, 0 at the end of the connection."""
    try:
        return len(peer.recv(1 << 20))
    except ConnectionError:
        return 0


def flood(publisher: Publisher, subscribers: list[socket.socket]) -> None:
    """Publishes without end, while the subscribers take all of it."""
    until = time.monotonic() + FLOOD_S
    while time.monotonic() < until and publisher.bytes < FLOOD_BYTES:
        readers = [sys.stdin, publisher.socket, *subscribers]
        writers = [publisher.socket] if publisher.has_next() else []
        readable, writable, _ = select.select(readers, writers, [], TICK_S)
        if sys.stdin in readable:
            return
        gone = [each for each in subscribers if each in readable and not discard(each)]
        subscribers = [each for each in subscribers if each not in gone]
        try:
            if publisher.socket in readable:
                publisher.read()
            if writable:
                publisher.write()
        except ConnectionError:
            if not publisher.reconnect():
                return


def main() -> None:
    """One attack."""
    port, name = int(sys.argv[1]), sys.argv[2]
    attack = next(each for each in (*FULL, *SMALL) if each.name == name)
    os.nice(NICENESS)
    publisher = Publisher(attack, port)  # its descriptor is low enough for select()
    subscribers = subscribe(attack, port)
    print("ready", flush=True)
    sys.stdin.readline()
    flood(publisher, subscribers if attack.is_read else [])
    publishes = publisher.bytes // publisher.packet_bytes
    sent = {"publishes": publishes, "bytes": publisher.bytes, "reconnects": publisher.reconnects}
    print(json.dumps(sent), flush=True)


if __name__ == "__main__":
    main()
