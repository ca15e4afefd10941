"""The load of `mqttcore bench`: pairs of publishers and subscribers in one thread."""

import contextlib
import select
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mqttcore.cli.client import FIRST_ERROR, MqttClient
from mqttcore.cli.failure import REFUSED, CommandError
from mqttcore.cli.histogram import Histogram
from mqttcore.packets import PubAck, Publish, PubRec, Subscription, reason_text

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
    """Messages a second, of all pairs; 0: as fast as ``window`` allows."""
    seconds: float
    qos: int
    size: int
    """Bytes of a payload, at least those of `STAMPS`."""
    window: int
    """Without a rate: messages of a pair that were sent and not received yet."""
    topic: str
    """Topic of the pairs, without their numbers."""

    @property
    def messages(self) -> int:
        """With a rate: the number of messages."""
        return int(self.rate * self.seconds)


class Pair(NamedTuple):
    """A publisher and its subscriber."""

    topic: str
    publisher: MqttClient
    subscriber: MqttClient


class Load:
    """Sends the messages of a plan and measures how long they take."""

    def __init__(self, plan: Plan, clients: Callable[[], MqttClient], count: int) -> None:
        self._plan = plan
        self._pairs = [
            Pair(f"{plan.topic}/{number}", clients(), clients()) for number in range(count)
        ]
        self._waiting = [0] * count
        """Messages of each pair that were sent and not received."""
        self._filler = b"x" * max(plan.size - STAMPS.size, 0)
        self._begun_ns = self._sent_ns = 0
        self.latency = Histogram()
        """Time from the due time of a message to its arrival."""
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
            for pair in self._pairs:
                stack.enter_context(pair.publisher)
                stack.enter_context(pair.subscriber)
            self._run(progress)

    def _run(self, progress: Callable[["Load", float], None]) -> None:
        self._connect()
        with select.epoll() as poll:
            by_descriptor = {}
            for number, pair in enumerate(self._pairs):
                for client in (pair.publisher, pair.subscriber):
                    poll.register(client.fileno(), select.EPOLLIN)
                    by_descriptor[client.fileno()] = (number, client)
            self._drive(poll, by_descriptor, progress)
        for pair in self._pairs:
            pair.publisher.close()
            pair.subscriber.close()

    def _connect(self) -> None:
        for pair in self._pairs:
            pair.subscriber.connect()
            wanted = Subscription(filter=pair.topic, qos=self._plan.qos)
            reason = pair.subscriber.subscribe([wanted]).reasons[0]
            if reason >= FIRST_ERROR:
                text = f"the subscription to {pair.topic} was refused: {reason_text(reason)}"
                raise CommandError(text, status=REFUSED)
            pair.publisher.connect()

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
        is_unfinished = any(pair.publisher.in_flight for pair in self._pairs)
        return is_unfinished or self.received + self.refused < self.sent

    def _send_due(self) -> float:
        """Sends the messages that are due; returns the seconds until the next one."""
        if not self._plan.rate:
            return self._send_windows()
        for _ in range(min(TURN_MESSAGES, self._plan.messages - self.sent)):
            due = self._begun_ns + int(self.sent / self._plan.rate * NS)
            if due > time.monotonic_ns():
                return (due - time.monotonic_ns()) / NS
            number = self.sent % len(self._pairs)
            if not self._has_room(self._pairs[number].publisher):
                return FULL_S
            self._send(number, due)
        return 0.0

    def _send_windows(self) -> float:
        for number, pair in enumerate(self._pairs):
            for _ in range(TURN_MESSAGES):
                is_full = self._waiting[number] >= self._plan.window
                if is_full or not self._has_room(pair.publisher):
                    break
                self._send(number, time.monotonic_ns())
        return PAUSE_S

    def _has_room(self, publisher: MqttClient) -> bool:
        has_room = not self._plan.qos or publisher.has_room
        return has_room and publisher.unsent_bytes < UNSENT_BYTES

    def _send(self, number: int, due: int) -> None:
        pair, now = self._pairs[number], time.monotonic_ns()
        self.lag.add(now - due)
        self._sent_ns = now
        payload = STAMPS.pack(due, now) + self._filler
        pair.publisher.publish(Publish(topic=pair.topic, payload=payload, qos=self._plan.qos))
        self._waiting[number] += 1
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
            elif isinstance(packet, PubAck | PubRec) and packet.reason >= FIRST_ERROR:
                self.refused += 1

    def _write(self) -> None:
        for number, pair in enumerate(self._pairs):
            if pair.publisher.unsent_bytes:
                self._receive(number, pair.publisher)


def summary(times: Histogram, percents: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    found = {f"p{percent:g}_ms": times.percentile_ns(percent) / 1e6 for percent in percents}
    return {**found, "max_ms": times.maximum_ns / 1e6}
