"""Changes by operators and their callers, for the audit log of the engine."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from mqttcore._record import Record

T = TypeVar("T")


class Caller(Record):
    """The caller of a change."""

    who: str
    """Such as ``user 0``, a user of this machine."""
    how: str
    """The way in: ``control``, ``python`` or ``signal``."""


class Entry(Record):
    """A change that was made or refused."""

    who: str
    how: str
    action: str
    target: str
    details: list[tuple[str, str]]
    """Parameters by name: neither secrets nor payloads."""
    result: str


ENDPOINT = Caller(who="", how="http")
"""The HTTP endpoint, which records its requests itself."""

PROGRAM = Caller(who="the program", how="python")
"""The program that embeds the broker."""

_calling: ContextVar[Caller] = ContextVar("mqttcore_calling", default=PROGRAM)


@contextlib.contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """Records changes inside the block as changes of ``caller``."""
    token = _calling.set(caller)
    try:
        yield
    finally:
        _calling.reset(token)


def caller_name() -> str:
    """The name of the caller in the audit log."""
    return _calling.get().who


class Change(Record):
    """A change and its parameters; those without a value are left out."""

    action: str
    target: str = ""
    details: dict[str, object]

    def record(self, make: Callable[[], T], record: Callable[[Entry], None]) -> T:
        """Makes the change with ``make`` and hands its entry to ``record``, also if it fails."""
        if _calling.get() is ENDPOINT:
            return make()
        try:
            done = make()
        except Exception as error:
            record(self._entry(f"failed: {error}"))
            raise
        record(self._entry("no effect" if done is False else "done"))
        return done

    def _entry(self, result: str) -> Entry:
        caller = _calling.get()
        given = ((name, value) for name, value in self.details.items() if value not in (None, ""))
        return Entry(
            who=caller.who,
            how=caller.how,
            action=self.action,
            target=self.target,
            details=[(name, str(value)) for name, value in given],
            result=result,
        )
