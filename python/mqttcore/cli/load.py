"""The messages of `mqttcore bench pairs|fan|pub`: publishers and subscribers in one thread."""

import contextlib
import select
import struct
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from mqttcore.cli.client import FIRST_ERROR, MqttClient
from mqttcore.cli.failure import REFUSED, CommandError
from mqttcore.cli.histogram import Histogram
from mqttcore.packets import PubAck, PubComp, Publish, PubRec, Subscription, reason_text

STAMPS: Final = struct.Struct(">QQ")
"""The payload begins with the time at which the message was due, and that at which it was sent."""
NS: Final = 1_000_000_000
PROGRESS_NS: Final = NS
LAST_MESSAGES_S: Final = 5.0
"""Seconds to wait for the last messages."""
UNSENT_BYTES: Final = 1 << 20
PAUSE_S: Final = 0.1
"""Longest wait for packets."""
FULL_S: Final = 0.001
"""Wait for a publisher whose window is full, or whose socket takes no more."""
TURN_MESSAGES: Final = 256
"""Number of messages sent between two checks of the sockets."""


class Plan(NamedTuple):
    """The plan of a load."""

    rate: float
    """Messages a second, of all publishers; 0: as fast as ``window`` allows."""
    seconds: float
    qos: int
    size: int
    """Bytes of a payload, at least those of `STAMPS`."""
    window: int
    """Without a rate: messages of a publisher that were sent and not received yet."""
    topic: str
    """Topic of the publishers, without their numbers."""
    fan: int = 1
    """Subscribers of each publisher."""

    @property
    def messages(self) -> int:
        """With a rate: the number of messages."""
        return int(self.rate * self.seconds)


class Group(NamedTuple):
    """A publisher and its subscribers."""

    topic: str
    publisher: MqttClient
    subscribers: tuple[MqttClient, ...]

    @property
    def clients(self) -> tuple[MqttClient, ...]:
        """All of them."""
        return (self.publisher, *self.subscribers)


class Load:
    """Sends the messages of a plan and measures how long they take."""

    def __init__(self, plan: Plan, clients: Callable[[], MqttClient], count: int) -> None:
        self._plan = plan
        self._groups = [
            Group(f"{plan.topic}/{number}", clients(), tuple(clients() for _ in range(plan.fan)))
            for number in range(count)
        ]
        self._waiting = [0] * count
        """Copies of the messages of each publisher that were not received."""
        self._unacknowledged: list[dict[int, int]] = [{} for _ in range(count)]
        """The due times of the messages of each publisher, by packet identifier."""
        self._filler = b"x" * max(plan.size - STAMPS.size, 0)
        self._begun_ns = self._sent_ns = 0
        self.acknowledgement = Histogram()
        """Time from the due time of a QoS 1 or 2 message to its last acknowledgement."""
        self.latency = Histogram() if plan.fan else self.acknowledgement
        """Time from the due time of a message to its arrival; without subscribers, to its last
        acknowledgement."""
        self.service = Histogram()
        """Time from sending to arrival."""
        self.lag = Histogram()
        """Time from the due time to sending."""
        self.sent = self.received = self.refused = 0
        self.cpu_s = self.elapsed_s = self.sending_s = 0.0

    def run(self, progress: Callable[["Load", float], None]) -> None:
        """Connects, sends and waits for the last messages; calls ``progress`` each second.

        Raises:
            CommandError: the broker cannot be reached, refuses, or ends a connection.
        """
        with contextlib.ExitStack() as stack:
            # `select` takes only low descriptors
            poll = stack.enter_context(select.epoll())
            for group in self._groups:
                for client in group.clients:
                    stack.enter_context(client)
            self._run(poll, progress)

    @property
    def lost(self) -> int:
        """Copies that have not arrived."""
        return (self.sent - self.refused) * self._plan.fan - self.received

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages without their last acknowledgement."""
        return sum(map(len, self._unacknowledged))

    def _run(self, poll: select.epoll, progress: Callable[["Load", float], None]) -> None:
        self._connect()
        by_descriptor = {}
        for number, group in enumerate(self._groups):
            for client in group.clients:
                poll.register(client.fileno(), select.EPOLLIN)
                by_descriptor[client.fileno()] = (number, client)
        self._drive(poll, by_descriptor, progress)
        for group in self._groups:
            for client in group.clients:
                client.close()

    def _connect(self) -> None:
        for group in self._groups:
            wanted = Subscription(filter=group.topic, qos=self._plan.qos)
            for subscriber in group.subscribers:
                subscriber.connect()
                reason = subscriber.subscribe([wanted]).reasons[0]
                if reason >= FIRST_ERROR:
                    text = f"the subscription to {group.topic} was refused: {reason_text(reason)}"
                    raise CommandError(text, status=REFUSED)
            group.publisher.connect()

    def _drive(
        self,
        poll: select.epoll,
        clients: dict[int, tuple[int, MqttClient]],
        progress: Callable[["Load", float], None],
    ) -> None:
        cpu, begun = time.process_time(), time.monotonic_ns()
        self._begun_ns = self._sent_ns = told = begun
        last = begun + int((self._plan.seconds + LAST_MESSAGES_S) * NS)
        while (now := time.monotonic_ns()) < last:
            is_sending = self._is_sending(now)
            if not is_sending and not self._is_busy():
                break
            pause_s = self._send_due() if is_sending else PAUSE_S
            # epoll itself counts whole milliseconds
            select.select([poll], [], [], max(pause_s, 0))
            for descriptor, _ in poll.poll(0):
                self._receive(*clients[descriptor])
            self._write()
            if now - told >= PROGRESS_NS:
                told = now
                for number, client in clients.values():
                    self._receive(number, client)  # keep-alive
                progress(self, (now - begun) / NS)
        self.elapsed_s = (time.monotonic_ns() - begun) / NS
        self.sending_s = max((self._sent_ns - begun) / NS, self._plan.seconds)
        self.cpu_s = time.process_time() - cpu

    def _is_sending(self, now: int) -> bool:
        """Whether messages remain to be sent."""
        if self._plan.rate:
            return self.sent < self._plan.messages
        return now < self._begun_ns + self._plan.seconds * NS

    def _is_busy(self) -> bool:
        """Whether messages have not arrived yet."""
        is_unfinished = any(
            group.publisher.in_flight or group.publisher.unsent_bytes for group in self._groups
        )
        return is_unfinished or self.lost > 0

    def _send_due(self) -> float:
        """Sends the messages that are due; returns the seconds until the next one."""
        if not self._plan.rate:
            return self._send_windows()
        for _ in range(min(TURN_MESSAGES, self._plan.messages - self.sent)):
            due = self._begun_ns + int(self.sent / self._plan.rate * NS)
            if due > time.monotonic_ns():
                return (due - time.monotonic_ns()) / NS
            number = self.sent % len(self._groups)
            if not self._has_room(self._groups[number].publisher):
                return FULL_S
            self._send(number, due)
        return 0.0

    def _send_windows(self) -> float:
        for number, group in enumerate(self._groups):
            for _ in range(TURN_MESSAGES):
                is_full = self._waiting[number] >= self._plan.window * max(self._plan.fan, 1)
                if is_full or not self._has_room(group.publisher):
                    break
                self._send(number, time.monotonic_ns())
        # nothing arrives that says when there is room
        return PAUSE_S if self._plan.fan or self._plan.qos else FULL_S

    def _has_room(self, publisher: MqttClient) -> bool:
        has_room = not self._plan.qos or publisher.has_room
        return has_room and publisher.unsent_bytes < UNSENT_BYTES

    def _send(self, number: int, due: int) -> None:
        group, now = self._groups[number], time.monotonic_ns()
        self.lag.add(now - due)
        self._sent_ns = now
        payload = STAMPS.pack(due, now) + self._filler
        message = Publish(topic=group.topic, payload=payload, qos=self._plan.qos)
        packet_id = group.publisher.publish(message)
        if packet_id is not None:
            self._unacknowledged[number][packet_id] = due
        self._waiting[number] += self._plan.fan
        self.sent += 1

    def _receive(self, number: int, client: MqttClient) -> None:
        client.poll(0)
        now = time.monotonic_ns()
        while (packet := client.take()) is not None:
            if isinstance(packet, Publish):
                client.acknowledge(packet)
                due, sent = STAMPS.unpack_from(packet.payload)
                self.latency.add(now - due)
                self.service.add(now - sent)
                self._waiting[number] -= 1
                self.received += 1
            elif isinstance(packet, PubAck | PubRec | PubComp):
                self._acknowledged(number, packet, now)

    def _acknowledged(self, number: int, packet: PubAck | PubRec | PubComp, now: int) -> None:
        due = self._unacknowledged[number].pop(packet.packet_id)
        if packet.reason < FIRST_ERROR:
            self.acknowledgement.add(now - due)
            return
        self.refused += 1
        self._waiting[number] -= self._plan.fan

    def _write(self) -> None:
        for number, group in enumerate(self._groups):
            if group.publisher.unsent_bytes:
                self._receive(number, group.publisher)
