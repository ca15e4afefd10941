"""The connections of `mqttcore bench conn`: each is made by a thread, and then stays open."""

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from mqttcore.cli.client import MqttClient
from mqttcore.cli.failure import CommandError
from mqttcore.cli.histogram import Histogram
from mqttcore.cli.load import NS, PAUSE_S, PROGRESS_NS
from mqttcore.cli.requests import Schedule

REASONS_MAX: Final = 10
"""Further reasons of failures are counted together."""


class Attempt(NamedTuple):
    """A connection that was tried."""

    client: MqttClient
    due: int
    begun: int
    ended: int
    error: Exception | None


class Connections:
    """Connects clients on a schedule, and measures the time until the CONNACK."""

    def __init__(self, clients: Callable[[], MqttClient], schedule: Schedule) -> None:
        self._clients = clients
        self._schedule = schedule
        self._due: queue.SimpleQueue[tuple[MqttClient, int] | None] = queue.SimpleQueue()
        """Clients and due times for the threads; `None` ends one."""
        self._tried: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        self._connected: list[MqttClient] = []
        self.latency = Histogram()
        """Time from the due time of a connection to its CONNACK."""
        self.service = Histogram()
        """Time from the begin of its TCP connection to its CONNACK."""
        self.begun = self.done = self.lost = 0
        self.failed: Counter[str] = Counter()
        self.cpu_s = self.elapsed_s = 0.0

    @property
    def ended(self) -> int:
        """Connections that were made, and those that failed."""
        return self.done + self.failed.total()

    def run(self, progress: Callable[["Connections", float], None], hold_s: float) -> None:
        """Makes the connections, keeps them for ``hold_s`` and ends them.

        Raises:
            CommandError: the first connection fails.
        """
        with contextlib.ExitStack() as stack:
            for _ in range(min(self._schedule.window, self._schedule.total)):
                # a thread that waits for the broker does not delay Ctrl-C
                threading.Thread(target=self._connect, daemon=True).start()
                stack.callback(self._due.put, None)
            self._drive(stack, progress)
            until = time.monotonic() + hold_s
            while (rest_s := until - time.monotonic()) > 0:
                self._keep_alive()
                time.sleep(min(rest_s, 1.0))
            self._keep_alive()
            for client in self._connected:
                with contextlib.suppress(CommandError):
                    client.close()

    def _connect(self) -> None:
        """Makes one connection after the other."""
        while (work := self._due.get()) is not None:
            client, due = work
            begun = time.monotonic_ns()
            error: Exception | None = None
            try:
                client.connect()
            except Exception as found:  # the other thread raises or counts it
                error = found
            self._tried.put(Attempt(client, due, begun, time.monotonic_ns(), error))

    def _drive(
        self, stack: contextlib.ExitStack, progress: Callable[["Connections", float], None]
    ) -> None:
        cpu, begun = time.process_time(), time.monotonic_ns()
        told = begun
        while self.ended < self._schedule.total:
            pause_s = self._begin_due(begun)
            with contextlib.suppress(queue.Empty):
                while True:
                    self._count(self._tried.get(timeout=pause_s), stack)
                    pause_s = 0
            now = time.monotonic_ns()
            if now - told >= PROGRESS_NS:
                told = now
                self._keep_alive()
                progress(self, (now - begun) / NS)
        self.elapsed_s = (time.monotonic_ns() - begun) / NS
        self.cpu_s = time.process_time() - cpu

    def _begin_due(self, begun: int) -> float:
        """Hands the connections that are due to the threads; returns the seconds until the next."""
        while self.begun < self._schedule.total:
            due = self._schedule.due(self.begun, begun, ended=self.ended)
            now = time.monotonic_ns()
            if due is None or due > now:
                return PAUSE_S if due is None else min((due - now) / NS, PAUSE_S)
            self._due.put((self._clients(), due))
            self.begun += 1
        return PAUSE_S

    def _count(self, attempt: Attempt, stack: contextlib.ExitStack) -> None:
        """Counts a connection.

        Raises:
            CommandError: it failed, and none was made before.
        """
        if attempt.error is None:
            stack.enter_context(attempt.client)
            self._connected.append(attempt.client)
            self.done += 1
            self.latency.add(attempt.ended - attempt.due)
            self.service.add(attempt.ended - attempt.begun)
            return
        attempt.client.abort()
        if not self.done or not isinstance(attempt.error, CommandError):
            raise attempt.error
        text = str(attempt.error)
        has_room = text in self.failed or len(self.failed) < REASONS_MAX
        self.failed[text if has_room else "other reasons"] += 1

    def _keep_alive(self) -> None:
        """Handles packets of all connections; forgets those that the broker has ended."""
        left = []
        for client in self._connected:
            try:
                client.poll(0)
            except CommandError:
                client.abort()
                self.lost += 1
            else:
                left.append(client)
        self._connected = left
