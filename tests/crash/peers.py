"""The soak's clients, for a broker that may die under them."""

from __future__ import annotations

from dataclasses import dataclass

from tests import wire as mqtt
from tests.soak.ledger import Message
from tests.soak.peers import Line, Publisher, Subscriber


class _Mortal:
    """A peer that takes a lost connection as it comes: the broker was killed, or soon will be."""

    __slots__ = ()

    line: Line | None
    is_online: bool

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
