"""The time that a hook has: it stands still while the hook waits in a queue of the broker's own."""

from contextvars import ContextVar
from dataclasses import dataclass

from mqttcore._core import Question


@dataclass(frozen=True, slots=True)
class HookClock:
    """The time of one call of an `async def` hook."""

    question: Question
    title: str
    timeout: float

    def pause(self) -> None:
        """The hook waits for a place; if none comes, that is overload, and not its fault."""
        self.question.pause()

    def restart(self) -> bool:
        """It has the place, and its whole time again. False: nobody waits for the answer."""
        return self.question.start(self.title, self.timeout)


current: ContextVar[HookClock | None] = ContextVar("mqttcore_hook_clock", default=None)
"""Of the hook that runs; None outside of hooks."""
