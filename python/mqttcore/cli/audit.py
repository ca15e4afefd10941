"""`mqttcore audit verify|show|tail`: the audit log of a data folder, or of a running broker.

Each line of the log has the hash of the line before it, so a line that was changed, inserted or
removed is found. Lines that were removed at the end are found with ``--head``, the hash that an
earlier ``verify`` printed. The broker may run meanwhile.

Exit status: 0 all is well, 1 the log cannot be read or was changed, 2 the command line is wrong.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqttcore.cli.api import Api, Json, add_command, asking
from mqttcore.cli.failure import NOT_DONE, OK, USAGE, tell
from mqttcore.cli.listing import natural
from mqttcore.cli.terminal import json_text, printable
from mqttcore.errors import MqttError

NAME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(_\d{6})?\.jsonl", re.ASCII)
"""Files with other names are not of the log."""
FIRST: Final = "0" * 64
"""The hash of the predecessor in the first line."""
PAUSE_S: Final = 0.25
"""Time between two looks for new lines."""
ASK_S: Final = 1.0
"""Time between two requests for new changes."""


class AuditError(MqttError):
    """The audit log cannot be read, or was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the log."""

    place: str
    """File and number."""
    hash: str
    fields: dict[str, Any]  # values of JSON
    size: int
    """Bytes, with the end of the line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.directory is None:
        return asking("audit", options, options.of_broker)
    if options.run is not verify and (options.data or options.url):
        tell("audit", f"give a folder or a broker, not both: {options.directory}")
        return USAGE
    try:
        status: int = options.run(options)
    except BrokenPipeError:
        raise
    except (AuditError, OSError) as error:
        tell("audit", str(error))
        return NOT_DONE
    return status


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore audit", description="Reads the audit log of a data folder."
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    checked = commands.add_parser("verify", help="check that no line was changed or removed")
    checked.add_argument("directory", type=pathlib.Path, metavar="DIR", help="the data folder")
    checked.add_argument(
        "--head", metavar="HASH", help="fail unless the log still has the line with this hash"
    )
    checked.add_argument("--json", action="store_true", help="print JSON")
    checked.set_defaults(run=verify)
    shown = add_command(commands, "show", "print the changes, oldest first")
    shown.add_argument("--since", default="", metavar="TIME", help="first time, as 2026-11-23")
    shown.set_defaults(run=show, of_broker=show_of_broker)
    tailed = add_command(commands, "tail", "print the latest changes, then each new one")
    tailed.add_argument(
        "--lines",
        type=natural,
        default=10,
        metavar="COUNT",
        help="number of changes to begin with, of a folder from its two latest files (default: 10)",
    )
    tailed.set_defaults(run=tail, of_broker=tail_of_broker)
    for each in (shown, tailed):
        each.add_argument(
            "directory",
            nargs="?",
            type=pathlib.Path,
            metavar="DIR",
            help="the data folder; default: ask the running broker",
        )
        each.add_argument(
            "--who", default="", metavar="TEXT", help="part of the name of the operator"
        )
    return made


def verify(options: argparse.Namespace) -> int:
    """Checks the chain of hashes."""
    first: Line | None = None
    last: Line | None = None
    entries = lost = 0
    has_head = options.head is None
    for line in lines(options.directory):
        if last is not None and line.fields.get("prev") != last.hash:
            raise AuditError(
                f"{line.place}: it does not follow the line before: one of them was changed, or"
                " lines between them were removed"
            )
        first, last = first or line, line
        entries, lost = entries + 1, lost + line.fields.get("lost", 0)
        has_head = has_head or line.hash == options.head
    if not has_head:
        raise AuditError(
            f"{options.directory}: no line has the hash {options.head}: lines were removed at the"
            " end, or the log was written anew"
        )
    head = None if last is None else last.hash
    found: dict[str, Any] = {"entries": entries, "lost": lost, "head": head}
    found["first"] = None if first is None else first.place
    found["older_removed"] = first is not None and first.fields.get("prev") != FIRST
    found["incomplete"] = list(map(str, incomplete(options.directory)))
    print(json_text(found) if options.json else verified(found))
    return OK


def verified(found: dict[str, Any]) -> str:
    """A verified log for people."""
    if found["head"] is None:
        return "no entries"
    lines = []
    if found["older_removed"]:
        lines.append(f"older entries were removed; the first one left: {found['first']}")
    lines += [
        f"{file} does not end in a complete line: a crash left a part of one, or damage"
        for file in found["incomplete"]
    ]
    lines.append(
        f"{found['entries']} entries; {found['lost']} were lost because they could not be written"
    )
    return "\n".join(map(printable, [*lines, f"head: {found['head']}"]))


def show(options: argparse.Namespace) -> int:
    """Prints the changes."""
    for line in lines(options.directory):
        if str(line.fields.get("ts", "")) >= options.since and is_of(options.who, line):
            print(line_of(line, options))
    return OK


def show_of_broker(api: Api, options: argparse.Namespace) -> int:
    """Prints the changes that a running broker has recorded."""
    query = {"since": options.since or None, "who": options.who or None}
    newest_first = [item for page in api.pages("/audit", query) for item in page["items"]]
    for item in reversed(newest_first):
        print_item(item, options)
    return OK


def tail_of_broker(api: Api, options: argparse.Namespace) -> int:
    """Prints the latest changes of a running broker and each new one, until Ctrl-C."""
    for item in follow_broker(api, last=options.lines, who=options.who):
        print_item(item, options)
    return OK


def follow_broker(
    api: Api, *, last: int, who: str, wait: Callable[[], None] = lambda: time.sleep(ASK_S)
) -> Iterator[Json]:
    """The ``last`` changes of a running broker, then each new one, for ever."""
    query = {"who": who or None}
    pages = api.pages("/audit", query, limit=last or 1)
    newest_first = [item for page in pages for item in page["items"]]
    # a damaged line has no time to continue from; `verify` finds it
    newest = next((item for item in newest_first if not item["is_damaged"]), None)
    yield from reversed(newest_first[:last])
    while True:
        wait()
        since = {"since": newest["ts"]} if newest else {}
        added = []
        for item in (item for page in api.pages("/audit", query | since) for item in page["items"]):
            if item == newest:
                break
            if not item["is_damaged"]:
                added.append(item)
        newest = next(iter(added), newest)
        yield from reversed(added)


def print_item(item: Json, options: argparse.Namespace) -> None:
    """Prints an entry of the API, as JSON or for people."""
    print(json_text(item) if options.json else printable(text_of_item(item)), flush=True)


def text_of_item(item: Json) -> str:
    """A line for people about an entry of the API."""
    if item["is_damaged"]:
        return "a damaged line: mqttcore audit verify DIR on the broker's machine names it"
    return text_of({name: value for name, value in item.items() if value})


def tail(options: argparse.Namespace) -> int:
    """Prints the latest changes and each new one, until Ctrl-C."""
    wanted = functools.partial(is_of, options.who)
    for line in follow(options.directory, last=options.lines, is_wanted=wanted):
        print(line_of(line, options), flush=True)
    return OK


def is_of(who: str, line: Line) -> bool:
    """Whether the name of the operator contains ``who``."""
    return who in str(line.fields.get("who"))


def line_of(line: Line, options: argparse.Namespace) -> str:
    """A change as JSON, or for people."""
    return json.dumps(line.fields) if options.json else printable(text_of(line.fields))


def text_of(fields: dict[str, Any]) -> str:
    """A line for people."""
    details = " ".join(f"{name}={value}" for name, value in fields.get("details", {}).items())
    way = " ".join(str(fields[name]) for name in ("how", "ip") if name in fields)
    parts = (str(fields.get("action")), str(fields.get("target", "")), details)
    what, who = " ".join(part for part in parts if part), fields.get("who")
    lost = f" ({fields['lost']} entries before it were lost)" if "lost" in fields else ""
    return f"{fields.get('ts')} {who} ({way}): {what}: {fields.get('result')}{lost}"


def lines(directory: pathlib.Path) -> Iterator[Line]:
    """The lines of all files, oldest first.

    A last line without an end is being written, or was when the broker was killed: it is left out.

    Raises:
        AuditError: there is no audit log, or a line is not one of it.
    """
    for file in files_of(folder_of(directory)):
        # The broker may remove the oldest file meanwhile; a file that is missing between others
        # breaks the chain.
        with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
            yield from lines_of(opened, file)


def follow(
    directory: pathlib.Path,
    *,
    last: int,
    is_wanted: Callable[[Line], bool],
    wait: Callable[[], None] = lambda: time.sleep(PAUSE_S),
) -> Iterator[Line]:
    """The ``last`` lines of the two latest files, then each new line, for ever.

    Raises:
        AuditError: there is no audit log, or a line is not one of it.
    """
    added = Added(folder_of(directory))
    yield from deque(filter(is_wanted, added.lines()), maxlen=last)
    while True:
        wait()
        yield from filter(is_wanted, added.lines())


class Added:
    """The lines that were added to a log since they were read last."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._name = next((file.name for file in files_of(folder)[-2:]), "")
        self._read_bytes = self._read_lines = 0

    def lines(self) -> Iterator[Line]:
        """Reads them."""
        for file in files_of(self._folder):
            if file.name < self._name:
                continue
            if file.name > self._name:
                self._name, self._read_bytes, self._read_lines = file.name, 0, 0
            with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
                opened.seek(self._read_bytes)
                for line in lines_of(opened, file, after=self._read_lines):
                    self._read_bytes += line.size
                    self._read_lines += 1
                    yield line


def folder_of(directory: pathlib.Path) -> pathlib.Path:
    """The folder of the log.

    Raises:
        AuditError: there is none.
    """
    folder = directory / "audit"
    if not folder.is_dir():
        raise AuditError(f"{folder}: there is no audit log")
    return folder


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of the log, oldest first."""
    return sorted(file for file in folder.iterdir() if NAME.fullmatch(file.name))


def incomplete(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files that do not end in a complete line; the latest may be just being written."""
    for file in files_of(directory / "audit")[:-1]:
        with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
            if opened.seek(0, os.SEEK_END):
                opened.seek(-1, os.SEEK_END)
                if opened.read() != b"\n":
                    yield file


def lines_of(opened: Iterable[bytes], file: pathlib.Path, *, after: int = 0) -> Iterator[Line]:
    """The complete lines of a file; ``after`` lines of it were read before."""
    for number, whole in enumerate(opened, start=after + 1):
        line = whole.removesuffix(b"\n")
        if line == whole:
            return
        place = f"{file}:{number}"
        yield Line(
            place=place,
            hash=hashlib.sha256(line).hexdigest(),
            fields=fields_of(line, place),
            size=len(whole),
        )


def fields_of(line: bytes, place: str) -> dict[str, Any]:
    """Reads a line.

    Raises:
        AuditError: it is not one of the log.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AuditError(f"{place}: this is no line of an audit log: {error}") from error
    if not isinstance(fields, dict):
        raise AuditError(f"{place}: this is no line of an audit log")
    return fields
