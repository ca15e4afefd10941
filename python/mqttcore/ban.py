"""`mqttcore ban add|lift|list`: bans of a running broker.

With a folder of data, it asks the control socket there, which needs no ``[http]``; with ``--url``
or ``--data``, the HTTP API. A ban names a client identifier, a regular expression of client
identifiers, a user name, or an address or network. It outlives the broker.

Exit status: 0 all is well, 1 it cannot be done, or there was no such ban, 2 the command line is
wrong; of the HTTP API also 3 it cannot be reached, 4 it refuses.
"""

import argparse
import base64
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mqttcore import control
from mqttcore.cli.api import asking, endpoint_options, path_of
from mqttcore.cli.failure import NOT_DONE, OK, USAGE
from mqttcore.cli.listing import natural
from mqttcore.errors import StoreError

if TYPE_CHECKING:
    from mqttcore.cli.api import Api, Json

TARGETS = {
    "--client-id": ("ID", "clients with this identifier"),
    "--client-id-regex": ("REGEX", "clients whose whole identifier this matches"),
    "--user": ("NAME", "clients with this user name"),
    "--address": ("NETWORK", "clients at an address, or in a network such as 10.0.0.0/8"),
}


KINDS = {"client_id": "client_id", "client_id_regex": "client_id_regex", "user": "username"}
"""Kinds of the HTTP API by option; ``--address`` is ``ip``."""
MORE = ("url", "data", "key_file", "cafile", "json")
"""The options that only the HTTP API takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    given = parser().parse_args(arguments)
    if given.directory is None:
        return asking("ban", given, by_api)
    if given.url or given.data or given.key_file or given.cafile:
        print("mqttcore ban: give DIR, or --url or --data, not both", file=sys.stderr)
        return USAGE
    options = vars(given)
    return by_socket(options.pop("directory"), options.pop("action"), options)


def by_api(api: "Api", options: argparse.Namespace) -> int:
    """Runs one command over the HTTP API; returns the exit status."""
    if options.action == "bans":
        bans = [ban for page in api.pages("/bans", {}, limit=0) for ban in page["items"]]
        return print_answer({"bans": bans})
    kind, value = target_of(options)
    if options.action == "ban":
        ban: Json = {"kind": kind, "value": value, "why": options.reason}
        if options.seconds is not None:
            ban["duration_s"] = options.seconds
        return print_answer({"disconnected": api.call("POST", "/bans", body=ban)["disconnected"]})
    number = base64.urlsafe_b64encode(f"{kind} {value}".encode()).decode().rstrip("=")
    api.call("DELETE", path_of("bans", number))
    return print_answer({"lifted": True})


def target_of(options: argparse.Namespace) -> tuple[str, str]:
    """Kind and value of a ban for the HTTP API."""
    for option, kind in KINDS.items():
        value: str | None = getattr(options, option)
        if value is not None:
            return kind, value
    return "ip", options.address


def print_answer(answer: Mapping[str, object]) -> int:
    """Prints an answer."""
    print(json.dumps(answer, indent=2))
    return OK


def by_socket(directory: pathlib.Path, action: str, options: dict[str, Any]) -> int:
    """Runs one command over the control socket; returns the exit status."""
    for name in MORE:
        options.pop(name)
    try:
        answer = control.request(directory, action, json.dumps(options))
    except control.NobodyThereError:
        print(f"mqttcore ban: {directory}: no broker runs on this folder", file=sys.stderr)
        return NOT_DONE
    except (StoreError, OSError) as error:
        print(f"mqttcore ban: {directory}: {error}", file=sys.stderr)
        return NOT_DONE
    if action == "unban" and not answer:
        print("mqttcore ban: there is no such ban", file=sys.stderr)
        return NOT_DONE
    names = {"ban": "disconnected", "unban": "lifted", "bans": "bans"}
    return print_answer({names[action]: answer})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore ban",
        description="Bans clients of a running broker, over the control socket in its data folder,"
        " or over the HTTP API.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, action, words in (
        ("add", "ban", "ban clients, and disconnect them"),
        ("lift", "unban", "lift a ban"),
        ("list", "bans", "print the bans in force"),
    ):
        parents = [endpoint_options()]
        command = commands.add_parser(name, help=words, description=words, parents=parents)
        command.add_argument(
            "directory",
            type=pathlib.Path,
            nargs="?",
            metavar="DIR",
            help="data folder of the broker (default: use the HTTP API of --url or --data)",
        )
        command.set_defaults(action=action)
        if action == "bans":
            continue
        target = command.add_mutually_exclusive_group(required=True)
        for option, (value, meaning) in TARGETS.items():
            target.add_argument(option, metavar=value, help=meaning)
        if action == "ban":
            command.add_argument(
                "--reason", default="", help="reason, for operators; clients do not get it"
            )
            command.add_argument(
                "--seconds",
                type=natural,
                metavar="SECONDS",
                help="duration of the ban (default: until it is lifted)",
            )
    return made


if __name__ == "__main__":
    sys.exit(main())
