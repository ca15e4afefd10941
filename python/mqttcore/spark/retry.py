"""Retries with backoff while a broker is away."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from mqttcore.errors import EndpointError, EndpointUnreachableError

__all__ = ["RETRY_S", "pause", "with_retries"]

logger = logging.getLogger(__name__)
RETRY_S: Final = 300.0
"""Seconds that a broker may be away."""
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 2.0
Answer = TypeVar("Answer")


def with_retries(
    ask: Callable[[], Answer],
    *,
    what: str,
    meanwhile: Callable[[EndpointError], None] | None = None,
    retry_s: float = RETRY_S,
) -> Answer:
    """Calls ``ask`` again while the broker is away, and logs that once; returns the answer.

    Args:
        ask: Raises `EndpointError`; it is called again if the broker is away or stopping.
        what: Name of the awaited broker or stream, for the log.
        meanwhile: Called before each wait; it raises to end the retries.
        retry_s: Seconds that the broker may be away.

    Raises:
        EndpointError: the broker refuses the request, or is away for longer than ``retry_s``.
    """
    began, wait_s = time.monotonic(), FIRST_WAIT_S
    while True:
        try:
            return ask()
        except EndpointError as error:
            is_away = isinstance(error, EndpointUnreachableError) or error.code == "stopped"
            if not is_away:
                raise
            if meanwhile is not None:
                meanwhile(error)
            if time.monotonic() >= began + retry_s:
                raise
            if wait_s == FIRST_WAIT_S:
                logger.warning("waiting for %s, %g s at most: %s", what, retry_s, error)
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, LONGEST_WAIT_S)


def pause(seconds: float) -> None:
    """Pauses, while another process makes progress."""
    time.sleep(seconds)
