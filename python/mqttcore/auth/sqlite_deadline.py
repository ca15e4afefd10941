"""A time limit for queries of SQLite, which would otherwise continue in their thread."""

import time
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

STEPS = 10_000
"""Instructions of SQLite between two checks of the clock: well below a millisecond."""
DEADLINE = "deadline"
"""The key of a connection's deadline in ``info``, by `time.monotonic`."""


def interrupt_late_queries(engine: AsyncEngine, timeout_s: float) -> None:
    """Makes SQLite end each query that runs for more than ``timeout_s``, with an error."""

    def connected(connection: Any, record: Any) -> None:  # noqa: ANN401 - those of the library
        info: dict[str, float] = record.info

        def is_late() -> bool:
            return time.monotonic() > info.get(DEADLINE, float("inf"))

        connection.run_async(lambda driver: driver.set_progress_handler(is_late, STEPS))

    def begins(connection: Any, *_: object) -> None:  # noqa: ANN401 - that of the library
        connection.info[DEADLINE] = time.monotonic() + timeout_s

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "before_cursor_execute", begins)
