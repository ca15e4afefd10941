"""Tables for terminals: columns as wide as their cells, cut to the width of the terminal."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from mqttcore.cli.terminal import printable

GAP: Final = "  "
WIDE: Final = ("W", "F")
"""East Asian widths of characters that take two columns."""
MARKS: Final = ("Mn", "Me")
"""Categories of characters that are drawn over the one before them."""
NARROWEST: Final = 8
"""Minimum characters of a cut column."""
FOR_EVER: Final = 0xFFFF_FFFF
"""The Session Expiry Interval of sessions that do not expire."""
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


class Column(NamedTuple):
    """A column."""

    title: str
    cell: Callable[[Any], object]  # an item of the list, with the type that the caller knows
    is_number: bool = False
    """Numbers are right-aligned and never cut."""


class Table:
    """Prints items as rows; the first page decides how wide the columns are."""

    def __init__(self, columns: Sequence[Column], *, width: int | None = None) -> None:
        self._columns = columns
        self._width = terminal_width() if width is None else width
        self._widths: list[int] = []

    def lines(self, items: Iterable[object]) -> Iterator[str]:
        """The lines of a page; the first page begins with the titles."""
        rows = [[text(column.cell(item)) for column in self._columns] for item in items]
        if not self._widths:
            titles = [column.title for column in self._columns]
            self._widths = self._fit([titles, *rows])
            yield self._line(titles)
        yield from map(self._line, rows)

    def _fit(self, rows: Sequence[Sequence[str]]) -> list[int]:
        widths = [max(map(width_of, cells)) for cells in zip(*rows, strict=True)]
        if not self._width:
            return widths
        flexible = [place for place, column in enumerate(self._columns) if not column.is_number]
        while sum(widths) + len(GAP) * (len(widths) - 1) > self._width:
            widest = max(flexible, key=lambda place: widths[place])
            if widths[widest] <= NARROWEST:
                break
            widths[widest] -= 1
        return widths

    def _line(self, cells: Sequence[str]) -> str:
        parts = []
        for cell, width, column in zip(cells, self._widths, self._columns, strict=True):
            if column.is_number:
                parts.append(cell.rjust(width))
            else:
                shown = cut(cell, width) if self._width else cell
                parts.append(shown + " " * (width - width_of(shown)))
        return GAP.join(parts).rstrip()


def terminal_width() -> int:
    """The width of the terminal; 0 for other outputs, whose cells are not cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def cut(cell: str, width: int) -> str:
    """The cell in at most ``width`` columns of a terminal."""
    if width_of(cell) <= width:
        return cell
    if cell.isascii():
        return f"{cell[: width - 1]}…"
    left, end = width - 1, 0
    while (left := left - width_of(cell[end])) >= 0:
        end += 1
    return f"{cell[:end]}…"


def width_of(text: str) -> int:
    """The columns of a text on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata  # most texts are ASCII

    return sum(
        1 + (unicodedata.east_asian_width(mark) in WIDE)
        for mark in text
        if unicodedata.category(mark) not in MARKS
    )


def text(value: object) -> str:
    """A value as a cell; control characters of clients do not reach the terminal."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def duration(seconds: float) -> str:
    """A time span in two units, as ``2d3h``."""
    rest, parts = max(int(seconds), 0), []
    for size, unit in UNITS:
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join([*parts, f"{rest}s"][:2])


def expiry(seconds: int) -> str:
    """A Session Expiry Interval."""
    return "never" if seconds == FOR_EVER else duration(seconds)


def age(since_ms: int | None) -> str | None:
    """The time since a moment."""
    return None if since_ms is None else duration(time.time() - since_ms / 1_000)


def fact_lines(facts: Iterable[tuple[str, object]]) -> list[str]:
    """Names and values, one a line."""
    shown = [(name, text(value)) for name, value in facts]
    width = max(len(name) for name, _ in shown)
    return [f"{name:{width}}  {value}" for name, value in shown]
