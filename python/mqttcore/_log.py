"""Loggers that load `logging` with their first record: its import takes a seventh of the start.

Only modules that a plain start loads have them; plugins and tools log as usual.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


class LazyLogger:
    """A logger of `logging`, which is loaded when an attribute is used first."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        load()
        import logging

        return getattr(logging.getLogger(self._name), attribute)


def logger(name: str) -> "logging.Logger":
    """Returns the logger of this name."""
    return LazyLogger(name)  # type: ignore[return-value] # it has what a logger has


def before_first_record(configure: Callable[[], None]) -> None:
    """Has `load` call ``configure``, once."""
    with _lock:
        _waiting.append(configure)


def load() -> None:
    """Configures the log now, before code that uses `logging` itself is loaded."""
    with _lock:
        while _waiting:
            _waiting.pop()()


_lock = threading.Lock()
# at most one: the log of the process
_waiting: list[Callable[[], None]] = []
