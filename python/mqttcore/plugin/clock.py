"""The time limit of a hook; it pauses while the hook waits in a queue of the broker."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from mqttcore._core import Question


@dataclass(frozen=True, slots=True)
class HookClock:
    """The time of one call of an `async def` hook."""

    question: Question
    title: str
    timeout: float
    without_place: Callable[[], AbstractContextManager[None]] = field(
        default=nullcontext, compare=False
    )
    """Within it, the hook does not count as one of those that run at once on its event loop. Only
    for waits that are bounded by a queue of the broker."""

    def pause(self) -> None:
        """The hook waits for a place; if none comes, that is overload, and not its fault."""
        self.question.pause()

    def restart(self) -> bool:
        """Starts with the full timeout. Returns False if the question is over."""
        return self.question.start(self.title, self.timeout)


current: ContextVar[HookClock | None] = ContextVar("mqttcore_hook_clock", default=None)
"""Of the hook that runs; None outside of hooks."""


def without_place() -> AbstractContextManager[None]:
    """`HookClock.without_place` of the hook that runs; outside of hooks it does nothing."""
    hook = current.get()
    return nullcontext() if hook is None else hook.without_place()
