"""The requests of `mqttcore bench sub|retained`: SUBSCRIBEs of many clients in one thread."""

import contextlib
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from mqttcore.cli.client import FIRST_ERROR, MqttClient
from mqttcore.cli.failure import REFUSED, CommandError
from mqttcore.cli.histogram import Histogram
from mqttcore.cli.load import NS, PAUSE_S, PROGRESS_NS, TURN_MESSAGES, UNSENT_BYTES
from mqttcore.packets import PubAck, Publish, PubRec, SubAck, Subscription, reason_text

SILENCE_NS: Final = 10 * NS
"""Without an answer for this time, open requests are lost."""


class Schedule(NamedTuple):
    """When requests begin."""

    total: int
    rate: float
    """Requests a second; 0: as fast as ``window`` allows."""
    window: int
    """Without a rate: requests at a time."""

    def due(self, number: int, begun: int, *, ended: int) -> int | None:
        """The time at which a request is due; `None` if others have to end first."""
        if self.rate:
            return begun + int(number / self.rate * NS)
        return time.monotonic_ns() if number - ended < self.window else None


class Open(NamedTuple):
    """A request without its answer."""

    due: int
    sent: int


class Requests:
    """Begins requests of clients in turn, and measures the time until they end."""

    def __init__(self, clients: Sequence[MqttClient], schedule: Schedule, qos: int) -> None:
        self._clients = clients
        self._schedule = schedule
        self._qos = qos
        self._open: dict[tuple[int, int], Open] = {}
        """By the number of the client, and a packet identifier."""
        self._heard_ns = 0
        self.latency = Histogram()
        """Time from the due time of a request to its end."""
        self.service = Histogram()
        """Time from sending to its end."""
        self.begun = self.done = 0
        self.refused: Counter[str] = Counter()
        self.cpu_s = self.elapsed_s = 0.0

    @property
    def ended(self) -> int:
        """Requests that were answered."""
        return self.done + self.refused.total()

    def begin(self, number: int) -> int:
        """Sends a request of client ``number``; returns its key."""
        raise NotImplementedError

    def take(self, number: int, packet: SubAck | Publish, now: int) -> None:
        """Handles an answer."""
        raise NotImplementedError

    def run(self, progress: Callable[["Requests", float], None]) -> None:
        """Connects, begins all requests and waits for their ends; tells progress each second.

        Raises:
            CommandError: the broker cannot be reached, refuses, or ends a connection.
        """
        with contextlib.ExitStack() as stack:
            # `select` takes only low descriptors
            poll = stack.enter_context(select.epoll())
            numbers: dict[int, int] = {}
            for number, client in enumerate(self._clients):
                stack.enter_context(client)
                client.connect()
                poll.register(client.fileno(), select.EPOLLIN)
                numbers[client.fileno()] = number
            self._drive(poll, numbers, progress)
            for client in self._clients:
                client.close()

    def _drive(
        self,
        poll: select.epoll,
        numbers: dict[int, int],
        progress: Callable[["Requests", float], None],
    ) -> None:
        cpu, begun = time.process_time(), time.monotonic_ns()
        self._heard_ns = told = begun
        while self.ended < self._schedule.total:
            pause_s = self._begin_due(begun)
            # epoll itself counts whole milliseconds
            select.select([poll], [], [], pause_s)
            for descriptor, _ in poll.poll(0):
                self._receive(numbers[descriptor])
            now = time.monotonic_ns()
            if self._open and now - self._heard_ns > SILENCE_NS:
                break
            if now - told >= PROGRESS_NS:
                told = now
                for number in numbers.values():
                    self._receive(number)  # keep-alive, unsent bytes
                progress(self, (now - begun) / NS)
        self.elapsed_s = (time.monotonic_ns() - begun) / NS
        self.cpu_s = time.process_time() - cpu

    def _begin_due(self, begun: int) -> float:
        """Begins the requests that are due; returns the seconds until the next one."""
        for _ in range(TURN_MESSAGES):
            if self.begun == self._schedule.total:
                return PAUSE_S
            due = self._schedule.due(self.begun, begun, ended=self.ended)
            now = time.monotonic_ns()
            if due is None or due > now:
                return PAUSE_S if due is None else min((due - now) / NS, PAUSE_S)
            number = self.begun % len(self._clients)
            if not self._open:
                self._heard_ns = now
            self._open[number, self.begin(number)] = Open(due, now)
            self.begun += 1
        return 0.0

    def _receive(self, number: int) -> None:
        client = self._clients[number]
        client.poll(0)
        now = time.monotonic_ns()
        while (packet := client.take()) is not None:
            if isinstance(packet, SubAck | Publish):
                self._heard_ns = now
                self.take(number, packet, now)

    def end(self, number: int, key: int, now: int, *, reason: int = 0) -> None:
        """Ends a request."""
        found = self._open.pop((number, key), None)
        if found is None:
            return
        if reason >= FIRST_ERROR:
            self.refused[reason_text(reason)] += 1
            return
        self.done += 1
        self.latency.add(now - found.due)
        self.service.add(now - found.sent)


class Subscriptions(Requests):
    """Requests for one more subscription each; they end with the SUBACK."""

    def __init__(
        self, clients: Sequence[MqttClient], schedule: Schedule, qos: int, topic: str
    ) -> None:
        super().__init__(clients, schedule, qos)
        self._topic = topic

    def begin(self, number: int) -> int:
        """Subscribes to a filter of its own."""
        wanted = Subscription(filter=f"{self._topic}/{self.begun}/+", qos=self._qos)
        return self._clients[number].send_subscribe([wanted])

    def take(self, number: int, packet: SubAck | Publish, now: int) -> None:
        """Ends the request of a SUBACK."""
        if isinstance(packet, SubAck):
            self.end(number, packet.packet_id, now, reason=packet.reasons[0])
        else:
            self._clients[number].acknowledge(packet)


class RetainedMessages(Requests):
    """Requests for all retained messages below a topic, one for each client."""

    def __init__(
        self,
        clients: Sequence[MqttClient],
        schedule: Schedule,
        qos: int,
        topic: str,
        messages: int,
    ) -> None:
        super().__init__(clients, schedule, qos)
        self._topic = topic
        self._messages = messages
        self._received = [0] * len(clients)
        self._keys = [0] * len(clients)
        self.first = Histogram()
        """Time from sending to the first message."""
        self.received = 0

    def begin(self, number: int) -> int:
        """Subscribes to all topics."""
        wanted = Subscription(filter=f"{self._topic}/#", qos=self._qos)
        self._keys[number] = self._clients[number].send_subscribe([wanted])
        return self._keys[number]

    def take(self, number: int, packet: SubAck | Publish, now: int) -> None:
        """Counts a message; the last one ends the request."""
        key = self._keys[number]
        if isinstance(packet, SubAck):
            if packet.reasons[0] >= FIRST_ERROR:
                self.end(number, key, now, reason=packet.reasons[0])
            return
        self._clients[number].acknowledge(packet)
        self._received[number] += 1
        self.received += 1
        if self._received[number] == 1:
            self.first.add(now - self._open[number, key].sent)
        if self._received[number] == self._messages:
            self.end(number, key, now)


def retain(client: MqttClient, messages: Iterable[Publish]) -> None:
    """Publishes QoS 1 or 2 messages, and waits for their acknowledgements.

    Raises:
        CommandError: the connection ends, or the broker refuses a message.
    """
    for message in messages:
        while not client.has_room or client.unsent_bytes > UNSENT_BYTES:
            await_acknowledgements(client)
        client.publish(message)
    while client.in_flight:
        await_acknowledgements(client)


def await_acknowledgements(client: MqttClient) -> None:
    """Waits for packets of the broker.

    Raises:
        CommandError: the connection ends, or a message was refused.
    """
    client.poll(PAUSE_S)
    while (packet := client.take()) is not None:
        if isinstance(packet, PubAck | PubRec) and packet.reason >= FIRST_ERROR:
            text = f"{client.endpoint} refused a retained message: {reason_text(packet.reason)}"
            raise CommandError(text, status=REFUSED)
