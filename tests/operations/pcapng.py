"""Reads pcapng files of traces: TCP payloads by direction."""

from __future__ import annotations

import ipaddress
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

ENHANCED_PACKET: Final = 6
MQTT_PORT: Final = 1883
SYN: Final = 2


@dataclass
class Stream:
    """What one connection has: bytes of the client and of the broker."""

    sent: bytes = b""
    received: bytes = b""
    comments: list[str] = field(default_factory=list)


def packets(raw: bytes) -> Iterator[tuple[bytes, str]]:
    """The IP packets of a file, each with its comment."""
    place = 0
    while place < len(raw):
        kind, length = struct.unpack_from("<II", raw, place)
        assert struct.unpack_from("<I", raw, place + length - 4) == (length,)
        if kind == ENHANCED_PACKET:
            captured, original = struct.unpack_from("<II", raw, place + 20)
            assert captured == original
            start = place + 28
            options = raw[start + captured + -captured % 4 : place + length - 4]
            yield raw[start : start + captured], comment_of(options)
        place += length


def comment_of(options: bytes) -> str:
    """The comment among the options of a packet; empty without one."""
    if not options:
        return ""
    code, length = struct.unpack_from("<HH", options)
    assert code == 1
    return options[4 : 4 + length].decode()


def streams(raw: bytes) -> dict[tuple[str, int], list[Stream]]:
    """Connections by address and port of their clients, in their order."""
    found: dict[tuple[str, int], list[Stream]] = defaultdict(list)
    for packet, comment in packets(raw):
        if packet[0] >> 4 == 4:
            source, target = packet[12:16], packet[16:20]
            segment = packet[20:]
        else:
            source, target = packet[8:24], packet[24:40]
            segment = packet[40:]
        source_port, target_port = struct.unpack_from(">HH", segment)
        is_client = target_port == MQTT_PORT
        address = ipaddress.ip_address(source if is_client else target)
        key = (str(address), source_port if is_client else target_port)
        if is_client and segment[13] == SYN:
            found[key].append(Stream())
        stream = found[key][-1]
        if comment:
            stream.comments.append(comment)
        if is_client:
            stream.sent += segment[20:]
        else:
            stream.received += segment[20:]
    return found
