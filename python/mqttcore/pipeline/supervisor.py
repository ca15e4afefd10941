"""Restarts a query after transient failures.

A machine that is busy, or a broker or a store that is away, never ends a pipeline: the waits grow
to five minutes. A process that died may die again of the same rows, so such restarts are counted.
"""

import logging
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, TypeVar

from mqttcore.errors import EndpointUnreachableError, PipelineError

__all__ = ["Restarts", "may_pass", "retried"]

logger = logging.getLogger(__name__)
Made = TypeVar("Made")

RESTARTS: Final = 6
"""Maximum number of restarts of a query within `WITHIN_S` if its processes die."""
WITHIN_S: Final = 1_800.0
FIRST_WAIT_S: Final = 2.0
"""Seconds before a restart; doubled for each restart within `WITHIN_S`."""
LONGEST_WAIT_S: Final = 300.0
DEATHS: Final = re.compile(
    r"""
    Python\ worker\ exited\ unexpectedly
    | (ExecutorLostFailure|Could\ not\ find\ executor)
    | Cannot\ allocate\ memory
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Texts of errors of processes that died, or found no memory."""
PASSING: Final = re.compile(
    r"""
    Python\ worker\ failed\ to\ connect\ back
    | Timed?\ ?out\ while\ waiting\ for\ (the\ )?Python\ worker
    | SocketTimeoutException | Accept\ timed\ out
    | EndpointUnreachableError
    | Connection\ (refused|reset) | Broken\ pipe
    | Error\ performing\ \S+\ \S+\ in\ \S+\ (after\ \d+\ retries|-\ HTTP\ error)
    | Resource\ temporarily\ unavailable
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Texts of errors that may be caused by a busy machine, or by a broker or an object store that is
away. delta-rs reports that a request to a store was repeated, which it does for transient failures,
or that there was no answer."""


def may_pass(error: BaseException) -> bool:
    """Whether a repetition may succeed."""
    is_away = isinstance(error, EndpointUnreachableError)
    return is_away or is_death(error) or PASSING.search(str(error)) is not None


def is_death(error: BaseException) -> bool:
    """Whether a process has died, perhaps because of the rows."""
    return DEATHS.search(str(error)) is not None


class Restarts:
    """The restarts of each query."""

    def __init__(self) -> None:
        self._times: dict[str, deque[tuple[float, bool]]] = defaultdict(deque)
        """When restarts were, and whether a process had died."""

    def take(self, name: str, error: BaseException) -> float:
        """Logs the reason of a restart; returns the seconds to wait before it.

        Raises:
            PipelineError: the error will not pass, or processes have died too often.
        """
        if not may_pass(error):
            raise PipelineError(f"query {name}: {error}") from error
        now, times = time.monotonic(), self._times[name]
        while times and now - times[0][0] > WITHIN_S:
            times.popleft()
        if is_death(error) and sum(has_died for _, has_died in times) >= RESTARTS:
            raise PipelineError(
                f"query {name}: it failed again after {RESTARTS} restarts within"
                f" {WITHIN_S / 60:.0f} minutes: {error}"
            ) from error
        wait_s: float = min(FIRST_WAIT_S * 2 ** len(times), LONGEST_WAIT_S)
        times.append((now, is_death(error)))
        logger.warning(
            "query %s failed, restart %d in %.0f s: %s", name, len(times), wait_s, first_line(error)
        )
        return wait_s


def retried(
    make: Callable[[], Made], name: str, restarts: Restarts, is_over: threading.Event
) -> Made:
    """Returns the result of ``make``, which is repeated after transient failures.

    Raises:
        PipelineError: processes have died too often.
        Exception: what ``make`` failed with, if it will not pass, or ``is_over`` is set meanwhile.
    """
    while True:
        try:
            return make()
        except Exception as error:
            if not may_pass(error) or is_over.wait(restarts.take(name, error)):
                raise


def first_line(error: BaseException) -> str:
    """The part of an error for a line of a log."""
    return next(iter(str(error).splitlines()), type(error).__name__)
