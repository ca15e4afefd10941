"""`mqttcore conf`: checks a configuration, shows the one of a running broker, prints its schema."""

import argparse
import contextlib
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, Final

from mqttcore import config
from mqttcore.broker import Broker
from mqttcore.cli.api import Api, add_command
from mqttcore.cli.failure import OK, USAGE, reporting
from mqttcore.cli.reload import print_changes
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text, printable
from mqttcore.config.faults import fault_items, fault_line
from mqttcore.errors import MqttError

COLUMNS: Final = (
    Column("KEY", lambda key: key["key"]),
    Column("VALUE", lambda key: json_text(key["value"])),
    Column("SOURCE", lambda key: key["source"]),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks or shows; returns the exit status."""
    options = parser().parse_args(arguments)
    return reporting("conf", lambda: int(options.run(options)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore conf", description="Checks, shows and describes configurations."
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    words = (
        "print all errors and warnings of a configuration, and what a reload of the running broker"
        " would change; plugins are started and stopped"
    )
    check = add_command(commands, "check", words)
    check.add_argument(
        "-c",
        "--config",
        type=pathlib.Path,
        metavar="FILE",
        help="TOML file to check (default: the file that the running broker would reload)",
    )
    check.set_defaults(run=check_configuration)
    words = "print each key of a running broker with its value and source"
    show = add_command(commands, "show", words)
    show.add_argument("--find", default="", metavar="TEXT", help="only keys that contain this text")
    show.add_argument(
        "--changed", action="store_true", help="only keys whose value is not the default"
    )
    show.set_defaults(run=show_configuration)
    words = "print the JSON Schema of configuration files, for editors"
    schema = commands.add_parser("schema", help=words, description=words)
    schema.set_defaults(run=print_schema)
    return made


def check_configuration(options: argparse.Namespace) -> int:
    """Prints errors, warnings and what a reload would change; returns the exit status."""
    if options.config:
        found = checked(options.config)
    else:
        with Api(options) as api:
            found = api.call("POST", "/config/check", body={})
    if options.json:
        print(json_text(found))
        return USAGE if found["errors"] else OK
    errors = map(fault_line, found["errors"])
    for line in (*errors, *(f"warning: {warning}" for warning in found["warnings"])):
        print(*map(printable, line.splitlines()), sep="\n", file=sys.stderr)
    if found["errors"]:
        return USAGE
    print(f"{options.config or 'configuration'}: valid")
    if "changed" in found:
        print_changes(found, "a reload changes")
    return OK


def checked(file: pathlib.Path) -> dict[str, Any]:
    """Errors and warnings of a file, without a running broker.

    What plugins print goes to standard error.
    """
    try:
        settings = config.load(file, environment=os.environ)
        with contextlib.redirect_stdout(sys.stderr):
            return {"errors": [], "warnings": Broker(settings).check()}
    except MqttError as error:
        return {"errors": fault_items(error), "warnings": []}


def show_configuration(options: argparse.Namespace) -> int:
    """Prints the keys of a running broker."""
    with Api(options) as api:
        found = api.get("/config")["items"]
    keys = [
        key
        for key in found
        if options.find in key["key"] and not (options.changed and key["source"] == "default")
    ]
    if options.json:
        print(json_text({"items": keys}))
        return OK
    print(*Table(COLUMNS).lines(keys), sep="\n")
    return OK


def print_schema(_: argparse.Namespace) -> int:
    """Prints the JSON Schema of configuration files."""
    from mqttcore.config.json_schema import json_schema  # the other commands need none

    print(json_text(json_schema(), indent=2))
    return OK


if __name__ == "__main__":
    sys.exit(main())
