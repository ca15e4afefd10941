"""`mqttcore top`: rates, clients and shards of a running broker, again and again."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mqttcore.cli.api import Api, asking, endpoint_options, path_of
from mqttcore.cli.clients import detail_lines, details
from mqttcore.cli.events import COLUMNS as EVENTS
from mqttcore.cli.failure import OK, USAGE, CommandError
from mqttcore.cli.samples import Sample, as_json, rates, take
from mqttcore.cli.table import Table
from mqttcore.cli.terminal import json_text

if TYPE_CHECKING:
    from mqttcore.cli.screen import Shown, Terminal

SORTS: Final = (
    *("queue", "inflight", "backlog", "connected_at"),
    *("slow", "rate_in", "rate_out"),
)
CLIENTS: Final = 20
"""Number of clients with `--once`."""
WIDTH, HEIGHT = 100, 24
EVENTS_SHOWN: Final = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Shows the broker; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("top", options, show)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore top",
        description="Shows rates, clients and shards of a running broker, refreshed each second."
        " Keys: q quits, s changes the order, / finds clients by a part of their identifier,"
        " k disconnects one, t starts a trace of one; the arrow keys choose one, Enter opens it.",
        parents=[endpoint_options()],
    )
    made.add_argument(
        "--sort", choices=SORTS, default=SORTS[0], help="order of the clients (default: queue)"
    )
    made.add_argument("--find", default="", metavar="TEXT", help="part of the client identifiers")
    made.add_argument(
        "--interval",
        type=interval,
        default=1.0,
        metavar="SECONDS",
        help="interval of the rates (default: 1)",
    )
    made.add_argument(
        "--once", action="store_true", help="print once, after one interval; for scripts"
    )
    return made


def interval(text: str) -> float:
    """A number of seconds above 0."""
    seconds = float(text)
    if not 0.1 <= seconds <= 3_600:
        raise argparse.ArgumentTypeError("seconds are from 0.1 to 3600")
    return seconds


def show(api: Api, options: argparse.Namespace) -> int:
    """Shows the broker."""
    if options.once:
        return print_once(api, options)
    if options.json:
        raise CommandError("--json needs --once", status=USAGE)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("the output is no terminal: use --once", status=USAGE)
    import curses

    from mqttcore.cli.screen import Terminal

    # curses needs a name; each terminal can do what this one can
    os.environ.setdefault("TERM", "vt100")
    try:
        curses.wrapper(lambda window: View(api, options, Terminal(window)).run())
    except curses.error as error:
        text = f"terminal {os.environ['TERM']!r}: {error}; set TERM, as TERM=xterm"
        raise CommandError(text) from error
    return OK


def print_once(api: Api, options: argparse.Namespace) -> int:
    """Prints the broker after one interval."""
    before = take(api, sort=options.sort, find=options.find, limit=CLIENTS)
    time.sleep(options.interval)
    after = take(api, sort=options.sort, find=options.find, limit=CLIENTS)
    found = rates(before, after)
    if options.json:
        print(json_text(as_json(after, found)))
        return OK
    from mqttcore.cli.screen import Shown, lines

    shown = lines(Shown(after, found, options.sort, options.find), WIDTH, HEIGHT)
    print("\n".join(shown[:-1]).rstrip())
    return OK


class View:
    """The full screen: asks the broker each interval, and handles keys."""

    def __init__(self, api: Api, options: argparse.Namespace, terminal: "Terminal") -> None:
        self._api = api
        self._terminal = terminal
        self._sort: str = options.sort
        self._find: str = options.find
        self._interval_s: float = options.interval
        self._note = ""
        self._chosen = ""
        """The client in reverse."""
        self._is_open = False
        """Whether all about it is shown."""
        self._details: list[str] = []
        self._base = self._sample = self._take()
        self._rates = rates(self._base, self._sample)

    def run(self) -> None:
        """Runs until `q` is pressed."""
        due = time.monotonic() + self._interval_s
        while True:
            self._draw(self._note)
            key = self._terminal.key(due - time.monotonic())
            if key == "q":
                return
            self._press(key)
            is_due = time.monotonic() >= due
            if is_due or key:
                self._refresh(with_rates=is_due)
            if is_due:
                due = time.monotonic() + self._interval_s

    def _press(self, key: str) -> None:
        """Handles a key."""
        if key:
            self._note = ""
        if key == "s":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        elif key == "/":
            self._find = self._terminal.ask("find: ", self._draw)
        elif key == "k":
            self._do(kick, self._terminal.ask("kick client: ", self._draw, self._chosen))
        elif key == "t":
            self._do(trace, self._terminal.ask("trace client: ", self._draw, self._chosen))
        else:
            self._move(key)

    def _move(self, key: str) -> None:
        """Chooses a client, opens it, or closes it."""
        if key in ("enter", "escape"):
            self._is_open = key == "enter" and not self._is_open and bool(self._chosen)
        elif key in ("up", "down") and not self._is_open:
            self._chosen = beside(self._chosen, self._listed(), 1 if key == "down" else -1)

    def _listed(self) -> list[str]:
        """The clients on the screen."""
        from mqttcore.cli.screen import visible

        return [one["client_id"] for one in visible(self._shown(""), self._terminal.size[1])]

    def _do(self, action: Callable[[Api, str], str], client: str) -> None:
        """Does something with a client; the last line says what became of it."""
        if not client:
            return
        try:
            self._note = action(self._api, client)
        except CommandError as error:
            self._note = str(error)

    def _refresh(self, *, with_rates: bool) -> None:
        """Queries the broker again; if it does not answer, the last line says so."""
        try:
            if self._is_open:
                self._details = all_about(self._api, self._chosen, self._terminal.size[0])
            self._sample = self._take()
        except CommandError as error:
            self._note = str(error)
            self._is_open = False
            return
        if with_rates:
            self._rates = rates(self._base, self._sample)
            self._base = self._sample
        else:
            # another order or filter; the next rates begin at the sample before
            clients = rates(self._base, self._sample).clients
            self._rates = self._rates._replace(clients=clients)

    def _take(self) -> Sample:
        return take(self._api, sort=self._sort, find=self._find, limit=self._terminal.size[1])

    def _shown(self, note: str) -> "Shown":
        from mqttcore.cli.screen import Shown

        return Shown(self._sample, self._rates, self._sort, self._find, note)

    def _draw(self, note: str) -> None:
        from mqttcore.cli.screen import BACK, first_row, lines, page

        size = self._terminal.size
        if self._is_open:
            self._terminal.draw(page(self._details, note or BACK, *size))
            return
        shown, listed = self._shown(note), self._listed()
        title = first_row(shown) - 1
        chosen = listed.index(self._chosen) + 1 if self._chosen in listed else 0
        self._terminal.draw(lines(shown, *size), (title, title + chosen))


def beside(chosen: str, listed: Sequence[str], step: int) -> str:
    """The client above or below the chosen one; the first one if it is not listed."""
    if not listed:
        return ""
    if chosen not in listed:
        return listed[0]
    return listed[min(max(listed.index(chosen) + step, 0), len(listed) - 1)]


def all_about(api: Api, client: str, width: int) -> list[str]:
    """All about a client, and its recent events, as lines."""
    lines = list(detail_lines(details(api, client), width=width))
    events = api.get("/explain/delivery", {"client": client, "limit": EVENTS_SHOWN})["items"]
    return [*lines, "", *Table(EVENTS, width=width).lines(events)]


def kick(api: Api, client: str) -> str:
    """Disconnects a client; returns a sentence."""
    api.call("DELETE", path_of("clients", client))
    return f"{client} was disconnected"


def trace(api: Api, client: str) -> str:
    """Starts a trace of a client, without payloads, for ten minutes; returns a sentence."""
    started = api.call("POST", "/traces", body={"name": "top", "where": {"client_id": client}})
    return f"to follow it: mqttcore trace tail --all {started['id']}"


if __name__ == "__main__":
    sys.exit(main())
