"""`mqttcore trace`: packets of chosen clients of a running broker."""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

from mqttcore.cli.api import Api, Json, asking, endpoint_options, missing_parts, path_of
from mqttcore.cli.failure import OK, USAGE, CommandError
from mqttcore.cli.listing import natural
from mqttcore.cli.table import Column, Table, duration
from mqttcore.cli.terminal import json_text, printable, printable_json

SUFFIXES: Final = {".json": "json", ".jsonl": "json", ".txt": "text", ".pcapng": "pcapng"}
COLUMNS: Final = (
    Column("ID", lambda trace: trace["id"]),
    Column("NAME", lambda trace: trace["name"]),
    Column("WHERE", lambda trace: where_text(trace["where"])),
    Column("PAYLOAD", lambda trace: trace["payload"]),
    Column("ACTIVE", lambda trace: trace["active"]),
    Column("LASTED", lambda trace: duration((trace["ends_ms"] - trace["begun_ms"]) / 1_000)),
    Column("PACKETS", lambda trace: trace["packets"], is_number=True),
    Column("DROPPED", lambda trace: trace["dropped"], is_number=True),
    Column("BYTES", lambda trace: trace["bytes"], is_number=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("trace", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore trace",
        description="Records packets of chosen clients of a running broker, in its memory and for a"
        " limited time. Passwords and authentication data are left out.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, words: str, run: Callable[[Api, argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        parents = [endpoint_options()]
        added = commands.add_parser(name, help=words, description=words, parents=parents)
        added.set_defaults(run=run)
        return added

    start = command("start", "start a trace, print its identifier", start_trace)
    add_conditions(start)
    add_limits(start)
    command("list", "list traces", list_traces)
    tail = command("tail", "print packets as they come, until the trace ends", tail_trace)
    add_identifier(tail)
    tail.add_argument("--all", action="store_true", help="begin with the stored packets")
    save = command("save", "write the packets of a trace to a file", save_trace)
    add_identifier(save)
    save.add_argument(
        "file",
        type=pathlib.Path,
        metavar="FILE",
        help="file; its suffix is the format: .json (lines), .txt, or .pcapng for Wireshark",
    )
    stop = command("stop", "end a trace and remove its packets", stop_trace)
    add_identifier(stop)
    stop.add_argument("--keep", action="store_true", help="keep its packets for an hour")
    return made


def add_limits(start: argparse.ArgumentParser) -> None:
    """Adds the name of a trace, and the limits of its time and memory."""
    start.add_argument("--name", default="", help="name of the trace")
    start.add_argument(
        "--for",
        dest="for_s",
        type=natural,
        default=600,
        metavar="SECONDS",
        help="duration of the trace, up to 86400 (default: 600)",
    )
    start.add_argument(
        "--bytes",
        type=natural,
        metavar="COUNT",
        help="maximum memory for packets (default: 64 MiB); the oldest are removed",
    )
    start.add_argument(
        "--packets",
        type=natural,
        metavar="COUNT",
        help="maximum number of packets (default: 100000); the oldest are removed",
    )
    start.add_argument(
        "--payload",
        default="none",
        metavar="PART",
        help="stored part of payloads: none, head:64 (the first 64 bytes) or all (default: none)",
    )


def add_conditions(start: argparse.ArgumentParser) -> None:
    """Adds the options that choose packets; all that are given must hold."""
    group = start.add_argument_group("which packets", "without: those of all clients")
    group.add_argument(
        "--client", metavar="PATTERN", help="client identifier; * matches any characters, ? one"
    )
    group.add_argument("--user", metavar="NAME", help="user name")
    group.add_argument("--ip", metavar="NETWORK", help="address or network, as 10.0.0.0/8")
    group.add_argument(
        "--topic",
        metavar="FILTER",
        help="messages and subscriptions on topics that this filter matches",
    )


def add_identifier(command: argparse.ArgumentParser) -> None:
    """Adds the identifier of a trace."""
    command.add_argument("id", metavar="ID", help="identifier of the trace")


def start_trace(api: Api, options: argparse.Namespace) -> int:
    """Starts a trace; prints its identifier."""
    where = {
        "client_id": options.client,
        "username": options.user,
        "ip": options.ip,
        "topic": options.topic,
    }
    body = {
        "name": options.name,
        "where": {name: value for name, value in where.items() if value is not None},
        "for_s": options.for_s,
        "payload": options.payload,
    }
    limits = {"bytes": options.bytes, "packets": options.packets}
    body |= {name: value for name, value in limits.items() if value is not None}
    started = api.call("POST", "/traces", body=body)
    print(json_text(started) if options.json else started["id"])
    return OK


def list_traces(api: Api, options: argparse.Namespace) -> int:
    """Prints the traces."""
    found = api.get("/traces")
    if options.json:
        print(json_text(found))
        return OK
    for line in Table(COLUMNS).lines(found["items"]):
        print(line)
    if found["partial"]:
        print(missing_parts(found["partial"]), file=sys.stderr)
    return OK


def tail_trace(api: Api, options: argparse.Namespace) -> int:
    """Prints packets as they arrive."""
    query: dict[str, str | int] = {"format": "json" if options.json else "text"}
    if options.all:
        query["after"] = 0
    for kind, data in api.events(path_of("traces", options.id, "live"), query):
        if kind == "end":
            return OK
        if kind == "lost" and not options.json:
            print(f"-- {json.loads(data)['lost']} packets are missing here --", file=sys.stderr)
        else:
            print(printable_json(data) if options.json else printable(data), flush=True)
    raise CommandError("the broker has ended the stream, and the trace may go on")


def save_trace(api: Api, options: argparse.Namespace) -> int:
    """Writes a file."""
    form = SUFFIXES.get(options.file.suffix)
    if form is None:
        text = f"{options.file}: the name of the file ends with {', '.join(SUFFIXES)}"
        raise CommandError(text, status=USAGE)
    pieces = api.pieces(path_of("traces", options.id, "file"), {"format": form})
    part = options.file.with_name(f"{options.file.name}.part")
    count = 0
    try:
        # payloads are not for everybody
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in pieces:
                count += file.write(piece)
        part.replace(options.file)
    except OSError as error:
        raise CommandError(f"cannot write {options.file}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    if options.json:
        print(json_text({"file": str(options.file), "bytes": count}))
    return OK


def stop_trace(api: Api, options: argparse.Namespace) -> int:
    """Ends a trace."""
    api.call("DELETE", path_of("traces", options.id), query={"keep": options.keep})
    if options.json:
        print(json_text({"id": options.id, "kept": options.keep}))
    return OK


def where_text(where: Json) -> str:
    """The conditions of a trace."""
    return " ".join(f"{name}={value}" for name, value in where.items() if value) or "all"


if __name__ == "__main__":
    sys.exit(main())
