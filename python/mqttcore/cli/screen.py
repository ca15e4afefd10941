"""The screen of `mqttcore top`: its lines, and a terminal that shows them with curses."""

import codecs
import contextlib
import curses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from mqttcore.cli.api import Json
from mqttcore.cli.samples import Rates, Sample
from mqttcore.cli.table import Column, Table, age, duration
from mqttcore.cli.terminal import printable

PREFIXES: Final = ("", "k", "M", "G", "T")
STEP: Final = 1_000
STUCK_S: Final = 1.0
"""Seconds after which a shard that has not run its timers is shown as late."""
ESCAPE, ENTER, NEW_LINE, BACKSPACE, DELETE = 27, 13, 10, 8, 127
BYTES_END: Final = 0x100
"""Keys from here on are no bytes."""
UTF_8: Final = codecs.getincrementaldecoder("utf-8")
ESCAPE_DELAY_MS: Final = 25
"""Wait of curses for the rest of an escape sequence."""
COLUMNS: Final = (
    Column("CLIENT", lambda client: client["client_id"]),
    Column("USER", lambda client: client["username"]),
    Column("ADDRESS", lambda client: client["address"]),
    Column("FOR", lambda client: age(client["connected_at_ms"]), is_number=True),
    Column("QUEUE", lambda client: client["queue"]["messages"], is_number=True),
    Column("OUT", lambda client: client["inflight"]["out"], is_number=True),
    Column("BACKLOG", lambda client: short(client["backlog_bytes"]), is_number=True),
    Column("IN/S", lambda client: rate(client, "in"), is_number=True),
    Column("OUT/S", lambda client: rate(client, "out"), is_number=True),
    Column("WORST", lambda client: worst(client), is_number=True),
)
WIDE: Final = 100
"""Columns of a terminal that has room for `BYTES`, too."""
BYTES: Final = (
    Column("B/S IN", lambda client: byte_rate(client, "in"), is_number=True),
    Column("B/S OUT", lambda client: byte_rate(client, "out"), is_number=True),
)
HOOKS: Final = 3
"""The most hooks that a screen shows."""
HELP: Final = "q quit  s sort  / find  k kick  t trace  arrows, Enter: one client"
BACK: Final = "q quit  k kick  t trace  Enter: all clients"
NAMES: Final = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_ENTER: "enter",
    ENTER: "enter",
    NEW_LINE: "enter",
    ESCAPE: "escape",
}
"""Keys that are no characters."""


class Shown(NamedTuple):
    """The content of the screen."""

    sample: Sample
    rates: Rates
    sort: str
    find: str = ""
    note: str = ""
    """The last line: an error, a question, or the keys."""


def short(value: float) -> str:
    """A number in at most five characters, as ``12.3k``."""
    for prefix in PREFIXES:
        if value < STEP or prefix == PREFIXES[-1]:
            digits = 0 if not prefix or value >= STEP / 10 else 1
            return f"{value:.{digits}f}{prefix}"
        value /= STEP
    raise AssertionError("the last prefix has returned")


def rate(client: Json, direction: str) -> str | None:
    """Packets a second of a connected client."""
    if not client["rates"]:
        return None
    packets: float = client["rates"][direction]
    return f"{packets:.1f}" if packets < STEP / 100 else short(packets)


def byte_rate(client: Json, direction: str) -> str | None:
    """Bytes a second of a connection that two samples have."""
    return short(client["byte_rates"][direction]) if client["byte_rates"] else None


def worst(client: Json) -> str | None:
    """The slowest measured delivery of the last ten minutes, in at most five characters."""
    if not client["latency"]:
        return None
    worst_ms: float = client["latency"]["worst_ms"]
    return f"{worst_ms:.1f}ms" if worst_ms < STEP / 10 else f"{worst_ms / STEP:.1f}s"


def lines(shown: Shown, width: int, height: int) -> list[str]:
    """The lines of a screen of this size; the last one is the note."""
    above = [line[: max(width, 1)] for line in summary(shown)]
    title = f"clients by {shown.sort}"
    if shown.find:
        title += f", with {printable(shown.find)!r}"
    columns = (*COLUMNS, *BYTES) if width >= WIDE else COLUMNS
    clients = Table(columns, width=width).lines(visible(shown, height))
    return page([*above, "", title, *clients], shown.note or HELP, width, height)


def page(body: Sequence[str], note: str, width: int, height: int) -> list[str]:
    """The lines of a screen of this size: the first ones of ``body``, and the note."""
    above = body[: max(height - 1, 0)]
    last = printable(note)
    return [line[:width] for line in (*above, *[""] * (height - 1 - len(above)), last)]


def first_row(shown: Shown) -> int:
    """The row of the first client: below the summary, an empty line and two titles."""
    return len(summary(shown)) + 3


def visible(shown: Shown, height: int) -> list[Json]:
    """The clients that a screen of this height has room for."""
    return shown.rates.clients[: max(height - 1 - first_row(shown), 0)]


def summary(shown: Shown) -> list[str]:
    """The lines above the clients."""
    found, now = shown.sample.overview, shown.rates
    clients, memory = found["clients"], found["memory"]
    to_come = f", {clients['to_come']} to be loaded" if clients["to_come"] else ""
    parts = [
        f"mqttcore {found['version']} on {printable(found['node'])}"
        f"  up {duration(found['uptime_s'])}"
        f"  {time.strftime('%H:%M:%S', time.localtime(found['now_ms'] / 1_000))}"
        f"  durability: {found['durability']}",
        f"clients    {clients['connected']} connected, {clients['sessions']} sessions{to_come};"
        f" {found['subscriptions']} subscriptions, {found['retained_messages']} retained",
        f"in         {short(now.received)} msg/s, {short(now.bytes_in)}B/s",
        f"out        {short(now.sent)} msg/s, {short(now.bytes_out)}B/s",
        f"dropped    {reasons(now.dropped)}",
        f"refused    {reasons(now.refused)}",
        f"memory     {short(memory['used_bytes'])}B of {short(memory['budget_bytes'])}B;"
        f" disk pressure: {found['disk_pressure']}",
        f"shards     {shards(shown.sample.shards)}",
    ]
    if store := found["store"]:
        p50, p99 = (ms(store[f"sync_{part}_us"] / 1e6) for part in ("p50", "p99"))
        parts.append(f"store      sync p50 {p50}, p99 {p99}")
    if shown.sample.hooks:
        parts.append(f"hooks      {hooks(shown.sample.hooks)}")
    parts += [f"WARNING    {warning['text']}: {warning['fix']}" for warning in found["warnings"]]
    return list(map(printable, parts))


def ms(seconds: float) -> str:
    """A short time."""
    return f"{seconds * 1_000:.3g} ms"


def hooks(found: Sequence[Json]) -> str:
    """The hooks that keep clients waiting: the slowest first."""
    ordered = sorted(found, key=lambda hook: -(hook["run"]["p99_us"] or 0))
    shown = [hook_text(hook) for hook in ordered if hook["run"]["count"] or hook["paused"]]
    return "; ".join(shown[:HOOKS]) or "none was called"


def hook_text(hook: Json) -> str:
    """A hook with the time of its calls, what waits for it, and whether it is called at all."""
    p99_us = hook["run"]["p99_us"]
    text = f"{hook['plugin'].rpartition('.')[2]}.{hook['hook']}"
    if p99_us is not None:
        text += f" p99 {ms(p99_us / 1e6)}"
    if hook["waiting"]:
        text += f", {hook['waiting']} waiting"
    return text + (", paused" if hook["paused"] else "")


def reasons(rates: Mapping[str, float]) -> str:
    """Rates by reason, the highest first."""
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {short(rate)}/s" for reason, rate in ordered) or "nothing"


def shards(ages: Sequence[float]) -> str:
    """The shards that are late."""
    if not ages:
        return "unknown: the metrics are off, or the key does not allow them"
    late = [f"{number} is {age:.1f} s late" for number, age in enumerate(ages) if age > STUCK_S]
    return f"{len(ages)}, " + (", ".join(late) or "none is late")


class Terminal:
    """The terminal: draws screens, and reads keys and texts."""

    def __init__(self, window: "curses.window") -> None:
        self._window = window
        window.keypad(True)
        if hasattr(curses, "set_escdelay"):
            curses.set_escdelay(ESCAPE_DELAY_MS)
        with contextlib.suppress(curses.error):  # the terminal cannot hide it
            curses.curs_set(0)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        height, width = self._window.getmaxyx()
        return width, height

    def draw(self, text: Sequence[str], reversed_rows: Sequence[int] = ()) -> None:
        """Shows the lines; some rows are in reverse."""
        self._window.erase()
        for row, line in enumerate(text):
            style = curses.A_REVERSE if row in reversed_rows else curses.A_NORMAL
            with contextlib.suppress(curses.error):  # the cursor cannot go behind the last cell
                self._window.addstr(row, 0, line, style)
        self._window.refresh()

    def key(self, timeout_s: float) -> str:
        """A key that was pressed in time, or its name; empty if none was."""
        self._window.timeout(max(int(timeout_s * 1_000), 0))
        number = self._window.getch()
        if number in NAMES:
            return NAMES[number]
        return chr(number) if 0 < number < curses.KEY_MIN else ""

    def ask(self, question: str, draw: Callable[[str], None], given: str = "") -> str:
        """Reads a text in the last line, which begins as ``given``; empty after Escape."""
        decoder = UTF_8("ignore")
        while True:
            draw(f"{question}{printable(given)}_")
            self._window.timeout(-1)
            number = self._window.getch()
            if number in (ENTER, NEW_LINE, curses.KEY_ENTER):
                return given
            if number == ESCAPE or number < 0:  # below 0: the terminal is gone
                return ""
            if number in (BACKSPACE, DELETE, curses.KEY_BACKSPACE):
                given = given[:-1]
            elif number < BYTES_END:
                mark = decoder.decode(bytes([number]))
                given += mark if mark.isprintable() else ""
