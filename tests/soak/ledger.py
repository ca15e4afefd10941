"""The books of a soak: what was sent, what the broker took on, what arrived, and what is wrong.

Every message is named by its publisher, its quality and its sequence. At QoS 1 and 2 a message
that the broker acknowledged must arrive; at QoS 2 it must arrive once; and the first arrivals of
one publisher at one quality keep the order in which they were sent. A repeat at QoS 1
has DUP, unless its publisher sent the message again: then it may be a message of its own.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field

STAMP = struct.Struct(">IBI")


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """One message's name."""

    publisher: int
    qos: int
    sequence: int

    def stamp(self) -> bytes:
        """The name as the front of a payload."""
        return STAMP.pack(self.publisher, self.qos, self.sequence)

    @classmethod
    def of(cls, payload: bytes) -> Message:
        """The name that a payload carries."""
        return cls(*STAMP.unpack_from(payload))


@dataclass(slots=True)
class Flow:
    """One publisher at one quality, to its one subscriber."""

    sent: int = 0
    resent: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)
    newest: int = -1


@dataclass(slots=True)
class Ledger:
    """All flows, and everything that should not have happened."""

    flows: dict[tuple[int, int], Flow] = field(default_factory=dict)
    repeats: Counter[int] = field(default_factory=Counter)
    unmarked: list[Message] = field(default_factory=list)
    """Repeats at QoS 1 without DUP."""
    inversions: list[Message] = field(default_factory=list)
    violations: Counter[str] = field(default_factory=Counter)

    def flow(self, publisher: int, qos: int) -> Flow:
        """The flow of a publisher at a quality."""
        return self.flows.setdefault((publisher, qos), Flow())

    def send(self, publisher: int, qos: int) -> Message:
        """Names the next message of a publisher."""
        flow = self.flow(publisher, qos)
        flow.sent += 1
        return Message(publisher, qos, flow.sent - 1)

    def resend(self, message: Message) -> None:
        """Its publisher sends a message again."""
        self.flow(message.publisher, message.qos).resent.add(message.sequence)

    def acknowledge(self, message: Message) -> None:
        """The broker has taken a message on: PUBACK, or PUBREC."""
        self.flow(message.publisher, message.qos).acknowledged.add(message.sequence)

    def arrive(self, message: Message, *, dup: bool | None = None) -> None:
        """A subscriber's application got a message, with this DUP if it came as a PUBLISH."""
        flow = self.flow(message.publisher, message.qos)
        if message.sequence >= flow.sent:
            self.violations["a message that nobody sent"] += 1
        elif message.sequence in flow.arrived:
            self.repeats[message.qos] += 1
            if message.qos == 1 and dup is False and message.sequence not in flow.resent:
                self.unmarked.append(message)
        else:
            flow.arrived.add(message.sequence)
            if message.sequence < flow.newest:
                self.inversions.append(message)
            flow.newest = max(flow.newest, message.sequence)

    def lost(self) -> list[Message]:
        """Messages of QoS 1 and 2 that were acknowledged and never arrived."""
        return sorted(
            Message(publisher, qos, sequence)
            for (publisher, qos), flow in self.flows.items()
            if qos
            for sequence in flow.acknowledged - flow.arrived
        )

    def unacknowledged(self) -> int:
        """Messages of QoS 1 and 2 that were sent, but never acknowledged."""
        return sum(
            flow.sent - len(flow.acknowledged) for (_, qos), flow in self.flows.items() if qos
        )

    def count(self, qos: int) -> tuple[int, int]:
        """Messages sent and arrived at one quality."""
        flows = [flow for (_, each), flow in self.flows.items() if each == qos]
        return sum(flow.sent for flow in flows), sum(len(flow.arrived) for flow in flows)

    def faults(self) -> list[str]:
        """What is wrong, a line each; empty when all is well."""
        lost = self.lost()
        found = [f"{count} x {what}" for what, count in sorted(self.violations.items())]
        if lost:
            found.append(f"{len(lost)} acknowledged messages lost, first {lost[0]}")
        if self.repeats[2]:
            found.append(f"{self.repeats[2]} messages of QoS 2 delivered again")
        if self.repeats[0]:
            found.append(f"{self.repeats[0]} messages of QoS 0 delivered again")
        if self.unmarked:
            found.append(f"{len(self.unmarked)} repeats without DUP, first {self.unmarked[0]}")
        if self.inversions:
            found.append(f"{len(self.inversions)} out of order, first {self.inversions[0]}")
        if waiting := self.unacknowledged():
            found.append(f"{waiting} messages never acknowledged")
        return found
