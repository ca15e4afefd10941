"""A small MQTT client over raw bytes: it sends what it is told, right or wrong.

Packets are built by hand here, never by mqttcore's own encoder, so that a fault in the one cannot
hide a fault in the other. Nothing sleeps: every wait ends with a packet, the end of the
connection, or a deadline.

>>> connect("me", version=4).hex(" ")
'10 0e 00 04 4d 51 54 54 04 02 00 3c 00 02 6d 65'
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
NAMES: Final = (
    *("RESERVED", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"),
    *("SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT"),
    "AUTH",
)
VERSIONS: Final = (3, 4, 5)
# A deadline, not a delay: tests that pass never wait this long.
PATIENCE_S: Final = 10.0

PropertyValue = int | str | bytes | tuple[str, str]
Properties = dict[str, "PropertyValue | list[PropertyValue]"]
# What a test writes: properties by name, or the bytes of a whole list.
Given = Mapping[str, Any] | bytes

# Identifier and type of each property of MQTT 5.0, section 2.2.2.2.
PROPERTIES: Final[dict[str, tuple[int, str]]] = {
    "payload_format_indicator": (1, "byte"),
    "message_expiry_interval": (2, "four"),
    "content_type": (3, "text"),
    "response_topic": (8, "text"),
    "correlation_data": (9, "binary"),
    "subscription_identifier": (11, "variable"),
    "session_expiry_interval": (17, "four"),
    "assigned_client_identifier": (18, "text"),
    "server_keep_alive": (19, "two"),
    "authentication_method": (21, "text"),
    "authentication_data": (22, "binary"),
    "request_problem_information": (23, "byte"),
    "will_delay_interval": (24, "four"),
    "request_response_information": (25, "byte"),
    "response_information": (26, "text"),
    "server_reference": (28, "text"),
    "reason_string": (31, "text"),
    "receive_maximum": (33, "two"),
    "topic_alias_maximum": (34, "two"),
    "topic_alias": (35, "two"),
    "maximum_qos": (36, "byte"),
    "retain_available": (37, "byte"),
    "user_property": (38, "pair"),
    "maximum_packet_size": (39, "four"),
    "wildcard_subscription_available": (40, "byte"),
    "subscription_identifier_available": (41, "byte"),
    "shared_subscription_available": (42, "byte"),
}
BY_ID: Final = {number: (name, kind) for name, (number, kind) in PROPERTIES.items()}
REPEATED: Final = frozenset({"user_property", "subscription_identifier"})
WIDTHS: Final = {"byte": 1, "two": 2, "four": 4}

_counter = itertools.count(1)
_run = f"{os.getpid():x}"


def unique(prefix: str = "t") -> str:
    """A name that no other test uses, nor another run against the same broker."""
    return f"{prefix}-{_run}-{next(_counter)}"


# --- building bytes -------------------------------------------------------------------------------


def var_int(value: int) -> bytes:
    """A variable byte integer, as short as it can be."""
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    """A string or binary data behind its two-byte length."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def packet(first: int, *body: bytes) -> bytes:
    """A fixed header with the right length before `body`."""
    joined = b"".join(body)
    return bytes([first]) + var_int(len(joined)) + joined


def one_property(name: str, value: PropertyValue) -> bytes:
    """One property: its identifier and its value."""
    number, kind = PROPERTIES[name]
    if isinstance(value, tuple):
        raw = text(value[0]) + text(value[1])
    elif isinstance(value, int):
        raw = var_int(value) if kind == "variable" else value.to_bytes(WIDTHS[kind], "big")
    else:
        raw = text(value)
    return bytes([number]) + raw


def properties(values: Given | None = None, /) -> bytes:
    """A property list behind its length; bytes are taken as the list itself."""
    if isinstance(values, bytes):
        return var_int(len(values)) + values
    parts = []
    for name, value in (values or {}).items():
        each = value if isinstance(value, list) else [value]
        parts += [one_property(name, item) for item in each]
    return var_int(len(joined := b"".join(parts))) + joined


def _when_5(version: int, values: Given | None) -> bytes:
    return properties(values) if version == 5 else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """A will, as CONNECT carries it."""

    topic: str | bytes
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Given | None = None

    def flags(self) -> int:
        """Will flag, will QoS and will retain."""
        return 0x04 | self.qos << 3 | (0x20 if self.retain else 0)


def connect(
    client_id: str | bytes = "",
    *,
    version: int = 5,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: str | bytes | None = None,
    password: bytes | None = None,
    props: Given | None = None,
    flags: int | None = None,
    name: bytes | None = None,
    level: int | None = None,
) -> bytes:
    """A CONNECT. `flags`, `name` and `level` replace what the other arguments imply."""
    implied = 0x02 if clean else 0
    body = text(client_id)
    if will is not None:
        implied |= will.flags()
        body += _when_5(version, will.properties) + text(will.topic) + text(will.payload)
    if username is not None:
        implied |= 0x80
        body += text(username)
    if password is not None:
        implied |= 0x40
        body += text(password)
    protocol = name if name is not None else (b"MQIsdp" if version == 3 else b"MQTT")
    head = bytes([version if level is None else level, implied if flags is None else flags])
    return packet(
        0x10, text(protocol), head, struct.pack(">H", keep_alive), _when_5(version, props), body
    )


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
    version: int = 5,
    props: Given | None = None,
) -> bytes:
    """A PUBLISH; with a QoS it needs a `packet_id`."""
    first = 0x30 | (0x08 if dup else 0) | qos << 1 | (0x01 if retain else 0)
    number = b"" if packet_id is None else struct.pack(">H", packet_id)
    return packet(first, text(topic), number, _when_5(version, props), payload)


def ack(
    kind: int, packet_id: int, reason: int | None = None, *, props: Given | None = None
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; with `reason` or `props` it is one of MQTT 5.0."""
    tail = b"" if reason is None else bytes([reason])
    if props is not None:
        tail = bytes([reason or 0]) + properties(props)
    return packet(kind << 4 | (0x02 if kind == PUBREL else 0), struct.pack(">H", packet_id), tail)


Filter = str | bytes | tuple[str | bytes, int]


def subscribe(
    *filters: Filter,
    packet_id: int = 1,
    version: int = 5,
    props: Given | None = None,
) -> bytes:
    """A SUBSCRIBE; a filter without options asks for QoS 0."""
    pairs = [item if isinstance(item, tuple) else (item, 0) for item in filters]
    body = b"".join(text(name) + bytes([options]) for name, options in pairs)
    return packet(0x82, struct.pack(">H", packet_id), _when_5(version, props), body)


def unsubscribe(
    *filters: str | bytes,
    packet_id: int = 1,
    version: int = 5,
    props: Given | None = None,
) -> bytes:
    """An UNSUBSCRIBE."""
    body = b"".join(text(name) for name in filters)
    return packet(0xA2, struct.pack(">H", packet_id), _when_5(version, props), body)


def disconnect(reason: int | None = None, *, props: Given | None = None) -> bytes:
    """A DISCONNECT; with `reason` or `props` it is one of MQTT 5.0."""
    if props is not None:
        return packet(0xE0, bytes([reason or 0]), properties(props))
    return packet(0xE0, b"" if reason is None else bytes([reason]))


def auth(reason: int, props: Given | None = None) -> bytes:
    """An AUTH."""
    return packet(0xF0, bytes([reason]), properties(props))


def pingreq() -> bytes:
    """A PINGREQ."""
    return b"\xc0\x00"


# --- reading bytes --------------------------------------------------------------------------------


class WireError(AssertionError):
    """The peer did not do what the test needs; the text says what came instead."""


class ClosedByPeerError(WireError):
    """The connection ended while a packet was awaited."""


def split_var_int(raw: bytes) -> tuple[int, bytes] | None:
    """A variable byte integer and what follows it; `None` when it is not whole."""
    value = 0
    for place, byte in enumerate(raw[:4]):
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, raw[place + 1 :]
    if len(raw) < 4:
        return None
    raise WireError(f"a length of more than four bytes: {raw[:8].hex(' ')}")


def _need_var_int(raw: bytes) -> tuple[int, bytes]:
    split = split_var_int(raw)
    if split is None:
        raise WireError("packet ends inside a length")
    return split


def _split_binary(raw: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(raw[:2], "big")
    if len(raw) < max(end, 2):
        raise WireError("packet ends inside a string")
    return raw[2:end], raw[end:]


def _split_value(kind: str, raw: bytes) -> tuple[PropertyValue, bytes]:
    if kind in WIDTHS:
        return int.from_bytes(raw[: WIDTHS[kind]], "big"), raw[WIDTHS[kind] :]
    if kind == "variable":
        return _need_var_int(raw)
    first, rest = _split_binary(raw)
    if kind == "binary":
        return first, rest
    if kind == "text":
        return first.decode(), rest
    second, rest = _split_binary(rest)
    return (first.decode(), second.decode()), rest


def split_properties(raw: bytes) -> tuple[Properties, bytes]:
    """A property list and what follows it; repeated ones come as lists, in their order."""
    length, rest = _need_var_int(raw)
    inner, rest = rest[:length], rest[length:]
    found: Properties = {}
    while inner:
        name, kind = BY_ID[inner[0]]
        value, inner = _split_value(kind, inner[1:])
        if name in REPEATED:
            values = found.setdefault(name, [])
            assert isinstance(values, list)
            values.append(value)
        elif name in found:
            raise WireError(f"{name} comes twice")
        else:
            found[name] = value
    return found, rest


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet that came, cut into its parts."""

    kind: int
    flags: int
    raw: bytes
    version: int
    packet_id: int | None = None
    reasons: tuple[int, ...] = ()
    properties: Properties | None = None
    topic: str = ""
    payload: bytes = b""
    session_present: bool = False

    @property
    def name(self) -> str:
        """What the specification calls it."""
        return NAMES[self.kind]

    @property
    def reason(self) -> int:
        """The only reason code; 0 where a short packet leaves it out."""
        assert len(self.reasons) <= 1, f"{self.name} has {len(self.reasons)} reason codes"
        return self.reasons[0] if self.reasons else 0

    @property
    def qos(self) -> int:
        """Of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        """Of a PUBLISH."""
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        """Of a PUBLISH."""
        return bool(self.flags & 8)

    def property(self, name: str) -> PropertyValue | list[PropertyValue] | None:
        """One property, or `None`."""
        assert name in PROPERTIES
        return (self.properties or {}).get(name)

    def __str__(self) -> str:
        shown = self.raw if len(self.raw) <= 64 else self.raw[:64] + b"..."
        return f"{self.name} {shown.hex(' ')}"


def read_packet(raw: bytes, version: int) -> Packet:
    """Cuts one whole packet into its parts; strict about what a server may send."""
    _, body = _need_var_int(raw[1:])
    kind, flags = raw[0] >> 4, raw[0] & 0x0F
    if kind != PUBLISH and flags != (2 if kind == PUBREL else 0):
        raise WireError(f"wrong flags in the fixed header: {raw.hex(' ')}")
    if kind == PUBLISH:
        return _read_publish(raw, body, version)
    if kind == CONNACK:
        found, rest = split_properties(body[2:]) if version == 5 else (None, body[2:])
        present = bool(body[0] & 1)
        _nothing_left(rest, raw)
        return Packet(kind, flags, raw, version, None, (body[1],), found, session_present=present)
    if kind in (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK):
        return _read_ack(raw, body, version)
    reasons: tuple[int, ...] = ()
    found = None
    if version == 5 and body:
        reasons = (body[0],)
        found, rest = split_properties(body[1:]) if body[1:] else ({}, b"")
        _nothing_left(rest, raw)
    elif body:
        raise WireError(f"a body where none belongs: {raw.hex(' ')}")
    return Packet(kind, flags, raw, version, None, reasons, found)


def _nothing_left(rest: bytes, raw: bytes) -> None:
    if rest:
        raise WireError(f"{len(rest)} bytes too many: {raw.hex(' ')}")


def _read_publish(raw: bytes, body: bytes, version: int) -> Packet:
    topic, rest = _split_binary(body)
    number = None
    if raw[0] & 0x06:
        number, rest = int.from_bytes(rest[:2], "big"), rest[2:]
    found, payload = split_properties(rest) if version == 5 else (None, rest)
    return Packet(PUBLISH, raw[0] & 0x0F, raw, version, number, (), found, topic.decode(), payload)


def _read_ack(raw: bytes, body: bytes, version: int) -> Packet:
    kind, number, rest = raw[0] >> 4, int.from_bytes(body[:2], "big"), body[2:]
    found: Properties | None = None
    reasons = b""
    if kind in (SUBACK, UNSUBACK):
        found, reasons = split_properties(rest) if version == 5 else (None, rest)
    elif version == 5:
        reasons = rest[:1]
        found, tail = split_properties(rest[1:]) if rest[1:] else ({}, b"")
        _nothing_left(tail, raw)
    else:
        _nothing_left(rest, raw)
    return Packet(kind, raw[0] & 0x0F, raw, version, number, tuple(reasons), found)


# --- the client -----------------------------------------------------------------------------------


class Wire:
    """One connection, with a deadline on every wait.

    `version` says how the broker's packets are read (and is the default of what is sent): 3 is
    MQTT 3.1, 4 is 3.1.1, 5 is 5.0.
    """

    def __init__(
        self,
        port: int,
        *,
        version: int = 5,
        host: str = "127.0.0.1",
        using: socket.socket | None = None,
    ) -> None:
        self.version = version
        self.socket = using or socket.create_connection((host, port), PATIENCE_S)
        if self.socket.family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._set_aside: deque[Packet] = deque()
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- bytes

    def send(self, *chunks: bytes) -> None:
        """Sends all chunks in one go."""
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(b"".join(chunks))

    def send_slowly(self, data: bytes) -> None:
        """Sends each byte in a segment of its own, as far as the kernel goes along."""
        for place in range(len(data)):
            self.send(data[place : place + 1])

    def _fill(self, until: float) -> bool:
        """Reads more; false when the peer has closed or reset the connection."""
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        try:
            chunk = self.socket.recv(65_536)
        except ConnectionError:
            chunk = b""
        self._unread += chunk
        self._ended = self._ended or not chunk
        return bool(chunk)

    def _cut(self) -> bytes | None:
        """The first whole packet of what was read, taken out of it."""
        split = split_var_int(self._unread[1:])
        if split is None or len(split[1]) < split[0]:
            return None
        length = len(self._unread) - len(split[1]) + split[0]
        raw, self._unread = self._unread[:length], self._unread[length:]
        return raw

    def receive(self, *, within_s: float = PATIENCE_S) -> Packet:
        """The next packet.

        Raises:
            ClosedByPeerError: The connection ended instead.
            TimeoutError: Nothing came in time.
        """
        if self._set_aside:
            return self._set_aside.popleft()
        return self._receive_new(within_s)

    def _receive_new(self, within_s: float) -> Packet:
        until = time.monotonic() + within_s
        while (raw := self._cut()) is None:
            if self._ended or not self._fill(until):
                raise ClosedByPeerError(f"closed; unread: {self._unread.hex(' ') or 'nothing'}")
        return read_packet(raw, self.version)

    def expect(self, kind: int, *, within_s: float = PATIENCE_S) -> Packet:
        """The next packet, which must be of this kind."""
        found = self.receive(within_s=within_s)
        if found.kind != kind:
            raise WireError(f"expected {NAMES[kind]}, came {found}")
        return found

    def expect_besides_publishes(
        self, kind: int, packet_id: int | None = None, *, within_s: float = PATIENCE_S
    ) -> Packet:
        """The next packet that is no PUBLISH; those on the way are kept for `receive`."""
        while (found := self._receive_new(within_s)).kind == PUBLISH:
            self._set_aside.append(found)
        if found.kind != kind or packet_id not in (None, found.packet_id):
            raise WireError(f"expected {NAMES[kind]} {packet_id or ''}, came {found}")
        return found

    def expect_bytes(self, data: bytes, *, within_s: float = PATIENCE_S) -> None:
        """The next packet, which must consist of exactly these bytes."""
        found = self.receive(within_s=within_s)
        if found.raw != data:
            raise WireError(f"expected {data.hex(' ')}, came {found}")

    def expect_close(self, *, within_s: float = PATIENCE_S) -> None:
        """The end of the connection, without one more byte.

        Raises:
            TimeoutError: It stays open.
        """
        until = time.monotonic() + within_s
        while not self._ended and not self._unread:
            self._fill(until)
        if self._set_aside:
            raise WireError(f"expected the end, came {self._set_aside[0]}")
        if self._unread:
            raise WireError(f"expected the end, came {self._unread.hex(' ')}")

    def receive_until_close(self) -> list[Packet]:
        """Every packet that still comes before the peer closes."""
        found = []
        while True:
            try:
                found.append(self.receive())
            except ClosedByPeerError:
                return found

    def expect_refusal(self, reason: int, *, within_s: float = PATIENCE_S) -> None:
        """How a server ends a connection: MQTT 5.0 says why, 3.x only closes."""
        if self.version == 5:
            found = self.expect(DISCONNECT, within_s=within_s)
            if found.reason != reason:
                raise WireError(f"expected DISCONNECT 0x{reason:02X}, came {found}")
        self.expect_close(within_s=within_s)

    def expect_no_entry(self, reason: int, *, within_s: float = PATIENCE_S) -> None:
        """How a server refuses a CONNECT: 5.0 says why in a CONNACK, 3.x only closes."""
        if self.version == 5:
            found = self.expect(CONNACK, within_s=within_s)
            if (found.reason, found.session_present) != (reason, False):
                raise WireError(f"expected CONNACK 0x{reason:02X}, came {found}")
        self.expect_close(within_s=within_s)

    def is_closed(self) -> bool:
        """Whether the peer has closed, without waiting and without reading packets."""
        while not self._ended and select.select([self.socket], [], [], 0)[0]:
            self._fill(time.monotonic() + 1)
        return self._ended

    # --- common exchanges

    def connect(
        self,
        client_id: str | bytes = "",
        *,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        username: str | bytes | None = None,
        password: bytes | None = None,
        props: Given | None = None,
        reason: int = 0,
    ) -> Packet:
        """Sends CONNECT and answers with the CONNACK, whose code must be `reason`."""
        data = connect(
            client_id,
            version=self.version,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            username=username,
            password=password,
            props=props,
        )
        self.send(data)
        found = self.expect(CONNACK)
        if found.reason != reason:
            raise WireError(f"expected CONNACK 0x{reason:02X}, came {found}")
        return found

    def subscribe(
        self,
        *filters: Filter,
        packet_id: int = 1,
        props: Given | None = None,
    ) -> Packet:
        """Sends SUBSCRIBE and answers with the SUBACK."""
        self.send(subscribe(*filters, packet_id=packet_id, version=self.version, props=props))
        found = self.expect_besides_publishes(SUBACK, packet_id)
        assert len(found.reasons) == len(filters)
        return found

    def unsubscribe(self, *filters: str | bytes, packet_id: int = 1) -> Packet:
        """Sends UNSUBSCRIBE and answers with the UNSUBACK."""
        self.send(unsubscribe(*filters, packet_id=packet_id, version=self.version))
        return self.expect_besides_publishes(UNSUBACK, packet_id)

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 0,
        packet_id: int = 1,
        retain: bool = False,
        dup: bool = False,
        props: Given | None = None,
    ) -> Packet:
        """Publishes, plays the whole flow, and answers with the PUBACK or PUBREC.

        At QoS 0 nothing acknowledges: PINGREQ is sent behind it, and its PINGRESP is the answer,
        so that the broker has taken the message when this returns.
        """
        number = packet_id if qos else None
        self.send(
            publish(
                topic,
                payload,
                qos=qos,
                packet_id=number,
                retain=retain,
                dup=dup,
                version=self.version,
                props=props,
            )
        )
        if qos == 0:
            self.send(pingreq())
            return self.expect_besides_publishes(PINGRESP)
        first = self.expect_besides_publishes(PUBACK if qos == 1 else PUBREC, packet_id)
        if qos == 2 and first.reason < 0x80:
            self.send(ack(PUBREL, packet_id))
            self.expect_besides_publishes(PUBCOMP, packet_id)
        return first

    def receive_publish(self, *, within_s: float = PATIENCE_S) -> Packet:
        """The next packet, which must be a PUBLISH; plays the receiver's side of its flow."""
        found = self.expect(PUBLISH, within_s=within_s)
        self.acknowledge(found)
        return found

    def acknowledge(self, found: Packet) -> None:
        """Plays the receiver's side of the flow of a PUBLISH that came before."""
        if found.qos == 1:
            self.send(ack(PUBACK, found.packet_id or 0))
        elif found.qos == 2:
            self.send(ack(PUBREC, found.packet_id or 0))
            self.expect_besides_publishes(PUBREL, found.packet_id)
            self.send(ack(PUBCOMP, found.packet_id or 0))

    def drain(self) -> list[Packet]:
        """What has come already: every PUBLISH, each acknowledged; without waiting for more."""
        found = []
        while self._set_aside or self._unread or select.select([self.socket], [], [], 0)[0]:
            found.append(self.receive_publish())
        return found

    def ping(self) -> None:
        """Sends PINGREQ; the next packet must be its PINGRESP, so nothing else was on its way."""
        self.send(pingreq())
        self.expect(PINGRESP)

    # --- ends

    def disconnect(self, reason: int | None = None, *, props: Given | None = None) -> None:
        """Sends DISCONNECT and waits until the broker has closed."""
        self.send(disconnect(reason, props=props))
        self.expect_close()
        self.close()

    def close(self) -> None:
        """Closes without a word."""
        self.socket.close()

    def reset(self) -> None:
        """Ends the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def payloads(packets: Sequence[Packet]) -> list[bytes]:
    """The payloads, in order."""
    return [each.payload for each in packets]
