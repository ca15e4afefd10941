"""The attacks: which clients subscribe to what before, and what one client then publishes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tests import wire as mqtt
from tests.wire import Filter

CHUNK_BYTES: Final = 65_536
"""Bytes of publishes in one write."""
VERSION: Final = 4
"""All clients of an attack: no Receive Maximum holds a publisher of 3.1.1 back."""
FILTERS_A_CLIENT: Final = 1_000
"""The default limit of subscriptions."""
SHALLOWEST, DEEPEST = 14, 127
LEVELS_OF_BINARY: Final = 16
PACKET_IDS: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Subscribers, and the topic that is flooded."""

    name: str
    subscribers: int
    filters: Callable[[int], list[Filter]]
    """What the subscriber of a number subscribes to."""
    topic: str
    qos: int = 0
    is_offline: bool = False
    """The subscribers leave before the flood, and their sessions are kept."""
    is_read: bool = True
    """The subscribers read what comes."""

    @property
    def packet_bytes(self) -> int:
        """Length of each PUBLISH of the flood."""
        return len(self._publish(1))

    def chunks(self) -> list[bytes]:
        """The flood: writes that repeat without end. At QoS 1 they use each packet id once."""
        a_chunk = CHUNK_BYTES // self.packet_bytes
        packet_ids = range(1, PACKET_IDS + 1 if self.qos else a_chunk + 1)
        return [
            b"".join(self._publish(packet_id) for packet_id in packet_ids[first : first + a_chunk])
            for first in range(0, len(packet_ids), a_chunk)
        ]

    def _publish(self, packet_id: int) -> bytes:
        number = packet_id if self.qos else None
        return mqtt.publish(self.topic, b"x", qos=self.qos, packet_id=number, version=VERSION)


def wildcards(clients: int, filters: int) -> Attack:
    """Filters of `+` and literals at random; the topic walks down all of them and matches none."""

    def of_client(number: int) -> list[Filter]:
        dice = random.Random(number)  # noqa: S311 -- a seed that can be repeated
        depths = (dice.randrange(SHALLOWEST, DEEPEST + 1) for _ in range(filters))
        return ["/".join([*dice.choices("+a", k=depth - 1), "x"]) for depth in depths]

    return Attack(
        name=f"wildcards {clients} x {filters:,}",
        subscribers=clients,
        filters=of_client,
        topic="/".join("a" * DEEPEST),
    )


def binary(levels: int) -> Attack:
    """Every filter of `+` and `a` over so many levels, then `x`: all are walked, none matches."""
    count = 1 << levels

    def of_client(number: int) -> list[Filter]:
        first = number * FILTERS_A_CLIENT
        return [
            "/".join([*f"{choice:0{levels}b}".replace("0", "+").replace("1", "a"), "x"])
            for choice in range(first, min(first + FILTERS_A_CLIENT, count))
        ]

    return Attack(
        name=f"binary {count:,}",
        subscribers=-(-count // FILTERS_A_CLIENT),
        filters=of_client,
        topic="/".join("a" * (levels + 1)),
    )


def group(members: int, qos: int) -> Attack:
    """A shared group whose members are all away, with sessions that are kept."""
    return Attack(
        name=f"group {members:,} offline, QoS {qos}",
        subscribers=members,
        filters=lambda _: [("$share/group/shared", qos)],
        topic="shared",
        qos=qos,
        is_offline=True,
    )


def plain(subscribers: int) -> Attack:
    """One hot topic, and subscribers that take all of it."""
    return Attack(
        name=f"flood, {subscribers} subscribers",
        subscribers=subscribers,
        filters=lambda _: ["hot"],
        topic="hot",
    )


def unread(subscribers: int) -> Attack:
    """One hot topic, and subscribers that read nothing."""
    name = f"flood, {subscribers:,} slow readers"
    return replace(plain(subscribers), name=name, is_read=False)


FULL: Final = (
    *(wildcards(clients, FILTERS_A_CLIENT) for clients in (1, 5, 20)),
    binary(LEVELS_OF_BINARY),
    *(group(members, qos) for qos in (0, 1) for members in (2, 100, 1_000, 5_000)),
    plain(0),
    plain(10),
    unread(10_000),
)
"""What `make storm` runs."""
SMALL: Final = (
    wildcards(1, 20),
    binary(4),
    group(3, 0),
    group(3, 1),
    plain(0),
    plain(2),
    unread(5),
)
"""The same kinds, for a test of the harness."""
