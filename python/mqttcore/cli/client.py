"""A small MQTT client for the commands: acknowledgements, keep-alive and reconnects."""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Self, TypeVar

from mqttcore.cli.connection import Connection, Endpoint
from mqttcore.cli.failure import REFUSED, UNREACHABLE, CommandError
from mqttcore.errors import PacketError
from mqttcore.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    encode_packet,
    reason_text,
)
from mqttcore.packets import Properties as MqttProperties

PATIENCE_S: Final = 30.0
"""Seconds for the connection, and for each answer of the broker."""
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 30.0
"""Maximum pause between attempts to connect again; pauses double up to it."""
FIRST_ERROR: Final = 0x80
"""First reason code of failures."""
TAKEN_OVER: Final = 0x8E
PASSING: Final = frozenset(
    {0x00, 0x80, 0x83, 0x88, 0x89, 0x8B, 0x8D, 0x96, 0x97, 0x98, 0x9C, 0x9F, 0xA0}
)
"""Reasons of a DISCONNECT that may be gone at the next connection."""
ADVICE: Final = {
    0x84: "choose another version with -V",
    0x85: "choose another client identifier with -i",
    0x86: "check -u, and -P or --password-file",
    0x87: "check -u, and -P or --password-file; or the rules do not allow this client",
}
"""Advice for reasons of a refused connection."""
FRUITLESS: Final = 5
"""Connections without an acknowledgement, although messages are in flight, after which a client
ends."""
PACKET_IDS: Final = 65_535

Trace = Callable[[str, Packet], None]
"""Called with ``sent`` or ``received`` and each packet."""

Kind = TypeVar("Kind", ConnAck, SubAck, UnsubAck)


class ConnectionLostError(CommandError):
    """The connection ended; the client may connect again."""

    def __init__(self, text: str) -> None:
        super().__init__(text, status=UNREACHABLE)


class MqttClient:
    """A client of a broker; ``connect`` may be called again when the connection was lost.

    Args:
        endpoint: Where the broker listens.
        login: The CONNECT that it sends.
        window: Most QoS 1 and 2 messages in flight.
        trace: Called with each packet.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        login: Connect,
        *,
        window: int = 20,
        trace: Trace | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.login = login
        self.in_flight: dict[int, Publish | PubRel] = {}
        """Messages without a final acknowledgement, by packet identifier."""
        self._most_in_flight = window
        self._window = window
        self._trace = trace or (lambda _direction, _packet: None)
        self._connection: Connection | None = None
        self._events: deque[Packet] = deque()
        self._failure: CommandError | None = None
        self._received: set[int] = set()
        self._limits: dict[str, object] = {}
        self._fruitless = 0
        self._ids = itertools.cycle(range(1, PACKET_IDS + 1))
        self._keep_alive_s = 0
        self._sent_at = 0.0
        self._asked_at: float | None = None
        self._disconnect_properties: MqttProperties = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            with contextlib.suppress(CommandError):
                self.close()  # or the broker publishes the will
        self.abort()

    @property
    def has_room(self) -> bool:
        """Whether the window has room for one more QoS 1 or 2 message."""
        return len(self.in_flight) < self._window

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not accepted yet."""
        return self._connected().unsent_bytes

    def fileno(self) -> int:
        """The descriptor of the connection."""
        return self._connected().fileno()

    def connect(self) -> ConnAck:
        """Connects, and sends in-flight messages again.

        Raises:
            CommandError: the broker cannot be reached, or refuses.
        """
        self.abort()
        try:
            sock = self.endpoint.open(PATIENCE_S)
        except (OSError, ValueError) as error:  # ValueError: the host is no name
            text = f"cannot reach {self.endpoint}: {error}; {self.endpoint.advice(error)}"
            raise ConnectionLostError(text) from error
        self._connection = Connection(sock, version=self.login.version)
        self._events.clear()
        self._failure = None
        self._asked_at = None
        self._limits = {}
        self._keep_alive_s = self.login.keep_alive_s
        try:
            self._send(self.login)
            found = self._answer(ConnAck)
        except ConnectionLostError as error:
            text = f"{error}, without a CONNACK; {self.endpoint.doubt}"
            raise ConnectionLostError(text) from error
        if found.reason >= FIRST_ERROR:
            text = self._refusal("refused the connection", found)
            advice = ADVICE.get(found.reason)
            raise CommandError(f"{text}; {advice}" if advice else text, status=REFUSED)
        self._take_limits(found)
        self._send_again(is_resumed=found.session_present)
        return found

    def publish(self, message: Publish) -> int | None:
        """Sends a message; returns its packet identifier. QoS 1 and 2 need room in the window."""
        if message.qos:
            message = message.replaced(packet_id=self._free_id())
            self.in_flight[message.packet_id or 0] = message
        self._send(message)
        return message.packet_id

    def subscribe(
        self, filters: Iterable[Subscription], *, properties: MqttProperties = ()
    ) -> SubAck:
        """Subscribes, and waits for the answer; a refused filter is in its reasons."""
        self.send_subscribe(filters, properties=properties)
        return self._answer(SubAck)

    def send_subscribe(
        self, filters: Iterable[Subscription], *, properties: MqttProperties = ()
    ) -> int:
        """Sends a SUBSCRIBE, whose answer is for `take`; returns its packet identifier."""
        packet_id = self._free_id()
        self._send(Subscribe(packet_id=packet_id, filters=tuple(filters), properties=properties))
        return packet_id

    def unsubscribe(self, filters: Iterable[str], *, properties: MqttProperties = ()) -> UnsubAck:
        """Ends subscriptions, and waits for the answer."""
        packet_id = self._free_id()
        self._send(Unsubscribe(packet_id=packet_id, filters=tuple(filters), properties=properties))
        return self._answer(UnsubAck)

    def poll(self, timeout_s: float | None, *, other: int | None = None) -> bool:
        """Waits for packets or for the descriptor ``other``; `take` returns the packets.

        Returns:
            Whether ``other`` can be read.

        Raises:
            CommandError: the connection is lost, and all packets were taken.
        """
        if self._failure is None:
            try:
                return self._poll(0 if self._events else timeout_s, other)
            except CommandError as error:
                self._failure = error
        if not self._events:
            raise self._failure
        return False

    def _poll(self, timeout_s: float | None, other: int | None) -> bool:
        limits = [limit for limit in (timeout_s, self._until_ping()) if limit is not None]
        connection = self._connected()
        try:
            is_other = connection.wait(min(limits, default=None), other=other)
            for packet in connection.packets():
                self._trace("received", packet)
                self._handle(packet)
        except (OSError, PacketError) as error:
            raise ConnectionLostError(f"{self.endpoint}: {error}") from error
        if connection.has_ended:
            raise ConnectionLostError(f"{self.endpoint}: the broker closed the connection")
        self._keep_alive()
        return is_other

    def take(self) -> Packet | None:
        """The next packet for the caller: a message, or a final acknowledgement."""
        return self._events.popleft() if self._events else None

    def acknowledge(self, message: Publish) -> None:
        """Acknowledges a message; without this, the broker sends it again.

        If the connection is lost, `poll` reports it.
        """
        if message.packet_id is None:
            return
        if message.qos > 1:
            self._received.add(message.packet_id)
        kind = PubAck if message.qos == 1 else PubRec
        try:
            self._send(kind(packet_id=message.packet_id))
        except ConnectionLostError as error:
            self._failure = self._failure or error

    def close(self, *, reason: int = 0, properties: MqttProperties = ()) -> None:
        """Sends DISCONNECT and closes."""
        if self._connection is not None and not self._connection.has_ended:
            self._send(Disconnect(reason=reason, properties=properties))
            self._connection.close()
        self.abort()

    def abort(self) -> None:
        """Closes at once, without DISCONNECT."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            raise ConnectionLostError(f"{self.endpoint}: not connected")
        return self._connection

    def _send(self, packet: Packet) -> None:
        raw = encode_packet(packet, version=self.login.version)
        self._check(packet, len(raw))
        self._trace("sent", packet)
        try:
            self._connected().send(raw)
        except OSError as error:
            raise ConnectionLostError(f"{self.endpoint}: {error}") from error
        self._sent_at = time.monotonic()

    def _check(self, packet: Packet, size: int) -> None:
        """Checks the request against the limits in CONNACK."""
        most_bytes = self._limit("maximum_packet_size", size)
        if size > most_bytes:
            what = f"a packet of {size} bytes: the limit is {most_bytes}"
        elif not isinstance(packet, Publish):
            return
        elif packet.qos > self._limit("maximum_qos", 2):
            what = f"messages of QoS {packet.qos}"
        elif packet.retain and not self._limit("retain_available", 1):
            what = "retained messages"
        else:
            return
        raise CommandError(f"{self.endpoint} does not take {what}", status=REFUSED)

    def _limit(self, name: str, default: int) -> int:
        """A property of CONNACK."""
        found = self._limits.get(name, default)
        return found if isinstance(found, int) else default

    def _answer(self, kind: type[Kind]) -> Kind:
        """Waits for an answer of this kind; stores other packets for `take`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for packet in self._events:
                if isinstance(packet, kind):
                    self._events.remove(packet)
                    return packet
            if time.monotonic() > deadline:
                text = f"{self.endpoint}: no {kind.__name__.upper()} within {PATIENCE_S:g} s"
                raise ConnectionLostError(text)
            self._wait_more(deadline)

    def _wait_more(self, deadline: float) -> None:
        """Polls, although other packets wait to be taken."""
        waiting, self._events = self._events, deque()
        try:
            self.poll(deadline - time.monotonic())
        finally:
            waiting.extend(self._events)
            self._events = waiting

    def _handle(self, packet: Packet) -> None:
        """Answers a packet, or stores it for `take`."""
        match packet:
            case Publish():
                self._receive(packet)
            case PubRel():
                self._received.discard(packet.packet_id)
                self._send(PubComp(packet_id=packet.packet_id))
            case PubRec() if packet.reason < FIRST_ERROR:
                self._fruitless = 0
                release = PubRel(packet_id=packet.packet_id)
                self.in_flight[packet.packet_id] = release
                self._send(release)
            case PubAck() | PubRec() | PubComp():
                self._fruitless = 0
                if self.in_flight.pop(packet.packet_id, None) is not None:
                    self._events.append(packet)
            case Disconnect() | Auth():
                self._end(packet)
            case ConnAck() | SubAck() | UnsubAck():
                self._events.append(packet)
            case _:  # PINGRESP
                self._asked_at = None

    def _receive(self, message: Publish) -> None:
        if message.qos > 1 and message.packet_id in self._received:
            self.acknowledge(message)
        else:
            self._events.append(message)

    def _end(self, packet: Disconnect | Auth) -> None:
        if isinstance(packet, Auth):
            text = f"{self.endpoint} asks for enhanced authentication, which is not supported"
            raise CommandError(text, status=REFUSED)
        text = self._refusal("ended the connection", packet)
        if packet.reason == TAKEN_OVER:
            # to connect again would disconnect the other one, and so on
            hint = f"; another client has the identifier {self.login.client_id!r}"
            raise CommandError(text + hint, status=REFUSED)
        if packet.reason not in PASSING:
            raise CommandError(text, status=REFUSED)
        raise ConnectionLostError(text)

    def _refusal(self, what: str, packet: ConnAck | Disconnect) -> str:
        text = f"{self.endpoint} {what}: {reason_text(packet.reason)}"
        told = dict(packet.properties).get("reason_string")
        return f"{text}: {told}" if isinstance(told, str) else text

    def _take_limits(self, accepted: ConnAck) -> None:
        self._limits = dict(accepted.properties)
        self._keep_alive_s = self._limit("server_keep_alive", self.login.keep_alive_s)
        self._window = min(self._most_in_flight, self._limit("receive_maximum", PACKET_IDS))
        if not accepted.session_present:
            self._received.clear()

    def _send_again(self, *, is_resumed: bool) -> None:
        """Sends in-flight messages again after a lost connection [MQTT-4.4.0-1]."""
        if self.in_flight:
            self._fruitless += 1
        if self._fruitless >= FRUITLESS:
            text = f"{self.endpoint} ended {FRUITLESS} connections without an acknowledgement"
            raise CommandError(f"{text}; its log may say why", status=UNREACHABLE)
        for packet_id, packet in list(self.in_flight.items()):
            if isinstance(packet, Publish):
                self._send(packet.replaced(dup=is_resumed))
            elif is_resumed:
                self._send(packet)
            else:
                # Its message was received; a new session knows nothing of it.
                del self.in_flight[packet_id]
                self._events.append(PubComp(packet_id=packet_id))

    def _free_id(self) -> int:
        return next(number for number in self._ids if number not in self.in_flight)

    def _until_ping(self) -> float | None:
        if not self._keep_alive_s:
            return None
        return max(self._sent_at + self._keep_alive_s - time.monotonic(), 0)

    def _keep_alive(self) -> None:
        now = time.monotonic()
        if not self._keep_alive_s or now < self._sent_at + self._keep_alive_s:
            return
        if self._asked_at is not None:
            text = f"{self.endpoint}: no PINGRESP within the keep-alive of {self._keep_alive_s:g} s"
            raise ConnectionLostError(text)
        self._send(PingReq())
        self._asked_at = now


class Pauses:
    """Pauses before attempts to connect again: short after a long connection, then longer."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._connected_at = time.monotonic()

    def connected(self) -> None:
        """Records the start of a connection."""
        self._connected_at = time.monotonic()

    def next_s(self) -> float:
        """Seconds to wait before the next attempt."""
        if time.monotonic() - self._connected_at > self._pause_s:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s
