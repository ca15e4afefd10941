"""The soak's clients, for a broker that may die under them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests import wire as mqtt
from tests.soak.ledger import Ledger, Message
from tests.soak.peers import Peer, Publisher, Subscriber
from tests.wire import Packet

UNAVAILABLE = {3: 3, 4: 3, 5: 0x88}
"""What a CONNACK says in each version of a server that takes nobody."""
CHANGE = 999
"""The packet identifier of every change of a subscription."""

if TYPE_CHECKING:
    _Peer = Peer
else:
    _Peer = object  # a mixin: the peers beside it have the fields


class _Mortal(_Peer):
    """A peer that takes a lost connection as it comes: the broker was killed, or soon will be."""

    __slots__ = ()

    def accepted(self, connack: Packet) -> None:
        """A broker that is being stopped may turn it away; anything else is as for any peer."""
        if connack.reason == UNAVAILABLE[self.version]:
            self.leave("close")
        else:
            super().accepted(connack)

    def lost_line(self) -> None:
        """Nobody's fault; the run connects it again."""
        self.line = None
        self.is_online = False


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class MortalPublisher(_Mortal, Publisher):
    """A publisher whose connections end at any moment."""


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class MortalSubscriber(_Mortal, Subscriber):
    """A subscriber whose connections end at any moment."""


@dataclass(slots=True)
class Pool(Ledger):
    """The books of a shared subscription, whose members get messages in no common order."""

    def arrive(self, message: Message, *, dup: bool | None = None) -> None:
        """A member's application got a message."""
        Ledger.arrive(self, message, dup=dup)
        self.inversions.clear()


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Changer(MortalSubscriber):
    """A subscriber that changes its subscriptions; the last answer to each is what holds."""

    topics: tuple[str, ...]
    held: set[str] = field(default_factory=set)
    asked: tuple[str, bool] | None = None

    def change(self, topic: str) -> None:
        """Subscribes to a topic, or ends that; one change at a time."""
        if self.is_online and self.is_subscribed and self.asked is None:
            self.asked = (topic, topic not in self.held)
            self.ask()

    def ask(self) -> None:
        """Sends what was asked for and not answered."""
        if self.asked is None or self.line is None:
            return
        topic, is_wanted = self.asked
        if is_wanted:
            filters = (topic, 1)
            packet = mqtt.subscribe(filters, packet_id=CHANGE, version=self.version)
        else:
            packet = mqtt.unsubscribe(topic, packet_id=CHANGE, version=self.version)
        self.line.write(packet)

    def resume(self) -> None:
        """Asks again what may not have come through."""
        MortalSubscriber.resume(self)
        self.ask()

    def take(self, packet: Packet) -> None:
        """Records what was confirmed."""
        is_answer = packet.kind in (mqtt.SUBACK, mqtt.UNSUBACK) and packet.packet_id == CHANGE
        if not is_answer or self.asked is None:
            MortalSubscriber.take(self, packet)
            return
        topic, is_wanted = self.asked
        self.asked = None
        (self.held.add if is_wanted else self.held.discard)(topic)


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Keeper(MortalPublisher):
    """A publisher of retained messages: the last one that was acknowledged must be kept."""

    def packet(self, message: Message, packet_id: int | None, *, dup: bool) -> bytes:
        """The PUBLISH of a message, with RETAIN."""
        return mqtt.publish(
            self.topic,
            message.stamp() + self.padding,
            qos=message.qos,
            packet_id=packet_id,
            dup=dup,
            retain=True,
            version=self.version,
        )

    def acknowledged(self) -> int:
        """The sequence of the last message that was acknowledged; -1 without one."""
        return max(self.ledger.flow(self.number, 1).acknowledged, default=-1)
