"""`python -m mqttcore.ban add|lift|list DIR`: bans of the broker that runs on a data folder.

A ban names a client identifier, a regular expression of client identifiers, a user name, or an
address or network. It outlives the broker.

Exit status: 0 all is well, 1 it cannot be done, or there was no such ban, 2 the command line is
wrong.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from mqttcore import control
from mqttcore.errors import StoreError

TARGETS = {
    "--client-id": ("ID", "clients with this identifier"),
    "--client-id-regex": ("REGEX", "clients whose whole identifier this matches"),
    "--user": ("NAME", "clients with this user name"),
    "--address": ("NETWORK", "clients at an address, or in a network such as 10.0.0.0/8"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = vars(parser().parse_args(arguments))
    directory, action = options.pop("directory"), options.pop("action")
    try:
        answer = control.request(directory, action, json.dumps(options))
    except control.NobodyThereError:
        print(f"mqttcore ban: {directory}: no broker runs on this folder", file=sys.stderr)
        return 1
    except (StoreError, OSError) as error:
        print(f"mqttcore ban: {directory}: {error}", file=sys.stderr)
        return 1
    if action == "unban" and not answer:
        print("mqttcore ban: there is no such ban", file=sys.stderr)
        return 1
    told = {"ban": "disconnected", "unban": "lifted", "bans": "bans"}
    print(json.dumps({told[action]: answer}, indent=2))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore ban", description="Bans of the broker that runs on a data folder."
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, action, words in (
        ("add", "ban", "ban clients, and disconnect them"),
        ("lift", "unban", "lift a ban"),
        ("list", "bans", "print the bans in force"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument(
            "directory", type=pathlib.Path, metavar="DIR", help="data folder of the broker"
        )
        command.set_defaults(action=action)
        if action == "bans":
            continue
        target = command.add_mutually_exclusive_group(required=True)
        for option, (value, meaning) in TARGETS.items():
            target.add_argument(option, metavar=value, help=meaning)
        if action == "ban":
            command.add_argument("--reason", default="", help="for operators; clients are not told")
            command.add_argument(
                "--seconds", type=float, help="how long it lasts; without it, until it is lifted"
            )
    return made


if __name__ == "__main__":
    sys.exit(main())
