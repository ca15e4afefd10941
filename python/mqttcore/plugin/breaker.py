"""The circuit breaker of a hook: pauses a hook that keeps failing."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

FAILURES = 20
WINDOW_S = 10.0
OPEN_S = 5.0
HELD_MAX = 4
"""Maximum number of threads that one hook may block."""

BreakerState = Literal["closed", "open", "half_open"]
"""Closed: the hook is called. Open: it is not. Half open: one call decides."""


def ignore(_is_paused: bool, /) -> None:
    """Does nothing."""


class CircuitBreaker:
    """Opens after `FAILURES` within `WINDOW_S`, for `OPEN_S`; then one trial call. Thread-safe.

    It is also open while calls of the hook block `HELD_MAX` threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self._state: BreakerState = "closed"
        self._until = 0.0  # no call before, unless closed
        self._held = 0
        self.tell: Callable[[bool], object] = ignore
        """Called when it opens, closes, or blocks threads: with False while the hook is called."""

    @property
    def state(self) -> BreakerState:
        """The state of the breaker."""
        with self._lock:
            if self._held >= HELD_MAX:
                return "open"
            is_due = self._state == "open" and self._clock() >= self._until
            return "half_open" if is_due else self._state

    def admit(self, *, timeout: float) -> bool:
        """Whether to call the hook. A trial without a result blocks others for a limited time."""
        if self._state == "closed" and self._held < HELD_MAX:
            return True  # nearly always; whoever changes it now comes after this call
        with self._lock:
            now = self._clock()
            if self._held >= HELD_MAX:
                return False
            if self._state == "closed":
                return True
            if now < self._until:
                return False
            self._state, self._until = "half_open", now + timeout + OPEN_S
            return True

    def succeed(self) -> bool:
        """Records a successful call. True: the breaker closes."""
        if self._state == "closed":
            return False
        with self._lock:
            closes = self._state == "half_open"
            if closes:
                self._state = "closed"
                self._tell()
            return closes

    def fail(self) -> bool:
        """Records a failed call. True: it opens; False for a failed trial, which keeps it open."""
        with self._lock:
            now, before = self._clock(), self._state
            if before == "open":
                return False  # called while it was closed
            if before == "closed":
                self._failures.append(now)
                if len(self._failures) < FAILURES or now - self._failures[0] > WINDOW_S:
                    return False
                self._failures.clear()
            self._state, self._until = "open", now + OPEN_S
            self._tell()
            return before == "closed"

    def release(self) -> None:
        """Records a call without a result: if it was the trial, the next call is one."""
        with self._lock:
            if self._state == "half_open":
                self._until = self._clock()

    def hold(self) -> int:
        """Records that a call blocks its thread; returns the number of blocked threads."""
        with self._lock:
            self._held += 1
            self._tell()
            return self._held

    def let_go(self) -> None:
        """Records that a blocked thread has returned."""
        with self._lock:
            self._held -= 1
            self._tell()

    def _tell(self) -> None:
        self.tell(self._state != "closed" or self._held >= HELD_MAX)
