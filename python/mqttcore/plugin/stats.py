"""Counters of the calls of each hook."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Self

from mqttcore._core import HookCounters
from mqttcore._record import Record
from mqttcore.plugin.breaker import BreakerState
from mqttcore.plugin.marks import Point

Result = Literal["allowed", "denied", "passed", "failed", "timed_out", "shut_out"]


class Turn:
    """The calls of one question, as a context."""

    __slots__ = ("_began", "_counters", "_waited", "calls")

    def __init__(self, counters: HookCounters, waited: float | None, *, calls: int = 0) -> None:
        self._counters = counters
        self._waited = waited
        self._began = 0.0
        self.calls = calls

    def __enter__(self) -> Self:
        self._counters.enter(self._waited)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._counters.leave(time.perf_counter() - self._began, self.calls)


class HookStats(Record):
    """The calls of one hook, since the broker was started or reloaded.

    A call counts for one result. A call that runs within its time has no result yet, and a call
    whose client left before the answer gets none. Answers from a hook's ``cache`` are not calls.
    """

    hook: str
    """Name in the log."""
    point: Point
    """The kind of hook."""
    calls: int
    """Calls that began."""
    allowed: int
    """Results: yes."""
    denied: int
    """Results: no, or `OverloadedError`."""
    passed: int
    """Results: None, or an events hook that returned."""
    failed: int
    """Results: an exception, or an answer that it must not give."""
    timed_out: int
    """Results: refused because no answer came in time; events hooks: not returned in time."""
    shut_out: int
    """Questions that were refused without a call, because the hook kept failing or blocks four
    threads; messages whose time was over before the call; batches of events that were skipped
    because the hook blocks threads."""
    in_flight: int
    """Calls that have not returned, including calls whose question was refused."""
    cache_hits: int
    """Logins that were answered by its ``cache``, without a call."""
    run_times: tuple[tuple[float, int], ...]
    """Completed calls by duration: pairs of an upper limit in seconds (the last one is infinite)
    and the number of calls above the previous limit and up to this one. Messages of one turn of a
    publish hook count with their mean; waits for the client of an exchange are included."""
    run_s: float
    """Seconds inside of completed calls, without waits for the client."""
    wait_s: float
    """Seconds between questions and their calls: queue and interpreter. 0 for events."""
    breaker: BreakerState
    """State of the breaker; also ``open`` while the hook blocks four threads."""


class Meter:
    """Counts the calls of one hook. Thread-safe.

    Args:
        plugin: The name of its plugin in metrics.
        hook: The name of the hook in metrics.
        worker: The number of the queue of its questions; None: it gets no questions.
    """

    def __init__(self, plugin: str = "", hook: str = "", *, worker: int | None = None) -> None:
        self.counters = HookCounters(plugin, hook, worker=worker)

    def call(self, *, waited: float | None = None) -> "Turn":
        """Measures a call for which a question has ``waited`` this many seconds."""
        self.counters.begin()
        return Turn(self.counters, waited, calls=1)

    def begin(self) -> None:
        """Records that a call begins."""
        self.counters.begin()

    def running(self, *, waited: float | None) -> "Turn":
        """Measures one turn and the calls of its question; `begin` records each call."""
        return Turn(self.counters, waited)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Excludes a wait for the client from the time of a call."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.counters.rest(time.perf_counter() - began)

    def recall(self) -> None:
        """Records an answer from the cache."""
        self.counters.recall()

    @property
    def is_running(self) -> bool:
        """Whether a call has not returned."""
        return self.counters.in_flight > 0

    def count(self, result: Result) -> None:
        """Records the result of a call, or of a question without a call."""
        self.counters.count(result)

    def shut_out(self, questions: int) -> None:
        """Records that this many messages were refused without a call."""
        for _ in range(questions):
            self.counters.count("shut_out")

    def read(self, hook: str, *, point: Point, breaker: BreakerState) -> HookStats:
        """The current numbers."""
        counters = self.counters
        return HookStats(
            hook=hook,
            point=point,
            calls=counters.calls,
            **dict(counters.results),
            in_flight=counters.in_flight,
            cache_hits=counters.cache_hits,
            run_times=tuple(counters.run_times),
            run_s=counters.run_s,
            wait_s=counters.wait_s,
            breaker=breaker,
        )
