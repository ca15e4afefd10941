"""Makes a data folder of the persistence file of Mosquitto: `mqttcore store import-mosquitto`."""

import pathlib
import time
from collections import Counter
from typing import Final

from mqttcore._core import StoreWriter, store_create
from mqttcore.errors import MqttError
from mqttcore.mosquitto_db import Client, Delivery, Message, MosquittoDb, Subscription
from mqttcore.packets import Properties, Publish, decode_packet, encode_packet

FOREVER_S: Final = 0xFFFF_FFFF
QUEUED: Final = 11
RELEASING: Final = frozenset({6, 9})
"""States of a QoS 2 message that the client has: PUBREL is sent (again), PUBCOMP is awaited."""
IGNORED: Final = frozenset({"topic_alias", "subscription_identifier", "message_expiry_interval"})
"""Properties of a stored message that the broker sets for each delivery."""


class LeftOutError(Exception):
    """Something of the file cannot be taken over."""


class Import:
    """One import.

    Args:
        db: The file.
        now_s: The time of the import, as Unix time.
    """

    def __init__(self, db: MosquittoDb, now_s: float) -> None:
        self._db = db
        self._now_s = int(now_s)
        self._written: dict[int, int] = {}
        """Numbers of messages in the new store, by those of the file."""
        self.counts: Counter[str] = Counter()
        self.left_out: list[str] = []
        """What cannot be taken over, one sentence each."""

    def fill(self, writer: StoreWriter) -> None:
        """Writes everything that can be taken over."""
        for number in self._db.retained:
            self._retained(writer, number)
        for raw, client in self._db.clients.items():
            name = repr(raw.decode(errors="backslashreplace"))
            try:
                self._session(writer, text_of(raw, "the client identifier"), name, client)
            except LeftOutError as error:
                self.left_out.append(f"client {name}: {error}")

    def _retained(self, writer: StoreWriter, number: int) -> None:
        message = self._current(number)
        if message is None:
            return
        try:
            packet = packet_of(message, self._now_s)
            source = source_of(message)
            self._written[number] = writer.message(
                packet, kept=True, expires_at_ms=expiry_of(message), source=source, receiver=None
            )
        except (LeftOutError, MqttError, ValueError) as error:
            topic = message.topic.decode(errors="backslashreplace")
            self.left_out.append(f"retained message of topic {topic!r}: {error}")
            return
        self.counts["retained"] += 1

    def _session(self, writer: StoreWriter, client_id: str, name: str, client: Client) -> None:
        if not client.is_known:
            raise LeftOutError("the file has its subscriptions or messages, but no session")
        if 0 < client.expires_at_s < self._now_s:
            self.counts["expired_sessions"] += 1
            return
        is_dated = client.expires_at_s and client.expiry_s != FOREVER_S
        since_s = client.expires_at_s - client.expiry_s if is_dated else self._now_s
        session = writer.session(
            client_id,
            username=username_of(client.username),
            version=4 if client.expiry_s == FOREVER_S else 5,
            expiry_s=client.expiry_s,
            away_since_ms=max(since_s, 0) * 1000,
        )
        self.counts["sessions"] += 1
        for subscription in client.subscriptions:
            self._subscription(writer, session, name, subscription)
        for delivery in client.deliveries:
            try:
                self._delivery(writer, session, delivery)
            except (LeftOutError, MqttError, ValueError) as error:
                self.left_out.append(f"client {name}: {error}")

    def _subscription(
        self, writer: StoreWriter, session: int, name: str, subscription: Subscription
    ) -> None:
        try:
            writer.subscribe(
                session,
                text_of(subscription.filter, "a filter"),
                options=subscription.options & 0b1100 | subscription.qos & 0b11,
                subscription_id=subscription.subscription_id,
            )
        except (LeftOutError, MqttError) as error:
            text = subscription.filter.decode(errors="backslashreplace")
            self.left_out.append(f"client {name}: subscription {text!r}: {error}")
            return
        self.counts["subscriptions"] += 1

    def _delivery(self, writer: StoreWriter, session: int, delivery: Delivery) -> None:
        message = self._current(delivery.message)
        if not delivery.is_outgoing:
            topic = "" if message is None else message.topic.decode(errors="backslashreplace")
            raise LeftOutError(
                f"it has not released its QoS 2 message {delivery.packet_id} of topic {topic!r}, "
                "which subscribers do not have yet: let it connect to Mosquitto once more"
            )
        if delivery.state in RELEASING:
            writer.received(session, delivery.packet_id)
            self.counts["in_flight"] += 1
            return
        if message is None:
            return
        ids = [
            value
            for found, value in properties_of(delivery.properties)
            if found == "subscription_identifier" and isinstance(value, int)
        ]
        receiver = (session, delivery.qos, delivery.retain, ids)
        number = self._written.get(delivery.message)
        if number is None:
            number = self._written[delivery.message] = writer.message(
                packet_of(message, self._now_s),
                kept=False,
                expires_at_ms=expiry_of(message),
                source=None,
                receiver=receiver,
            )
        else:
            number = writer.deliver(number, receiver)
        if delivery.qos and delivery.state != QUEUED and delivery.packet_id:
            writer.sending(session, number, delivery.packet_id)
            self.counts["in_flight"] += 1
        else:
            self.counts["queued"] += 1

    def _current(self, number: int) -> Message | None:
        """A message that has not expired. Mosquitto takes a missing one for one that has."""
        message = self._db.message(number)
        if message is None or 0 < message.expires_at_s < self._now_s:
            self.counts["expired_messages"] += 1
            return None
        return message


def text_of(raw: bytes, what: str) -> str:
    """A text of MQTT.

    Raises:
        LeftOutError: it is none.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise LeftOutError(f"{what} is no text of MQTT")
    return text


def username_of(raw: bytes) -> str | None:
    """A user name. Mosquitto 2.0 writes bytes of its memory for clients without one."""
    try:
        return text_of(raw, "the user name") or None
    except LeftOutError:
        return None


def source_of(message: Message) -> tuple[str, str | None] | None:
    """The publisher of a retained message."""
    source = text_of(message.source, "the publisher")
    return (source, username_of(message.username)) if source else None


def expiry_of(message: Message) -> int | None:
    """The end of a message, in Unix milliseconds."""
    return message.expires_at_s * 1000 or None


def properties_of(raw: bytes) -> Properties:
    """Properties that stand behind their length, as those of a PUBLISH.

    Raises:
        MqttError: they are none.
    """
    if not raw:
        return ()
    body = b"\x00\x01t" + raw
    packet = encode_length(len(body), b"\x30") + body
    decoded = decode_packet(packet, user_properties=0xFFFF, user_property_bytes=len(raw))
    assert decoded is not None  # noqa: S101 -- the packet is as long as it says
    assert isinstance(decoded[0], Publish)  # noqa: S101 -- its first byte says so
    return decoded[0].properties


def encode_length(length: int, head: bytes) -> bytes:
    """The first byte of a packet, and its Remaining Length."""
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length])


def packet_of(message: Message, now_s: int) -> bytes:
    """The message as a PUBLISH of MQTT 5.0, with the rest of its expiry.

    Raises:
        LeftOutError: its topic is no text.
    """
    pairs = tuple(pair for pair in properties_of(message.properties) if pair[0] not in IGNORED)
    if message.expires_at_s:
        pairs += (("message_expiry_interval", message.expires_at_s - now_s),)
    publish = Publish(
        topic=text_of(message.topic, "its topic"),
        payload=message.payload,
        qos=message.qos,
        packet_id=1 if message.qos else None,
        retain=message.retain,
        properties=pairs,
    )
    return encode_packet(publish)


def import_mosquitto(
    file: pathlib.Path, directory: pathlib.Path, *, accepts_loss: bool
) -> dict[str, object]:
    """Makes the data folder, unless something must be left out and that is not accepted.

    Raises:
        MosquittoDbError: the file cannot be read.
        StoreError: the folder is not empty, or cannot be written.
        LeftOutError: something cannot be taken over.
    """
    made = Import(MosquittoDb(file), time.time())

    def fill(writer: StoreWriter) -> None:
        made.fill(writer)
        if made.left_out and not accepts_loss:
            raise LeftOutError("\n".join(made.left_out))

    store_create(directory, fill)
    names = ("sessions", "subscriptions", "queued", "in_flight", "retained")
    expired = ("expired_sessions", "expired_messages")
    return {name: made.counts[name] for name in names + expired} | {"left_out": made.left_out}
