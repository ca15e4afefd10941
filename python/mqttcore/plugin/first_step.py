"""Tasks whose first step runs at once, and not at the next turn of their event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context


class FirstSteps:
    """Creates the tasks of one event loop, and runs their first steps.

    A first step is what the loop would call at its next turn: in it, the task is the current one,
    and whatever it waits for continues it as usual. Tasks with ``eager_start`` of Python 3.12 run
    before anybody knows them: nobody could tell which one blocks the loop.

    Args:
        loop: Call `task` and `run` in its callbacks, and not inside of a task.
        context: Each task begins with a copy: it does not see what another one has set.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._step: Callable[[], object] | None = None
        self._begun = context

    def task(self, coroutine: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Creates a task; `run` has to follow at once."""
        context, attributes = self._context.copy(), vars(self._loop)
        attributes["call_soon"] = self._keep  # a task asks its loop once for its first step
        try:
            return asyncio.Task(coroutine, loop=self._loop, name=name, context=context)
        finally:
            del attributes["call_soon"]

    def run(self) -> None:
        """Runs the first step of the last task."""
        step, begun = self._step, self._begun
        self._step, self._begun = None, self._context  # the task's context refers to its login
        if step is not None:
            begun.run(step)

    def _keep(self, step: Callable[[], object], context: Context) -> None:
        self._step, self._begun = step, context
