"""Log lines that clients can cause: at most one a second for each category."""

import logging
import time
from collections.abc import Callable

LOG_INTERVAL_S = 1.0


class LimitedLog:
    """One line a second for each category; suppressed lines are counted.

    Categories are never removed: do not make them from data of clients.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self._silent: dict[str, int] = {}

    def warn(
        self, category: str, text: str, *values: object, error: BaseException | None = None
    ) -> None:
        """Logs a text with its values, as `logging` does, unless a line was there just now."""
        now = self._clock()
        if now < self._last.get(category, -LOG_INTERVAL_S) + LOG_INTERVAL_S:
            self._silent[category] = self._silent.get(category, 0) + 1
            return
        self._last[category] = now
        more = self._silent.pop(category, 0)
        suffix = f" ({more} similar since the last line)" if more else ""
        self._logger.warning(f"{text}%s", *values, suffix, exc_info=error)
