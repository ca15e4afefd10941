"""What an attack must leave as it was: the round trips of a bystander, and the broker's memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from mqttcore.errors import StoppedError

from tests.conftest import Bystander
from tests.eventually import eventually
from tests.wire import PATIENCE_S

if TYPE_CHECKING:
    from mqttcore import Broker
    from mqttcore._core import Session

PAUSE_S: Final = 0.02
"""Between two round trips: fewer than the least limit of control packets that a test sets."""
LEFT_BYTES: Final = 1 << 20
"""Tables keep the capacity that they once needed."""

SESSION_BYTES: Final = 8 << 10
"""More than a session with ten subscriptions takes."""


class Beside:
    """A bystander that makes round trips, in a thread of its own, while its broker is attacked.

    One that fails, or fewer than one a second, fails the test.
    """

    def __init__(self, port: int) -> None:
        self.round_trips = 0
        self._clients = Bystander(port)
        self._fault: Exception | None = None
        self._changed = threading.Condition()
        self._asked, self._ends = threading.Event(), False
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self._ends:
                self.check()
                assert self.round_trips >= time.monotonic() - self._began
        finally:
            self.end()

    def check(self) -> None:
        """Waits for a round trip that begins after this call."""
        with self._changed:
            count = self.round_trips + 2
            self._asked.set()
            self._changed.wait_for(lambda: self._fault or self.round_trips >= count, PATIENCE_S)
            self._asked.clear()
        if self._fault is not None:
            raise self._fault
        assert self.round_trips >= count, "the bystander gets no answer"

    def end(self) -> None:
        """Ends it, whatever it has noticed."""
        self._ends = True
        self._asked.set()
        self._thread.join()
        self._clients.close()

    def _run(self) -> None:
        try:
            while not self._ends:
                self._clients.check()
                with self._changed:
                    self.round_trips += 1
                    self._changed.notify_all()
                self._asked.wait(PAUSE_S)
        except Exception as fault:  # raised again in the thread of the test
            with self._changed:
                self._fault = fault
                self._changed.notify_all()


BesideOf = Callable[[int], Beside]
"""The bystander of a broker of the test's own, by its port."""


def clients_of_test(broker: Broker) -> list[Session]:
    """All but the bystander."""
    own = ("sender-", "receiver-")
    return [each for each in broker.clients() if not each.client_id.startswith(own)]


def used_bytes(broker: Broker) -> int:
    """Memory that the broker counts, but for what a test leaves: messages, sessions, hashes."""
    stats = broker.stats()
    kept = stats["memory_messages_bytes"] + stats["memory_passwords_bytes"]
    kept += stats["sessions"] * SESSION_BYTES
    return stats["memory_used_bytes"] - kept


@contextmanager
def unharmed(broker: Broker, port: int) -> Iterator[Beside]:
    """A bystander at `port`; in the end the broker has the memory of before, if it still runs."""
    with Beside(port) as beside:
        before = used_bytes(broker)
        yield beside
        try:
            assert broker.stats()["panics"] == 0
        except StoppedError:
            beside.end()
            return
        beside.check()
    eventually(lambda: used_bytes(broker) <= before + LEFT_BYTES, told=broker.stats)
