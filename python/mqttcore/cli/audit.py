"""`mqttcore audit verify|show DIR`: the audit log of a data folder.

Each line of the log has the hash of the line before it, so a line that was changed, inserted or
removed is found. Lines that were removed at the end are found with ``--head``, the hash that an
earlier ``verify`` printed. The broker may run meanwhile.

Exit status: 0 all is well, 1 the log cannot be read or was changed, 2 the command line is wrong.
"""

import argparse
import hashlib
import itertools
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqttcore.errors import MqttError

FIRST: Final = "0" * 64
"""What the first line of all has in place of a hash."""


class AuditError(MqttError):
    """The audit log cannot be read, or was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the log."""

    place: str
    """File and number."""
    hash: str
    fields: dict[str, Any]  # values of JSON


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (AuditError, OSError) as error:
        print(f"mqttcore audit: {error}", file=sys.stderr)
        return 1
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
    checked.set_defaults(run=verify)
    shown = commands.add_parser("show", help="print the changes, oldest first")
    shown.add_argument("directory", type=pathlib.Path, metavar="DIR", help="the data folder")
    shown.add_argument("--since", default="", metavar="TIME", help="as 2026-11-23 or 2026-11-23T08")
    shown.add_argument("--who", default="", metavar="TEXT", help="a part of who made the change")
    shown.add_argument("--json", action="store_true", help="print the lines as they are")
    shown.set_defaults(run=show)
    return made


def verify(options: argparse.Namespace) -> int:
    """Checks the chain of hashes."""
    found = list(lines(options.directory))
    for before, after in itertools.pairwise(found):
        if after.fields.get("prev") != before.hash:
            raise AuditError(
                f"{after.place}: it does not follow the line before: one of them was changed, or"
                " lines between them were removed"
            )
    if options.head is not None and all(line.hash != options.head for line in found):
        raise AuditError(
            f"{options.directory}: no line has the hash {options.head}: lines were removed at the"
            " end, or the log was written anew"
        )
    if not found:
        print("no entries")
        return 0
    lost = sum(line.fields.get("lost", 0) for line in found)
    if found[0].fields.get("prev") != FIRST:
        print(f"older entries were removed; the first one left: {found[0].place}")
    print(f"{len(found)} entries; {lost} were lost because they could not be written")
    print(f"head: {found[-1].hash}")
    return 0


def show(options: argparse.Namespace) -> int:
    """Prints the changes."""
    for line in lines(options.directory):
        fields = line.fields
        if str(fields.get("ts", "")) < options.since or options.who not in str(fields.get("who")):
            continue
        print(json.dumps(fields) if options.json else printable(text_of(fields)))
    return 0


def text_of(fields: dict[str, Any]) -> str:
    """A line for people."""
    details = " ".join(f"{name}={value}" for name, value in fields.get("details", {}).items())
    way = " ".join(str(fields[name]) for name in ("how", "ip") if name in fields)
    parts = (str(fields.get("action")), str(fields.get("target", "")), details)
    what, who = " ".join(part for part in parts if part), fields.get("who")
    lost = f" ({fields['lost']} entries before it were lost)" if "lost" in fields else ""
    return f"{fields.get('ts')} {who} ({way}): {what}: {fields.get('result')}{lost}"


def printable(text: str) -> str:
    """Escapes characters that a terminal may obey."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def lines(directory: pathlib.Path) -> Iterator[Line]:
    """The lines of all files, oldest first.

    A last line without an end is being written, or was when the broker was killed: it is left out.

    Raises:
        AuditError: there is no audit log, or a line is not one of it.
    """
    folder = directory / "audit"
    if not folder.is_dir():
        raise AuditError(f"{folder}: there is no audit log")
    for file in sorted(folder.glob("*.jsonl")):
        text = file.read_bytes()
        for number, line in enumerate(text.split(b"\n")[:-1], start=1):
            place = f"{file}:{number}"
            yield Line(
                place=place, hash=hashlib.sha256(line).hexdigest(), fields=fields_of(line, place)
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
