"""Reads the persistence file of Mosquitto (`mosquitto.db`), versions 4 to 6.

The file has chunks: a kind, a length, a content. Times and identifiers of messages have the byte
order of the machine that wrote them (little-endian is read), other numbers that of the network.
"""

import mmap
import pathlib
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

MAGIC: Final = b"\x00\xb5\x00mosquitto db"
HEADER: Final = struct.Struct(">15sII")
VERSIONS: Final = (4, 5, 6)
OUTGOING: Final = 1
"""The direction of messages to the client."""
ID_BYTES: Final = 8
CONFIG, MESSAGE, DELIVERY, RETAINED, SUBSCRIPTION, CLIENT = range(1, 7)
"""Kinds of chunks."""


class MosquittoDbError(Exception):
    """The file cannot be read."""


class Message(NamedTuple):
    """A message that deliveries and topics refer to."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    source: bytes
    """The client identifier of its publisher; empty for the broker itself."""
    username: bytes
    expires_at_s: int
    """Unix time; 0: never."""
    properties: bytes
    """As in a PUBLISH of MQTT 5.0, with their length."""


class Delivery(NamedTuple):
    """A message of a client: to it, or from it while it is not released."""

    message: int
    packet_id: int
    qos: int
    state: int
    retain: bool
    is_outgoing: bool
    properties: bytes


class Subscription(NamedTuple):
    """A subscription of a client."""

    filter: bytes
    qos: int
    options: int
    """As in SUBSCRIBE, without the QoS."""
    subscription_id: int


class Client:
    """A session."""

    def __init__(self) -> None:
        self.is_known = False
        """Whether the file has the client itself, not only what it owns."""
        self.username = b""
        self.expiry_s = 0
        self.expires_at_s = 0
        """Unix time; 0 if the client was connected."""
        self.deliveries: list[Delivery] = []
        self.subscriptions: list[Subscription] = []


class Reader:
    """Reads the fields of a chunk one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise MosquittoDbError("a chunk is shorter than its fields")
        self._at += count
        return taken

    def fields(self, layout: str) -> tuple[int, ...]:
        """Numbers, as `struct` describes them."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self) -> bytes:
        """A text behind its length."""
        (length,) = self.fields(">H")
        return self.take(length)

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._data) - self._at)


class MosquittoDb:
    """What a file has. Messages are read when they are asked for.

    Raises:
        MosquittoDbError: it cannot be read: it is another file, of another version, or cut off.
    """

    def __init__(self, file: pathlib.Path) -> None:
        self.clients: dict[bytes, Client] = {}
        self.retained: list[int] = []
        self._places: dict[int, tuple[int, int]] = {}
        try:
            with file.open("rb") as opened:
                self._data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise MosquittoDbError(error.strerror) from error
        except ValueError:
            raise MosquittoDbError("it is empty") from None
        if len(self._data) < HEADER.size:
            raise MosquittoDbError("it is no persistence file of Mosquitto")
        magic, _, self.version = HEADER.unpack(self._data[: HEADER.size])
        if magic != MAGIC:
            raise MosquittoDbError("it is no persistence file of Mosquitto")
        if self.version not in VERSIONS:
            known = f"{VERSIONS[0]} to {VERSIONS[-1]} (Mosquitto 1.5.6 and later) are known"
            raise MosquittoDbError(f"it has version {self.version} of the format; {known}")
        self._is_old = self.version == VERSIONS[0]
        for kind, at, length in self._chunks():
            read = READERS.get(kind)
            if read is None:
                raise MosquittoDbError(f"it has a chunk of the unknown kind {kind} at byte {at}")
            read(self, at, length)

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        """Kind, place and length of each chunk."""
        head = struct.Struct(">HI" if self._is_old else ">II")
        at = HEADER.size
        while at < len(self._data):
            if at + head.size > len(self._data):
                raise MosquittoDbError("it is cut off: copy it after Mosquitto has stopped")
            kind, length = head.unpack(self._data[at : at + head.size])
            at += head.size
            if at + length > len(self._data):
                raise MosquittoDbError("it is cut off: copy it after Mosquitto has stopped")
            yield kind, at, length
            at += length

    def _reader(self, at: int, length: int) -> Reader:
        return Reader(self._data[at : at + length])

    def _client(self, client_id: bytes) -> Client:
        return self.clients.setdefault(client_id, Client())

    def _read_config(self, at: int, length: int) -> None:
        reader = self._reader(at, length)
        if not self._is_old:
            reader.take(8)
        _, id_bytes = reader.fields("<BB")
        if id_bytes != ID_BYTES:
            raise MosquittoDbError(f"identifiers have {id_bytes} bytes, not {ID_BYTES}")

    def _read_message(self, at: int, length: int) -> None:
        (number,) = self._reader(at, min(length, ID_BYTES)).fields("<Q")
        self._places[number] = (at, length)

    def _read_client(self, at: int, length: int) -> None:
        reader = self._reader(at, length)
        if self._is_old:
            client = self._client(reader.text())
            # Version 4 is older than sessions that end.
            client.is_known, client.expiry_s = True, 0xFFFF_FFFF
            return
        (expires_at_s,) = reader.fields("<q")
        expiry_s, _, id_bytes = reader.fields(">IHH")
        username_bytes = 0
        if self.version == VERSIONS[-1]:
            _, username_bytes, _ = reader.fields(">HHI")
        client = self._client(reader.take(id_bytes))
        client.is_known, client.expiry_s, client.expires_at_s = True, expiry_s, expires_at_s
        client.username = reader.take(username_bytes)

    def _read_delivery(self, at: int, length: int) -> None:
        reader = self._reader(at, length)
        if self._is_old:
            client = self._client(reader.text())
            (message,) = reader.fields("<Q")
            packet_id, qos, retain, direction, state, _ = reader.fields(">HBBBBB")
            properties = b""
        else:
            (message,) = reader.fields("<Q")
            packet_id, id_bytes, qos, state, flags, direction = reader.fields(">HHBBBB")
            retain = flags >> 4
            client = self._client(reader.take(id_bytes))
            properties = reader.rest()
        is_outgoing = direction == OUTGOING
        client.deliveries.append(
            Delivery(message, packet_id, qos, state, bool(retain), is_outgoing, properties)
        )

    def _read_subscription(self, at: int, length: int) -> None:
        reader = self._reader(at, length)
        if self._is_old:
            client_id, text = reader.text(), reader.text()
            (qos,) = reader.fields("<B")
            found = Subscription(text, qos, 0, 0)
        else:
            identifier, id_bytes, bytes_, qos, options, _ = reader.fields(">IHHBBH")
            client_id = reader.take(id_bytes)
            found = Subscription(reader.take(bytes_), qos, options, identifier)
        self._client(client_id).subscriptions.append(found)

    def _read_retained(self, at: int, length: int) -> None:
        self.retained += self._reader(at, length).fields("<Q")

    def message(self, number: int) -> Message | None:
        """A message; `None` if the file does not have it."""
        if number not in self._places:
            return None
        reader = self._reader(*self._places[number])
        reader.take(ID_BYTES)
        if self._is_old:
            source, username = reader.text(), reader.text()
            reader.take(6)  # port, and two packet identifiers
            topic = reader.text()
            qos, retain, payload_bytes = reader.fields(">BBI")
            payload = reader.take(payload_bytes)
            return Message(topic, payload, qos, bool(retain), source, username, 0, b"")
        (expires_at_s,) = reader.fields("<q")
        payload_bytes, _, id_bytes, username_bytes, topic_bytes, _, qos, retain = reader.fields(
            ">IHHHHHBB"
        )
        source, username = reader.take(id_bytes), reader.take(username_bytes)
        topic, payload = reader.take(topic_bytes), reader.take(payload_bytes)
        rest = reader.rest()
        return Message(topic, payload, qos, bool(retain), source, username, expires_at_s, rest)


READERS: Final[dict[int, Callable[[MosquittoDb, int, int], None]]] = {
    CONFIG: MosquittoDb._read_config,
    MESSAGE: MosquittoDb._read_message,
    DELIVERY: MosquittoDb._read_delivery,
    RETAINED: MosquittoDb._read_retained,
    SUBSCRIPTION: MosquittoDb._read_subscription,
    CLIENT: MosquittoDb._read_client,
}
