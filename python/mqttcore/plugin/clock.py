"""The time limit of a hook; it pauses while the hook waits in a queue of the broker."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from mqttcore._core import Question


@dataclass(slots=True)
class HookClock:
    """The time of one call of an `async def` hook.

    It is made for each call: a frozen one would take three times as long.
    """

    question: Question
    title: str
    timeout: float
    without_place: Callable[[], AbstractContextManager[None]] = field(
        default=nullcontext, compare=False
    )
    """Inside this context, the hook does not count as running on its event loop. Only for waits
    that a queue of the broker limits."""

    def pause(self) -> None:
        """Pauses: the hook waits for a place. Without one, that is overload, not its fault."""
        self.question.pause()

    def restart(self) -> bool:
        """Starts with the full timeout. Returns False if the question is over."""
        return self.question.start(self.title, self.timeout)


current: ContextVar[HookClock | None] = ContextVar("mqttcore_hook_clock", default=None)
"""The clock of the running hook; None outside of hooks."""


def without_place() -> AbstractContextManager[None]:
    """`HookClock.without_place` of the running hook; does nothing outside of hooks."""
    hook = current.get()
    return nullcontext() if hook is None else hook.without_place()
