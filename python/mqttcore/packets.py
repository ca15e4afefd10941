"""MQTT packets as plain values, read and written by the broker's own codec.

    from mqttcore.packets import Publish, decode_packet, encode_packet, properties

    raw = encode_packet(Publish(topic="a/b", payload=b"hi", properties=properties(topic_alias=3)))
    packet, length = decode_packet(raw)

A version is its protocol level: 3 for MQTT 3.1, 4 for 3.1.1, 5 for 5.0. Properties are pairs of
name and value in the order of the packet; before version 5 there are none.
"""

from mqttcore import _core
from mqttcore._record import Record

PropertyValue = bool | int | str | bytes | tuple[str, str]
Properties = tuple[tuple[str, PropertyValue], ...]


def properties(**values: PropertyValue | list[PropertyValue]) -> Properties:
    """Makes properties by name: ``properties(topic_alias=3, user_property=[("a", "b")])``."""
    pairs: list[tuple[str, PropertyValue]] = []
    for name, value in values.items():
        several = value if isinstance(value, list) else [value]
        pairs.extend((name, one) for one in several)
    return tuple(pairs)


class Will(Record):
    """The message that the broker publishes when a client is lost."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


class Connect(Record):
    """CONNECT; it names its own version.

    ``is_bridge`` is the top bit of the protocol level, in 3.1 and 3.1.1.
    """

    version: int = 5
    is_bridge: bool = False
    client_id: str = ""
    clean_start: bool = True
    keep_alive_s: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = ()

    def __repr__(self) -> str:
        return f"Connect(version={self.version}, client_id={self.client_id!r}, ...)"


class ConnAck(Record):
    """CONNACK; a return code of 3.x is converted to the reason code of version 5."""

    reason: int = 0
    session_present: bool = False
    properties: Properties = ()


class Publish(Record):
    """PUBLISH; ``packet_id`` belongs to QoS 1 and 2."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    packet_id: int | None = None
    dup: bool = False
    retain: bool = False
    properties: Properties = ()


class PubAck(Record):
    """PUBACK: the answer to QoS 1."""

    packet_id: int
    reason: int = 0
    properties: Properties = ()


class PubRec(Record):
    """PUBREC: the first answer to QoS 2."""

    packet_id: int
    reason: int = 0
    properties: Properties = ()


class PubRel(Record):
    """PUBREL: releases the packet identifier of a QoS 2 message."""

    packet_id: int
    reason: int = 0
    properties: Properties = ()


class PubComp(Record):
    """PUBCOMP: the end of QoS 2."""

    packet_id: int
    reason: int = 0
    properties: Properties = ()


class Subscription(Record):
    """One filter of SUBSCRIBE; ``retain_handling``: 0 send, 1 send if new, 2 do not send."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Record):
    """SUBSCRIBE."""

    packet_id: int
    filters: tuple[Subscription, ...]
    properties: Properties = ()


class SubAck(Record):
    """SUBACK: a reason code for each filter."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = ()


class Unsubscribe(Record):
    """UNSUBSCRIBE."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = ()


class UnsubAck(Record):
    """UNSUBACK: in version 5 a reason code for each filter, earlier none."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = ()


class PingReq(Record):
    """PINGREQ."""


class PingResp(Record):
    """PINGRESP."""


class Disconnect(Record):
    """DISCONNECT."""

    reason: int = 0
    properties: Properties = ()


class Auth(Record):
    """AUTH, of version 5 only."""

    reason: int = 0
    properties: Properties = ()


Packet = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)


def encode_packet(packet: Packet, /, *, version: int = 5) -> bytes:
    """The bytes of a packet. A CONNECT is encoded in its own version.

    Raises:
        PacketError: the version has no such packet, or a value cannot be written.
    """
    return _core.encode_packet(packet, version)


def decode_packet(
    data: bytes,
    /,
    *,
    version: int = 5,
    first: bool = False,
    packet_bytes: int = 268_435_460,
    user_properties: int = 64,
    user_property_bytes: int = 16_384,
) -> tuple[Packet, int] | None:
    """The packet at the front of ``data`` and its length; None while bytes are missing.

    Args:
        data: What came, from the first byte of a packet.
        version: Of the connection; a CONNECT is read by the version that it names itself.
        first: It is the first packet of a connection, so anything but CONNECT is refused.
        packet_bytes: The largest packet that is accepted, refused by its announced length.
        user_properties: The most user properties in one packet.
        user_property_bytes: The most bytes that they take.

    Raises:
        PacketError: no later byte can turn ``data`` into a packet.
    """
    limits = (packet_bytes, user_properties, user_property_bytes)
    return _core.decode_packet(data, version, first, limits)


def reason_text(reason: int, /) -> str:
    """The value and the name of a reason code, as ``0x87 Not authorized``."""
    return _core.reason_text(reason)
