"""Clients of a broker that dies under them: one publishes at QoS 1, one hears at QoS 2."""

from __future__ import annotations

import collections
import contextlib
import threading

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.wire import Packet, Wire, WireError

WINDOW = 50
PAUSE_S = 0.1
LOOK_S = 0.5


class Peer(threading.Thread):
    """Connects again and again until it is told to stop."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.stopping = threading.Event()

    def run(self) -> None:
        """One connection after the other."""
        while not self.stopping.is_set():
            with contextlib.suppress(OSError, WireError, IndexError):
                self.talk()
            self.stopping.wait(0.05)

    def talk(self) -> None:
        """One connection, from CONNECT to its end."""
        raise NotImplementedError

    def end(self) -> None:
        """Returns when it has stopped."""
        self.stopping.set()
        self.join(60)


class Publisher(Peer):
    """Publishes numbers, and says which were acknowledged."""

    def __init__(self, server: ServerProcess, pause_s: float = PAUSE_S) -> None:
        super().__init__(server)
        self.pause_s = pause_s
        """Between two windows."""
        self.acknowledged: set[int] = set()
        self.next = 0

    def message(self, number: int) -> tuple[str, bytes]:
        """Topic and payload of a message."""
        return f"plant/{number % 100}", str(number).encode()

    def talk(self) -> None:
        """A window after the other."""
        with Wire(self.server.port) as wire:
            wire.connect(f"publisher-{self.next}")
            while not self.stopping.is_set():
                first = self.next
                self.next += WINDOW
                for number in range(first, first + WINDOW):
                    topic, payload = self.message(number)
                    wire.send(mqtt.publish(topic, payload, qos=1, packet_id=number - first + 1))
                for _ in range(WINDOW):
                    found = wire.expect(mqtt.PUBACK)
                    self.acknowledged.add(first + (found.packet_id or 0) - 1)
                self.stopping.wait(self.pause_s)


class Subscriber(Peer):
    """Has one session for all of its connections, and counts what comes."""

    def __init__(self, server: ServerProcess, topic: str) -> None:
        super().__init__(server)
        self.topic = topic
        self.heard: collections.Counter[str] = collections.Counter()
        self.sessions_lost = 0
        self.is_there = threading.Event()
        """It has subscribed."""
        self.held: set[int] = set()
        """Packet identifiers of messages that the broker may send again."""

    def talk(self) -> None:
        """Takes messages."""
        with Wire(self.server.port) as wire:
            expiry = {"session_expiry_interval": 3_600}
            found = wire.connect("subscriber", clean=False, props=expiry)
            if not found.session_present:
                self.sessions_lost += self.is_there.is_set()
                self.held.clear()
                wire.subscribe((self.topic, 2))
                self.is_there.set()
            while not self.stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    self.take(wire, wire.receive(within_s=LOOK_S))

    def take(self, wire: Wire, packet: Packet) -> None:
        """The receiver's side of QoS 2."""
        number = packet.packet_id or 0
        if packet.kind == mqtt.PUBLISH:
            if number not in self.held:
                self.heard[packet.payload.decode()] += 1
            self.held.add(number)
            wire.send(mqtt.ack(mqtt.PUBREC, number))
        elif packet.kind == mqtt.PUBREL:
            self.held.discard(number)
            wire.send(mqtt.ack(mqtt.PUBCOMP, number))
