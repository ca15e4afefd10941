"""Waits for a broker that is away: for a while, and without haste."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from mqttcore.errors import EndpointError, EndpointUnreachableError

__all__ = ["PATIENCE_S", "patiently"]

logger = logging.getLogger(__name__)
PATIENCE_S: Final = 300.0
"""How long a broker may be away."""
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 2.0
Answer = TypeVar("Answer")


def patiently(
    ask: Callable[[], Answer],
    *,
    what: str,
    meanwhile: Callable[[EndpointError], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Answer:
    """What the broker answers; asked again while it is away, which is told once.

    Args:
        ask: Fails with an `EndpointError`; one that says that the broker is away is waited out.
        what: Who or what is waited for, for the log.
        meanwhile: Looks, before each wait, whether there is another way; if so, it raises.
        patience_s: How long the broker may be away.

    Raises:
        EndpointError: the broker refuses, or does not come back.
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
            if time.monotonic() >= began + patience_s:
                raise
            if wait_s == FIRST_WAIT_S:
                logger.warning("waiting for %s, %g s at most: %s", what, patience_s, error)
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, LONGEST_WAIT_S)
