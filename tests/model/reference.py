"""What MQTT says a server does: sessions, matching, delivery, retained messages, wills.

Written to be read beside the standard, not to be fast. It is told what clients do, answers what
they must be told at once, and keeps for each client what has to come: `expected`. If the standard
leaves a choice (which member of a shared subscription gets a message), it keeps the choice open in
`choices` until it is made.

What the standard leaves to the server, this reference settles as the broker documents it: one copy
for overlapping subscriptions, with the highest QoS and all identifiers, equal ones once [3.3.4];
nothing at QoS 0 is kept for who is away [4.1]; what comes at QoS 2 is passed on when it comes first
[4.3.3].
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An application message as it was published."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Options of one subscription; before 5.0 there is only the QoS."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One PUBLISH to a client, without its packet identifier and DUP flag."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Choice:
    """A message for one member of a shared subscription."""

    group: str
    message: Message
    members: dict[str, Delivery]
    # These are there and can take it, so it has to be given to somebody now.
    now: frozenset[str]


@dataclass(slots=True)
class Flight:
    """A delivery at QoS 1 or 2 whose exchange is not over."""

    packet_id: int
    delivery: Delivery
    choice: Choice | None = None
    # PUBREC came: what is left is PUBREL and PUBCOMP.
    received: bool = False
    # Not yet sent again on this connection.
    waits: bool = False


@dataclass(slots=True)
class Expected:
    """What the client has to get next: a PUBLISH, or a PUBREL when `packet_id` alone is given."""

    delivery: Delivery | None = None
    packet_id: int | None = None
    # In its place among the others of QoS 1 and 2, or whenever it comes.
    ordered: bool = False


@dataclass(slots=True)
class Session:
    """What the server keeps of a client: section 4.1."""

    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    queue: list[Delivery] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    # Packet identifiers of QoS 2 messages that came and are not released.
    incoming: set[int] = field(default_factory=set)
    lasting: bool = False


@dataclass(slots=True)
class Connection:
    """What ends with the network connection."""

    version: int
    window: int
    will: Message | None = None
    expected: list[Expected] = field(default_factory=list)


def matches(topic_filter: str, topic: str) -> bool:
    """Section 4.7: levels, wildcards, and topics that begin with `$`."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for place, level in enumerate(wanted):
        # It stands for its parent level too: "a/#" matches "a".
        if level == "#":
            return True
        if place == len(levels):
            return False
        if level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


class Reference:
    """A server that follows the standard, without sockets, time or concurrency."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.connections: dict[str, Connection] = {}
        self.retained: dict[str, Message] = {}
        self.choices: list[Choice] = []

    # --- connections: sections 3.1, 3.14, 4.1

    def connect(
        self,
        name: str,
        *,
        version: int,
        clean: bool,
        lasting: bool,
        window: int,
        will: Message | None,
    ) -> bool:
        """A client comes, and takes over from itself; answers whether its session was there."""
        if name in self.connections:
            self.close(name)
        if clean:
            self._end_session(name)
        present = name in self.sessions
        session = self.sessions.setdefault(name, Session())
        session.lasting = lasting
        self.connections[name] = Connection(version=version, window=window, will=will)
        for flight in session.flights:
            flight.waits = True
        self._fill_window(name)
        return present

    def disconnect(self, name: str, *, with_will: bool = False, ends_session: bool = False) -> None:
        """A client says goodbye: no will [3.1.2.5], unless it asks for it (DISCONNECT 0x04)."""
        connection = self.connections[name]
        if not with_will:
            connection.will = None
        if ends_session:
            self.sessions[name].lasting = False
        self.close(name)

    def close(self, name: str) -> None:
        """The network connection ends; what was on its way may or may not have come."""
        connection = self.connections.pop(name)
        assert not connection.expected, f"{name} was not settled"
        if not self.sessions[name].lasting:
            self._end_session(name)
        if connection.will is not None:
            self.publish(name, connection.will)

    def _end_session(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        for flight in session.flights if session else ():
            if flight.choice is not None and not flight.received:
                # Section 4.8.2: the server may give it to another member.
                self._leave_open(flight.choice, without=name)
        for choice in self.choices:
            choice.members.pop(name, None)

    # --- subscriptions: sections 3.8, 3.10

    def subscribe(self, name: str, topic_filter: str, subscription: Subscription) -> None:
        """One filter of a SUBSCRIBE: replaces its namesake, and sends what is retained."""
        subscriptions = self.sessions[name].subscriptions
        is_new = topic_filter not in subscriptions
        subscriptions[topic_filter] = subscription
        wants = {0: True, 1: is_new, 2: False}[subscription.retain_handling]
        if not wants or topic_filter.startswith("$share/"):
            return
        for message in self.retained.values():
            if matches(topic_filter, message.topic):
                delivery = deliver(message, [subscription])
                self._hand_over(name, replace(delivery, retain=True))

    def unsubscribe(self, name: str, topic_filter: str) -> bool:
        """Answers whether there was such a subscription."""
        return self.sessions[name].subscriptions.pop(topic_filter, None) is not None

    # --- messages from a client: sections 3.3 to 3.7, 4.3

    def receive(self, name: str, message: Message, packet_id: int | None = None) -> None:
        """A PUBLISH comes; at QoS 2 one whose identifier is still in use was there before."""
        incoming = self.sessions[name].incoming
        if message.qos == 2:
            assert packet_id is not None
            if packet_id in incoming:
                return
            incoming.add(packet_id)
        self.publish(name, message)

    def release(self, name: str, packet_id: int) -> bool:
        """PUBREL; answers whether the identifier was in use."""
        incoming = self.sessions[name].incoming
        known = packet_id in incoming
        incoming.discard(packet_id)
        return known

    def publish(self, publisher: str, message: Message) -> None:
        """Keeps what is to be retained [3.3.1.3], and passes it on to everybody who asked."""
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
        for name, session in self.sessions.items():
            plain = [
                subscription
                for topic_filter, subscription in session.subscriptions.items()
                if not topic_filter.startswith("$share/")
                and matches(topic_filter, message.topic)
                and not (subscription.no_local and name == publisher)
            ]
            if plain:
                self._hand_over(name, deliver(message, plain), ordered=True)
        for group, members in self.groups(message).items():
            self._offer(group, message, members)

    def groups(self, message: Message) -> dict[str, dict[str, Delivery]]:
        """The members of each shared subscription that matches; they have no No Local [3.8.3.1]."""
        found: dict[str, dict[str, Delivery]] = {}
        for name, session in self.sessions.items():
            for group, subscription in session.subscriptions.items():
                if group.startswith("$share/") and matches(group.split("/", 2)[2], message.topic):
                    found.setdefault(group, {})[name] = deliver(message, [subscription])
        return found

    def _offer(self, group: str, message: Message, members: dict[str, Delivery]) -> None:
        """Section 4.8.2: one member of each group gets it; who is away may be passed over."""
        if len(members) == 1:
            [(name, delivery)] = members.items()
            self._hand_over(name, delivery, ordered=True)
        else:
            ready = self.ready(members)
            if ready or any(delivery.qos for delivery in members.values()):
                self.choices.append(Choice(group, message, dict(members), ready))

    def ready(self, members: dict[str, Delivery]) -> frozenset[str]:
        """Whoever is there, if all can take it: a server may pick one that cannot, and wait."""
        there = [name for name in members if name in self.connections]
        has_room = all(members[name].qos == 0 or self._has_room(name) for name in there)
        return frozenset(there if has_room else [])

    def _leave_open(self, choice: Choice, *, without: str) -> None:
        members = {
            name: deliver(choice.message, [session.subscriptions[choice.group]])
            for name, session in self.sessions.items()
            if name != without and choice.group in session.subscriptions
        }
        self.choices.append(Choice(choice.group, choice.message, members, frozenset()))

    # --- messages to a client: sections 3.3.4, 4.4, 4.9

    def _hand_over(self, name: str, delivery: Delivery, *, ordered: bool = False) -> None:
        if delivery.qos == 0:
            if name in self.connections:
                self.connections[name].expected.append(Expected(delivery))
            return
        session = self.sessions[name]
        session.queue.append(delivery)
        self._fill_window(name, ordered=ordered)

    def in_flight(self, name: str) -> int:
        """Messages of QoS 1 and 2 that were sent on this connection and are not over."""
        coming = self.connections[name].expected
        fresh = [
            one for one in coming if one.packet_id is None and one.delivery and one.delivery.qos
        ]
        begun = [flight for flight in self.sessions[name].flights if not flight.waits]
        return len(begun) + len(fresh)

    def _has_room(self, name: str) -> bool:
        """Whether there is, whatever the server makes of the choices that it has already."""
        offered = sum(name in choice.now for choice in self.choices)
        taken = self.in_flight(name) + offered
        return taken < self.connections[name].window and not self.sessions[name].queue

    def _fill_window(self, name: str, *, ordered: bool = True) -> None:
        """Section 4.4: what is not acknowledged comes again, in its order; then the queue."""
        if name not in self.connections:
            return
        session, connection = self.sessions[name], self.connections[name]
        for flight in session.flights:
            if flight.waits and (flight.received or self.in_flight(name) < connection.window):
                flight.waits = False
                again = None if flight.received else flight.delivery
                connection.expected.append(Expected(again, flight.packet_id, ordered=True))
        while session.queue and self.in_flight(name) < connection.window:
            connection.expected.append(Expected(session.queue.pop(0), ordered=ordered))

    def acknowledge(self, name: str, flight: Flight, *, refused: bool = False) -> None:
        """PUBACK, PUBREC or PUBCOMP: the next half of the exchange; an error ends it [4.3.3]."""
        if flight.delivery.qos == 2 and not flight.received and not refused:
            flight.received = True
            self.connections[name].expected.append(Expected(packet_id=flight.packet_id))
            return
        self.sessions[name].flights.remove(flight)
        self._fill_window(name)

    # --- what really came

    def came(
        self, name: str, delivery: Delivery, packet_id: int | None, *, dup: bool
    ) -> str | None:
        """A PUBLISH came to a client; answers what is wrong about it."""
        ahead = False
        for one in self.connections[name].expected:
            if one.delivery == delivery and one.packet_id in (None, packet_id):
                if one.ordered and ahead:
                    return "out of order"
                self.connections[name].expected.remove(one)
                if one.packet_id is not None:
                    return None if dup else "a repetition without its mark"
                return self._begin(name, delivery, packet_id, dup=dup)
            ahead = ahead or (one.ordered and delivery.qos > 0)
        for choice in self.choices:
            if choice.members.get(name) == delivery:
                self.choices.remove(choice)
                return self._begin(name, delivery, packet_id, dup=dup, choice=choice)
        return "not expected"

    def _begin(
        self,
        name: str,
        delivery: Delivery,
        packet_id: int | None,
        *,
        dup: bool,
        choice: Choice | None = None,
    ) -> str | None:
        if dup:
            return "marked as a repetition"
        if packet_id is None:
            return None
        flights = self.sessions[name].flights
        if packet_id in [flight.packet_id for flight in flights]:
            return "under an identifier that is in use"
        if sum(not flight.waits for flight in flights) == self.connections[name].window:
            return "beyond the window"
        flights.append(Flight(packet_id, delivery, choice))
        return None

    def released(self, name: str, packet_id: int) -> str | None:
        """A PUBREL came to a client; answers what is wrong about it."""
        for one in self.connections[name].expected:
            if one.delivery is None and one.packet_id == packet_id:
                self.connections[name].expected.remove(one)
                return None
        return "not expected"

    def missing(self) -> list[str]:
        """What should have come by now; choices that need not be made stay open."""
        found = [
            f"{name} did not get {one.delivery or f'PUBREL {one.packet_id}'}"
            for name, connection in self.connections.items()
            for one in connection.expected
        ]
        found += [
            f"none of {sorted(choice.now)} got {choice.message}"
            for choice in self.choices
            if choice.now
        ]
        return found


def deliver(message: Message, subscriptions: list[Subscription]) -> Delivery:
    """What one client gets of a message by these subscriptions [3.3.4, 3.8.4]."""
    return Delivery(
        topic=message.topic,
        payload=message.payload,
        qos=min(message.qos, max(one.qos for one in subscriptions)),
        retain=message.retain and any(one.retain_as_published for one in subscriptions),
        identifiers=tuple(sorted({one.identifier for one in subscriptions if one.identifier})),
    )
