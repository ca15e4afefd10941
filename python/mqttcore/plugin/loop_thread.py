"""An event loop on its own thread.

A separate module, since asyncio takes a third of the broker's start: it is imported only if a
plugin has a coroutine.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mqttcore.plugin.workers import JOIN_S

TIMEOUT_GRACE_S = 0.05
PULSE_S = 1.0
"""Seconds without a turn after which a loop counts as blocked."""

T = TypeVar("T")


class LoopThread:
    """The thread and its loop, which runs until `stop`, `retire` or `finish`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.at_end: Callable[[], None] = lambda: None
        """The last call on the thread."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(
        self, make: Callable[[], Coroutine[Any, Any, T]], *, timeout: float
    ) -> T:  # Any: as there
        """Runs one coroutine on the loop and waits for it, from another thread.

        Raises:
            TimeoutError: it took too long, and was cancelled, or another one holds the loop.
        """

        async def bounded() -> T:
            async with asyncio.timeout(timeout):
                return await make()

        future = asyncio.run_coroutine_threadsafe(bounded(), self.loop)
        try:
            return future.result(timeout + TIMEOUT_GRACE_S)
        finally:
            future.cancel()

    def post(self, callback: Callable[[], object]) -> None:
        """Has the loop call a function soon; does nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback)

    @property
    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def is_stuck(self) -> bool:
        """Whether the loop is blocked: it does not turn within `PULSE_S`."""
        if not self.is_alive:
            return False
        pulse = threading.Event()
        self.post(pulse.set)
        return not pulse.wait(PULSE_S)

    def retire(self, at_end: Callable[[], None]) -> None:
        """Ends the thread as soon as its blocking call returns, and then calls ``at_end``."""
        self.at_end = at_end
        self.post(self.finish)

    def stop(self) -> None:
        """Cancels running coroutines and ends the thread; a blocked thread is abandoned."""
        self.post(self.finish)
        self._thread.join(JOIN_S)

    def finish(self) -> None:
        """Cancels running coroutines and ends the loop; called on its thread."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_soon(self.loop.call_soon, self.loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            self.at_end()
