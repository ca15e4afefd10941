"""Clients over real sockets, and the reference told of everything that they do.

Each step does one thing and then settles: everybody is asked for a PINGRESP, and whatever came in
front of it is compared with what the reference expects. So nothing sleeps, and a step that passes
leaves nothing on its way.
"""

from __future__ import annotations

import copy
import itertools
import socket
from collections.abc import Callable, Iterable
from typing import Final, cast

from tests import wire as mqtt
from tests.model.reference import (
    Delivery,
    Expected,
    Flight,
    Message,
    Reference,
    Subscription,
    matches,
)
from tests.wire import Packet, Wire

# The broker's limit of unacknowledged messages to one client, low so that it is met: `brokers`.
INFLIGHT_MAX: Final = 4
# A deadline, not a delay.
PATIENCE_S: Final = 10.0
# How often everybody answers before what is missing counts as lost: one shard needs one round.
ROUNDS: Final = 20

NAMES: Final = ("ann", "bob", "cid", "dan")
VERSIONS: Final = {"ann": 5, "bob": 5, "cid": 4, "dan": 3}
TOPICS: Final = ("a", "a/b", "a/b/c", "b", "/b", "$x/b")
FILTERS: Final = ("a", "a/b", "a/+", "a/#", "+/b", "#", "+", "/+", "$x/#")
GROUPS: Final = ("$share/g/a/b", "$share/g/a/#", "$share/h/a/b")
# Most messages of QoS 2 that a client leaves unreleased.
MOST_HELD: Final = 8

Tamper = Callable[[str, Packet], Iterable[Packet]]
_runs = itertools.count(1)


class Difference(AssertionError):  # noqa: N818 -- it is what a comparison finds
    """The broker did something else than the reference."""


class Peer:
    """One client: its socket, and what it holds back."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.wire = wire
        self.version = wire.version
        self.last: tuple[Message, int] | None = None
        self._ids = itertools.count(1)

    def packet_id(self, taken: set[int]) -> int:
        """One that is not in use."""
        return next(number for number in self._ids if number not in taken)


class World:
    """The broker, its clients, and the reference: each public method but `end` is a step."""

    def __init__(self, port: int, *, tamper: Tamper | None = None) -> None:
        self.port = port
        self.tamper = tamper or (lambda _name, packet: (packet,))
        self.reference = Reference()
        self.peers: dict[str, Peer] = {}
        self.deliveries = 0
        self._run = next(_runs)
        self._payloads = itertools.count(1)

    # --- steps

    def connect(
        self, who: str, *, clean: bool, lasting: bool, window: int, will: str | None
    ) -> None:
        """`who` connects, over its older connection if there is one."""
        version = VERSIONS[who]
        lasting = lasting if version == 5 else not clean
        window = min(window, INFLIGHT_MAX) if version == 5 else INFLIGHT_MAX
        message = will and Message(topic=will, payload=self._payload(), qos=1)
        older = self.peers.pop(who, None)
        wire = Wire(self.port, version=version)
        props = {"receive_maximum": window, "session_expiry_interval": 86_400 if lasting else 0}
        given = mqtt.Will(topic=message.topic, payload=message.payload, qos=1) if message else None
        wire.send(
            mqtt.connect(
                self._client_id(who),
                version=version,
                clean=clean,
                will=given,
                props=props if version == 5 else None,
            )
        )
        if older is not None:
            self._is_taken_over(older)
        present = self.reference.connect(
            who, version=version, clean=clean, lasting=lasting, window=window, will=message or None
        )
        answer = wire.expect(mqtt.CONNACK)
        self.peers[who] = Peer(who, wire)
        # MQTT 3.1 has no such flag.
        if (answer.reason, version > 3 and answer.session_present) != (0, version > 3 and present):
            raise Difference(f"{who} got {answer}, with a session present: {present}")
        self._settle(who)

    def disconnect(self, who: str, *, how: str) -> None:
        """`who` says goodbye; with 5.0 it may ask for its will, or end its session."""
        peer, how = self.peers.pop(who), how if VERSIONS[who] == 5 else "goodbye"
        if how == "ends" and self.reference.sessions[who].lasting:
            peer.wire.disconnect(0, props={"session_expiry_interval": 0})
        else:
            peer.wire.disconnect(0x04 if how == "will" else None)
        self.reference.disconnect(who, with_will=how == "will", ends_session=how == "ends")
        self._settle()

    def drop(self, who: str, *, how: str) -> None:
        """The connection of `who` ends without a word."""
        wire = self.peers.pop(who).wire
        if how == "reset":
            # It lies in front of the broker, which has seen it when all were answered twice.
            wire.reset()
        else:
            # Half closed first, so that the broker's own end tells that it has noticed.
            wire.socket.shutdown(socket.SHUT_WR)
            wire.expect_close()
            wire.close()
        self.reference.close(who)
        self._settle_others()
        self._settle()

    def subscribe(self, who: str, *, filters: list[str], **options: int) -> None:
        """`who` subscribes to filters in one packet."""
        peer = self.peers[who]
        is_5 = peer.version == 5
        filters = [one for one in filters if is_5 or not one.startswith("$share/")]
        if not filters or not self._has_room_for_retained(who, filters):
            return
        asked = Subscription(
            qos=options["qos"],
            no_local=is_5
            and bool(options["no_local"])
            and not any("$share" in one for one in filters),
            retain_as_published=is_5 and bool(options["retain_as_published"]),
            retain_handling=options["retain_handling"] if is_5 else 0,
            identifier=(options["identifier"] or None) if is_5 else None,
        )
        byte = (
            asked.qos
            | asked.no_local << 2
            | asked.retain_as_published << 3
            | asked.retain_handling << 4
        )
        number = peer.packet_id(self.reference.sessions[who].incoming)
        props = {"subscription_identifier": asked.identifier} if asked.identifier else None
        peer.wire.send(
            mqtt.subscribe(
                *[(one, byte) for one in filters],
                packet_id=number,
                version=peer.version,
                props=props,
            )
        )
        for one in filters:
            self.reference.subscribe(who, one, asked)
        answer = self._answer(peer, mqtt.SUBACK, number)
        if answer.reasons != (asked.qos,) * len(filters):
            raise Difference(f"{who} got {answer} for QoS {asked.qos}")
        self._settle(who)

    def unsubscribe(self, who: str, *, topic_filter: str) -> None:
        """`who` unsubscribes."""
        peer = self.peers[who]
        number = peer.packet_id(self.reference.sessions[who].incoming)
        peer.wire.send(mqtt.unsubscribe(topic_filter, packet_id=number, version=peer.version))
        existed = self.reference.unsubscribe(who, topic_filter)
        answer = self._answer(peer, mqtt.UNSUBACK, number)
        if peer.version == 5 and answer.reasons != (0x00 if existed else 0x11,):
            raise Difference(f"{who} got {answer}; there was such a subscription: {existed}")
        self._settle(who)

    def publish(self, who: str, *, topic: str, qos: int, retain: bool, empty: bool) -> None:
        """`who` publishes; at QoS 2 it does not release yet."""
        payload = b"" if retain and empty else self._payload()
        message = Message(topic=topic, payload=payload, qos=qos, retain=retain)
        held = self.reference.sessions[who].incoming
        if (qos == 2 and len(held) >= MOST_HELD) or self._is_open(message):
            return
        number = self.peers[who].packet_id(held)
        self._send(who, message, number, dup=False)

    def publish_again(self, who: str) -> None:
        """`who` repeats its last message of QoS 1, or of QoS 2 if it is not released, marked so."""
        last = self.peers[who].last
        if last is None or self._is_open(last[0]):
            return
        if last[0].qos == 2 and last[1] not in self.reference.sessions[who].incoming:
            return
        self._send(who, *last, dup=True)

    def release(self, who: str, *, unknown: bool) -> None:
        """`who` releases a message of QoS 2, or one that nobody knows."""
        peer, held = self.peers[who], self.reference.sessions[who].incoming
        number = 60_000 if unknown or not held else min(held)
        peer.wire.send(mqtt.ack(mqtt.PUBREL, number))
        known = self.reference.release(who, number)
        answer = self._answer(peer, mqtt.PUBCOMP, number)
        if peer.version == 5 and answer.reason != (0x00 if known else 0x92):
            raise Difference(f"{who} got {answer}; the identifier was in use: {known}")
        self._settle(who)

    def acknowledge(self, who: str, *, count: int, refuse: bool) -> None:
        """`who` takes the next step for its oldest deliveries."""
        peer, flights = self.peers[who], self.reference.sessions[who].flights
        for flight in [one for one in flights if not one.waits][:count]:
            refused = refuse and peer.version == 5 and not flight.received
            reason = 0x80 if refused else None
            peer.wire.send(mqtt.ack(_next_step(flight), flight.packet_id, reason))
            self.reference.acknowledge(who, flight, refused=refused)
        self._settle(who)

    def catch_up(self, who: str) -> None:
        """`who` acknowledges until nothing is left."""
        while any(not one.waits for one in self.reference.sessions[who].flights):
            self.acknowledge(who, count=INFLIGHT_MAX, refuse=False)

    # --- what a step is made of

    def _is_open(self, message: Message) -> bool:
        """Whether the standard leaves open what nobody could see.

        That is in which member's queue a message waits, and which of its groups a client is served
        for first.
        """
        groups = self.reference.groups(message).values()
        members = [name for group in groups for name in group]
        trial = copy.deepcopy(self.reference)
        trial.publish("", message)
        waits = any(not choice.now for choice in trial.choices[len(self.reference.choices) :])
        return waits or len(set(members)) < len(members)

    def _has_room_for_retained(self, who: str, filters: list[str]) -> bool:
        """Whether all that is retained can come at once.

        Otherwise it waits, its order is not guaranteed, and what is retained meanwhile comes both
        live and as retained: the broker documents that a message may come twice then.
        """
        topics = self.reference.retained
        found = [topic for topic in topics for each in filters if matches(each, topic)]
        free = self.reference.connections[who].window - self.reference.in_flight(who)
        return not self.reference.sessions[who].queue and len(found) < free

    def _client_id(self, who: str) -> str:
        return f"{who}{self._run}"

    def _payload(self) -> bytes:
        return str(next(self._payloads)).encode()

    def _send(self, who: str, message: Message, number: int, *, dup: bool) -> None:
        peer = self.peers[who]
        packet_id = number if message.qos else None
        peer.wire.send(
            mqtt.publish(
                message.topic,
                message.payload,
                qos=message.qos,
                packet_id=packet_id,
                retain=message.retain,
                dup=dup,
                version=peer.version,
            )
        )
        self.reference.receive(who, message, packet_id)
        if message.qos:
            peer.last = (message, number)
            self._answer(peer, mqtt.PUBACK if message.qos == 1 else mqtt.PUBREC, number)
        self._settle(who)

    def _is_taken_over(self, older: Peer) -> None:
        packets = older.wire.receive_until_close()
        said = [(one.kind, one.reason) for one in packets]
        if said != ([(mqtt.DISCONNECT, 0x8E)] if older.version == 5 else []):
            raise Difference(f"{older.name} was taken over, and got {packets}")
        older.wire.close()

    def _answer(self, peer: Peer, kind: int, packet_id: int) -> Packet:
        """The answer to what `peer` sent; deliveries may come in front of it."""
        while True:
            for packet in self._read(peer):
                if packet.kind not in (mqtt.PUBLISH, mqtt.PUBREL):
                    if (packet.kind, packet.packet_id) != (kind, packet_id):
                        raise Difference(f"{peer.name} got {packet}, not {mqtt.NAMES[kind]}")
                    if packet.reasons and packet.reasons[-1] >= 0x80 and kind != mqtt.PUBCOMP:
                        raise Difference(f"{peer.name} was refused: {packet}")
                    return packet
                self._compare(peer, packet)

    def _read(self, peer: Peer) -> Iterable[Packet]:
        try:
            packet = peer.wire.receive(within_s=PATIENCE_S)
        except (mqtt.ClosedByPeerError, TimeoutError) as error:
            raise Difference(f"{peer.name} waits for an answer: {error}") from error
        return self.tamper(peer.name, packet)

    def _compare(self, peer: Peer, packet: Packet) -> None:
        if packet.kind == mqtt.PUBREL:
            wrong = self.reference.released(peer.name, packet.packet_id or 0)
        else:
            self.deliveries += 1
            identifiers = cast("list[int]", packet.property("subscription_identifier") or [])
            delivery = Delivery(
                packet.topic, packet.payload, packet.qos, packet.retain, tuple(sorted(identifiers))
            )
            wrong = self.reference.came(peer.name, delivery, packet.packet_id, dup=packet.dup)
        if wrong:
            expected = [one.delivery or one.packet_id for one in self._expected(peer.name)]
            raise Difference(f"{peer.name} got {packet}: {wrong}; expected is {expected}")

    def _expected(self, name: str) -> list[Expected]:
        return self.reference.connections[name].expected

    def _ping(self, peers: list[Peer]) -> None:
        for peer in peers:
            peer.wire.send(mqtt.pingreq())
        for peer in peers:
            answered = False
            while not answered:
                for packet in self._read(peer):
                    if packet.kind == mqtt.PINGRESP:
                        answered = True
                    elif packet.kind in (mqtt.PUBLISH, mqtt.PUBREL):
                        self._compare(peer, packet)
                    else:
                        raise Difference(f"{peer.name} got {packet}")

    def _settle_others(self) -> None:
        self._ping(list(self.peers.values()))

    def _settle(self, actor: str | None = None) -> None:
        """Reads until all that has to come is there, and everybody has answered behind it."""
        if actor is not None:
            # First whoever did something, so that the broker has done it.
            self._ping([self.peers[actor]])
        for _ in range(ROUNDS):
            self._settle_others()
            if not self.reference.missing():
                return
        raise Difference("; ".join(self.reference.missing()))

    def end(self) -> None:
        """Leaves the broker as it was: no session, nothing retained."""
        for peer in self.peers.values():
            peer.wire.close()
        for who in self.reference.sessions:
            with Wire(self.port, version=4) as wire:
                wire.connect(self._client_id(who))
                wire.disconnect()
        if self.reference.retained:
            with Wire(self.port, version=4) as wire:
                wire.connect(f"cleaner{self._run}")
                for topic in self.reference.retained:
                    wire.publish(topic, b"", retain=True)
                wire.disconnect()


def _next_step(flight: Flight) -> int:
    if flight.delivery.qos == 1:
        return mqtt.PUBACK
    return mqtt.PUBCOMP if flight.received else mqtt.PUBREC
