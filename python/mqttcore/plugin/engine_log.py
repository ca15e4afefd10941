"""The thread that writes the lines of the engine into the log, and passes on what else it tells."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from mqttcore._core import HookQueues, Question
from mqttcore._log import logger
from mqttcore.logs import FIELDS

if TYPE_CHECKING:
    from mqttcore.plugin.base import Stored

engine_log = logger("mqttcore.engine")

LOG_JOIN_S = 5.0
"""Seconds that `join` waits for the last lines of the log; a handler may block for ever."""

T = TypeVar("T")
Late = tuple[Question, str, float]
"""A question that got no answer in time, the title of its hook, and the timeout in seconds."""


class EngineLog:
    """Passes on what the engine tells, until the queues close: lines go into the log.

    Args:
        queues: Where lines and late questions come from.
        expired: Called with each late question.
        stored: Called with the times of each stored message that a plugin has given a number.
    """

    def __init__(
        self,
        queues: HookQueues,
        *,
        expired: Callable[[Late], None] = lambda _late: None,
        stored: "Callable[[Stored], None]" = lambda _times: None,
    ) -> None:
        self._queues = queues
        self._expired = expired
        self._stored = stored
        self._thread = threading.Thread(target=self._run, name="mqttcore-log", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the last lines, for `LOG_JOIN_S` at most."""
        self._thread.join(LOG_JOIN_S)

    def _run(self) -> None:
        while (notifications := self._queues.notifications()) is not None:
            each(notifications.lines, tell_line)
            each(notifications.expired, self._expired)
            each(notifications.stored, self._stored)


def tell_line(line: tuple[int, str, list[tuple[str, str]]]) -> None:
    """Logs a line of the engine."""
    level, text, known = line
    engine_log.log(level, "%s", text, extra={FIELDS: known})


def each(items: Iterable[T], tell: Callable[[T], None]) -> None:
    """Calls ``tell`` for each item; a log handler that raises does not end the thread."""
    for item in items:
        with contextlib.suppress(Exception):
            tell(item)
