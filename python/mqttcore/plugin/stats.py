"""Counters of the calls of each hook."""

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from mqttcore.plugin.breaker import BreakerState
from mqttcore.plugin.marks import Point

Result = Literal["allowed", "denied", "passed", "failed", "timed_out", "shut_out"]


RUN_LIMITS_S = (0.000_01, 0.000_1, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, math.inf)
"""Upper limits of the buckets of `HookStats.run_times`, in seconds."""


@dataclass(slots=True)
class Turn:
    """The calls of one question."""

    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStats:
    """The calls of one hook, since the broker was started or reloaded.

    A call is counted once among its results, or not at all: while it runs in its time, and when its
    client left before it answered. What a hook's ``cache`` answers is no call.
    """

    hook: str
    """As the log calls it."""
    point: Point
    """Which kind of hook it is."""
    calls: int
    """Calls that began."""
    allowed: int
    """Results: yes."""
    denied: int
    """Results: no, or `OverloadedError`."""
    passed: int
    """Results: None. An events hook that returns counts as passed."""
    failed: int
    """Results: an exception, or an answer that it must not give."""
    timed_out: int
    """Results: refused because no answer came in time; of events, not back in time."""
    shut_out: int
    """Questions that were refused without a call, because it kept failing or holds four threads,
    and messages whose time was up before they came to it;
    batches of events that it was not told for the latter."""
    in_flight: int
    """Calls that have not come back, those among them that are refused already."""
    cache_hits: int
    """Logins that were answered by its ``cache``, without a call."""
    run_times: tuple[tuple[float, int], ...]
    """Calls that came back, by their duration: upper limits in seconds, the last one infinite, and
    the number of calls up to each that are above the limit before. Messages of one turn of a
    publish hook count with their mean; waits for the client of an exchange are included."""
    run_s: float
    """Seconds inside of calls that came back, less those in which a client was waited for."""
    wait_s: float
    """Seconds between questions and their calls: queue and interpreter. 0 for events."""
    breaker: BreakerState
    """Whether it is asked; ``open`` as well while it holds four threads."""


class Meter:
    """Counts the calls of one hook. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: Counter[Result] = Counter()
        self._calls = 0
        self._in_flight = 0
        self._run_s = 0.0
        self._wait_s = 0.0
        self._cache_hits = 0
        self._run_times = [0] * len(RUN_LIMITS_S)

    @contextmanager
    def call(self, *, waited: float = 0.0) -> Iterator[None]:
        """Stands around a call for which a question ``waited`` so many seconds."""
        self.begin()
        with self.running(waited=waited) as turn:
            turn.calls = 1
            yield

    def begin(self) -> None:
        """Records that a call begins."""
        with self._lock:
            self._calls += 1

    @contextmanager
    def running(self, *, waited: float) -> Iterator[Turn]:
        """Stands around calls of one question, each of which `begin` records, and the turn, too."""
        with self._lock:
            self._in_flight += 1
            self._wait_s += waited
        turn = Turn()
        began = time.perf_counter()
        try:
            yield turn
        finally:
            spent = time.perf_counter() - began
            with self._lock:
                self._in_flight -= 1
                self._run_s += spent
                if turn.calls:
                    self._run_times[bisect_left(RUN_LIMITS_S, spent / turn.calls)] += turn.calls

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Stands around a wait for the client within a call: that is not the hook's time."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._run_s -= time.perf_counter() - began

    def recall(self) -> None:
        """Records an answer from the cache."""
        with self._lock:
            self._cache_hits += 1

    @property
    def is_running(self) -> bool:
        """Whether a call has not come back."""
        with self._lock:
            return self._in_flight > 0

    def count(self, result: Result) -> None:
        """Records what became of a call, or of a question without one."""
        with self._lock:
            self._results[result] += 1

    def read(self, hook: str, *, point: Point, breaker: BreakerState) -> HookStats:
        """The numbers as they are now."""
        with self._lock:
            return HookStats(
                hook=hook,
                point=point,
                calls=self._calls,
                allowed=self._results["allowed"],
                denied=self._results["denied"],
                passed=self._results["passed"],
                failed=self._results["failed"],
                timed_out=self._results["timed_out"],
                shut_out=self._results["shut_out"],
                in_flight=self._in_flight,
                cache_hits=self._cache_hits,
                run_times=tuple(zip(RUN_LIMITS_S, self._run_times, strict=True)),
                run_s=self._run_s,
                wait_s=self._wait_s,
                breaker=breaker,
            )
