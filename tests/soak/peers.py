"""Correct MQTT clients that lose their connections all the time: publishers and subscribers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from tests import wire as mqtt
from tests.soak.ledger import Ledger, Message
from tests.wire import Packet

PACKET_ID_NOT_FOUND = 0x92
# Below the broker's own Receive Maximum, and a subscriber's queue is far longer.
WINDOW = 16


class Line(asyncio.Protocol):
    """One connection of a peer; what comes after the peer has moved on is nobody's."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Says who it is."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.peer.line is self:
            transport.write(self.peer.connect_packet())
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Cuts packets."""
        self._unread += data
        while self.peer.line is self:
            split = mqtt.split_var_int(self._unread[1:])
            if split is None or len(split[1]) < split[0]:
                return
            length = len(self._unread) - len(split[1]) + split[0]
            raw, self._unread = self._unread[:length], self._unread[length:]
            self.peer.handle(mqtt.read_packet(raw, self.peer.version))

    def connection_lost(self, exc: Exception | None) -> None:
        """An end that the peer did not ask for is a fault of the broker."""
        if self.peer.line is self:
            self.peer.lost_line()

    def write(self, data: bytes) -> None:
        """Sends, if there still is a connection."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Peer:
    """A client with a session that outlives its connections."""

    name: str
    version: int
    port: int
    ledger: Ledger
    line: Line | None = None
    is_online: bool = False
    was_online: bool = False

    async def connect(self) -> None:
        """Opens a connection; an older one is left open for the broker to end."""
        line = self.line = Line(self)
        self.is_online = False
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: line, "127.0.0.1", self.port)
        except OSError as error:
            self.ledger.violations[f"connect: {error.strerror}"] += 1

    def connect_packet(self) -> bytes:
        """CONNECT for a session that is kept."""
        props = {"session_expiry_interval": 3_600} if self.version == 5 else None
        return mqtt.connect(self.name, version=self.version, clean=False, props=props)

    def handle(self, packet: Packet) -> None:
        """Takes a packet of the live connection."""
        if packet.kind == mqtt.CONNACK:
            self.accepted(packet)
        elif packet.kind == mqtt.DISCONNECT:
            self.ledger.violations[f"DISCONNECT 0x{packet.reason:02X}"] += 1
        elif max(packet.reasons, default=0) >= 0x80 and not self.excuses(packet):
            self.ledger.violations[f"{packet.name} 0x{max(packet.reasons):02X}"] += 1
        else:
            self.take(packet)

    def accepted(self, connack: Packet) -> None:
        """Goes on where the last connection ended."""
        if connack.reason:
            self.ledger.violations[f"CONNACK {connack.reason}"] += 1
        if self.version > 3 and connack.session_present != self.was_online:
            self.ledger.violations["session lost"] += 1
        self.is_online = self.was_online = True
        self.resume()

    def excuses(self, packet: Packet) -> bool:
        """Whether an error code is the right answer here."""
        return False

    def resume(self) -> None:
        """What a new connection begins with."""

    def take(self, packet: Packet) -> None:
        """Handles what belongs to this kind of client."""

    def lost_line(self) -> None:
        """The broker ended a connection that it had no reason to end."""
        self.line = None
        self.is_online = False
        self.ledger.violations["connection ended by the broker"] += 1

    def leave(self, how: str) -> None:
        """Ends the connection: `disconnect`, `close`, `abort`, or `takeover`, which keeps it."""
        line, self.line = self.line, None
        self.is_online = False
        if line is None or line.transport is None or how == "takeover":
            return
        if how == "disconnect":
            line.write(mqtt.disconnect())
        if how == "abort":
            line.transport.abort()
        else:
            line.transport.close()


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Publisher(Peer):
    """Publishes at every quality, and resends as the specification says."""

    number: int
    topic: str
    padding: bytes = b""
    under_way: OrderedDict[int, tuple[Message, bool]] = field(default_factory=OrderedDict)
    released_again: set[int] = field(default_factory=set)
    last_id: int = 0

    def publish(self, qos: int) -> None:
        """Sends one message, if the window has room."""
        if not self.is_online or self.line is None or len(self.under_way) >= WINDOW:
            return
        message = self.ledger.send(self.number, qos)
        packet_id = None
        if qos:
            packet_id = self.free_id()
            self.under_way[packet_id] = (message, False)
        self.line.write(self.packet(message, packet_id, dup=False))

    def free_id(self) -> int:
        """The next packet id that is not under way."""
        while True:
            self.last_id = self.last_id % 65_535 + 1
            if self.last_id not in self.under_way:
                return self.last_id

    def packet(self, message: Message, packet_id: int | None, *, dup: bool) -> bytes:
        """The PUBLISH of a message."""
        return mqtt.publish(
            self.topic,
            message.stamp() + self.padding,
            qos=message.qos,
            packet_id=packet_id,
            dup=dup,
            version=self.version,
        )

    def resume(self) -> None:
        """Sends again what was not acknowledged, in its order."""
        assert self.line is not None
        self.released_again.clear()
        for packet_id, (message, received) in self.under_way.items():
            if received:
                self.released_again.add(packet_id)
                self.line.write(mqtt.ack(mqtt.PUBREL, packet_id))
            else:
                self.ledger.resend(message)
                self.line.write(self.packet(message, packet_id, dup=True))

    def excuses(self, packet: Packet) -> bool:
        """A PUBREL that is repeated because its PUBCOMP was lost finds nothing (abuse D13)."""
        is_unknown = packet.kind == mqtt.PUBCOMP and max(packet.reasons) == PACKET_ID_NOT_FOUND
        return is_unknown and packet.packet_id in self.released_again

    def take(self, packet: Packet) -> None:
        """Handles acknowledgements."""
        packet_id = packet.packet_id or 0
        if packet_id not in self.under_way:
            self.ledger.violations[f"{packet.name} of nothing"] += 1
            return
        message, _ = self.under_way[packet_id]
        self.ledger.acknowledge(message)
        if packet.kind == mqtt.PUBREC:
            self.under_way[packet_id] = (message, True)
            assert self.line is not None
            self.line.write(mqtt.ack(mqtt.PUBREL, packet_id))
        else:
            del self.under_way[packet_id]
            self.released_again.discard(packet_id)


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Subscriber(Peer):
    """Takes the messages of one publisher, each once at QoS 2."""

    filter: str
    is_subscribed: bool = False
    unreleased: set[int] = field(default_factory=set)

    def resume(self) -> None:
        """Subscribes, once for each session."""
        if not self.is_subscribed:
            assert self.line is not None
            self.line.write(mqtt.subscribe((self.filter, 2), version=self.version))

    def take(self, packet: Packet) -> None:
        """Handles messages and their release."""
        assert self.line is not None
        packet_id = packet.packet_id or 0
        if packet.kind == mqtt.SUBACK:
            self.is_subscribed = True
        elif packet.kind == mqtt.PUBREL:
            self.unreleased.discard(packet_id)
            self.line.write(mqtt.ack(mqtt.PUBCOMP, packet_id))
        elif packet.kind == mqtt.PUBLISH:
            self.take_message(packet, packet_id)
        else:
            self.ledger.violations[f"unexpected {packet.name}"] += 1

    def take_message(self, packet: Packet, packet_id: int) -> None:
        """Hands a message to the application, unless it is known, and acknowledges it."""
        assert self.line is not None
        if packet.qos < 2 or packet_id not in self.unreleased:
            self.ledger.arrive(Message.of(packet.payload), dup=packet.dup)
        if packet.qos == 1:
            self.line.write(mqtt.ack(mqtt.PUBACK, packet_id))
        elif packet.qos == 2:
            self.unreleased.add(packet_id)
            self.line.write(mqtt.ack(mqtt.PUBREC, packet_id))
