"""Progress bars in a terminal: for each query, how much of its stream it has read."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Display

from mqttcore.pipeline.progress import Progress

__all__ = ["Bars"]


class Bars:
    """One bar for each query; while this is open, it uses the last lines of the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        """Draws on ``console``; None: on standard error."""
        self._display = Display(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
            console=console or Console(stderr=True),
        )
        self._queries: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._display.stop()

    def report(self, progress: Progress) -> None:
        """Moves the bar of a query."""
        if progress.query not in self._queries:
            self._queries[progress.query] = self._display.add_task(progress.query, told="")
        query = self._queries[progress.query]
        self._display.advance(query, progress.rows)
        read = self._display.tasks[query].completed
        total = read + progress.lag_messages
        self._display.update(query, total=total, told=" | ".join(progress.figures()))
