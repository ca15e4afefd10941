"""The `$SYS` topics of Mosquitto 2.0 and 2.1, recorded, and readers of those of a broker.

`python -m tests.operations.sys_diff` compares the list with a Mosquitto that is installed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.wire import Packet, Wire

NUMBER: Final = r"\d+"
AVERAGE: Final = r"\d+\.\d\d"
SECONDS: Final = r"\d+ seconds"
VERSION: Final = r"\w+( version)? \d+\.\d+\.\d+\S*"

LOADS: Final = (
    *("messages/received", "messages/sent", "publish/dropped", "publish/received"),
    *("publish/sent", "bytes/received", "bytes/sent", "sockets", "connections"),
)
NUMBERS: Final = (
    *("clients/total", "clients/maximum", "clients/disconnected", "clients/inactive"),
    *("clients/connected", "clients/active", "clients/expired"),
    *("messages/received", "messages/sent", "messages/stored"),
    *("store/messages/count", "store/messages/bytes"),
    *("subscriptions/count", "shared_subscriptions/count", "retained messages/count"),
    *("publish/messages/dropped", "publish/messages/received", "publish/messages/sent"),
    *("publish/bytes/received", "publish/bytes/sent", "bytes/received", "bytes/sent"),
    *("heap/current", "heap/maximum"),
)
SINCE_2_1: Final = ("packet/out/count", "packet/out/bytes", "connections/socket/count")
"""Not in Mosquitto 2.0."""

MOSQUITTO: Final[Mapping[str, str]] = {
    "version": VERSION,
    "uptime": SECONDS,
    **dict.fromkeys((*NUMBERS, *SINCE_2_1), NUMBER),
    **{f"load/{name}/{period}": AVERAGE for name in LOADS for period in ("1min", "5min", "15min")},
}
"""The payload of each topic below `$SYS/broker/`."""

TELEGRAF: Final = (
    *("bytes/received", "bytes/sent", "clients/connected", "clients/total"),
    *("messages/received", "messages/sent", "retained messages/count"),
    *("subscriptions/count", "uptime"),
)
"""Topics that the Telegraf and MQTT Explorer defaults read."""

PREFIX: Final = "$SYS/broker/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a broker shows of one topic."""

    text: str
    qos: int
    retain: bool

    @classmethod
    def of(cls, packet: Packet) -> Shown:
        """That of a message."""
        return cls(text=packet.payload.decode(), qos=packet.qos, retain=packet.retain)

    def flags(self) -> str:
        """For a table."""
        return f"qos {self.qos}{', retain' if self.retain else ''}"


def grammar(text: str) -> str | None:
    """The first of the grammars that a text has."""
    known = {"number": NUMBER, "average": AVERAGE, "seconds": SECONDS, "version": VERSION}
    return next((name for name, form in known.items() if re.fullmatch(form, text)), None)


def retained(
    port: int,
    *,
    names: frozenset[str],
    least: Mapping[str, int] | None = None,
    within_s: float = 20.0,
) -> dict[str, Shown]:
    """What a new subscriber gets.

    It comes again until all `names` are there with values of `least` or more, or time is up.
    """
    found: dict[str, Shown] = {}
    until = time.monotonic() + within_s
    while not is_complete(found, names, least or {}) and time.monotonic() < until:
        with Wire(port, version=4) as wire:
            wire.connect("reader")
            wire.subscribe((PREFIX + "#", 2))
            while (packet := wire.receive_publish()).retain:
                found[packet.topic.removeprefix(PREFIX)] = Shown.of(packet)
    return found


def is_complete(
    found: Mapping[str, Shown], names: frozenset[str], least: Mapping[str, int]
) -> bool:
    """Whether all is there that is waited for."""
    return names <= found.keys() and all(int(found[name].text) >= least[name] for name in least)
