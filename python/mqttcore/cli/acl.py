"""`mqttcore acl`: which rule decides about a client; what another ACL file would change."""

import argparse
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from mqttcore.auth.acl_changes import Trial
from mqttcore.auth.acl_file import AclFile, read_acl_file
from mqttcore.cli.api import Api, add_command, asking, path_of
from mqttcore.cli.explain import PASSING, print_steps
from mqttcore.cli.failure import NOT_DONE, OK, USAGE, CommandError
from mqttcore.cli.listing import paging_options, print_list
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text, printable
from mqttcore.errors import AclFileError

COLUMNS: Final = (
    Column("CLIENT", lambda change: change.client_id),
    Column("USER", lambda change: change.username),
    Column("ACTION", lambda change: change.action),
    Column("FILTER", lambda change: change.filter),
    Column("NOW", lambda change: change.now),
    Column("THEN", lambda change: change.then),
)
RULES: Final = (
    Column("RULE", lambda rule: "may" if rule["allowed"] else "may not"),
    Column("ACTION", lambda rule: ", ".join(rule["actions"])),
    Column("FILTER", lambda rule: rule["filter"]),
    Column("EXACT", lambda rule: rule["exact"]),
    Column("PLACE", lambda rule: rule["place"]),
)
ACTIONS: Final = ("publish", "subscribe", "receive")
PLACE: Final = re.compile(r"(?P<file>.+):\d+:\d+")
"""The source of a key: file, line and column."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("acl", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore acl", description="Explains rules, and tries ACL files of Mosquitto."
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    words = "print the steps that decide what a client may do, with plugin, rule, file and line"
    explaining = add_command(commands, "explain", words)
    explaining.add_argument("--user", metavar="NAME", help="user name")
    explaining.add_argument(
        "--client", metavar="ID", help="client identifier; default: each session of the user"
    )
    explaining.add_argument("action", choices=ACTIONS, help="action of the client")
    explaining.add_argument("topic", metavar="TOPIC", help="topic, or filter of a subscription")
    explaining.set_defaults(run=explain)
    words = "print the rules of a client, in the order in which they decide"
    showing = add_command(commands, "show", words, paging_options())
    showing.add_argument("client", metavar="ID", help="client identifier")
    showing.set_defaults(run=show_rules)
    add_invalidate(commands)
    words = "print what another ACL file would change for the sessions of a running broker"
    dry_run = add_command(commands, "dry-run", words)
    dry_run.add_argument("new", type=pathlib.Path, metavar="NEW_FILE", help="new ACL file")
    dry_run.add_argument(
        "--old",
        type=pathlib.Path,
        metavar="FILE",
        help="ACL file in use; default: the acl_file of the broker's configuration",
    )
    dry_run.set_defaults(run=try_file)
    return made


def add_invalidate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command that has plugins asked again."""
    words = (
        "have plugins asked again about the rights of clients; without a grant hook they are"
        " disconnected"
    )
    renewing = add_command(commands, "invalidate", words)
    whose = renewing.add_mutually_exclusive_group(required=True)
    whose.add_argument("--client", metavar="ID", help="client identifier")
    whose.add_argument("--user", metavar="NAME", help="user name")
    whose.add_argument(
        "--plugin", metavar="NAME", help="clients whose rights this plugin granted, or its module"
    )
    whose.add_argument("--all", action="store_true", help="all clients")
    renewing.set_defaults(run=invalidate)


def explain(api: Api, options: argparse.Namespace) -> int:
    """Prints the steps for each client; returns the exit status: 1 if one of them is refused."""
    found = []
    for client_id, username in asked_clients(api, options).items():
        body = {"client": client_id, "action": options.action, "topic": options.topic}
        steps = api.call("POST", "/explain/access", body=body)
        found.append({"client_id": client_id, "username": username, **steps})
    if options.json:
        print(json_text(found))
    else:
        for index, one in enumerate(found):
            by = "no user name" if one["username"] is None else f"user {one['username']}"
            print("\n" * (index > 0) + printable(f"client {one['client_id']}, {by}"))
            print_steps(one)
    return OK if all(one["verdict"] in PASSING for one in found) else NOT_DONE


def show_rules(api: Api, options: argparse.Namespace) -> int:
    """Prints the rules of a client."""
    path = f"{path_of('clients', options.client)}/permissions"
    return print_list(api, path, {}, RULES, options)


def invalidate(api: Api, options: argparse.Namespace) -> int:
    """Has the plugins asked again about clients."""
    whose = {
        "client_id": options.client,
        "username": options.user,
        "plugin": options.plugin,
        "all": options.all,
    }
    done = api.call("POST", "/access/invalidate", body=whose)
    if options.json:
        print(json_text(done))
    else:
        print(f"{done['connected']} connected clients: their rights are asked for again")
    return OK


def asked_clients(api: Api, options: argparse.Namespace) -> dict[str, str | None]:
    """The sessions that are asked about, and their user names.

    Raises:
        CommandError: there are none, or neither a user nor a client is named.
    """
    if options.client is None and options.user is None:
        raise CommandError("name a client with --client, or a user with --user", status=USAGE)
    if options.client is not None:
        username = api.get(path_of("clients", options.client))["username"]
        sessions = {options.client: username}
    else:
        sessions = users_of(api)
    found = {
        client_id: username
        for client_id, username in sessions.items()
        if options.user in {None, username}
    }
    if not found:
        raise CommandError(f"no session of user {options.user}", status=NOT_DONE)
    return found


def try_file(api: Api, options: argparse.Namespace) -> int:
    """Prints each change; returns the exit status."""
    users = users_of(api)
    trial = Trial(users, old=read(options.old or file_in_use(api)), new=read(options.new))
    changes = list(trial.changes(subscriptions_of(api)))
    for warning in trial.warnings:
        print(warning, file=sys.stderr)
    if options.json:
        print(json_text({"clients": len(users), "changes": [asdict(one) for one in changes]}))
        return OK
    if changes:
        print(*Table(COLUMNS).lines(changes), sep="\n")
    changed = len({change.client_id for change in changes})
    sys.stdout.flush()
    print(f"{changed} of {len(users)} clients change", file=sys.stderr)
    return OK


def read(path: pathlib.Path) -> AclFile:
    """Reads an ACL file.

    Raises:
        CommandError: it is malformed; with each wrong line.
    """
    try:
        return read_acl_file(path)
    except AclFileError as error:
        raise CommandError(str(error), status=USAGE) from error


def file_in_use(api: Api) -> pathlib.Path:
    """The ACL file of the broker's configuration.

    Raises:
        CommandError: it names none, or several.
    """
    items = api.get("/config")["items"]
    found = {
        (str(item["value"]), str(item["source"]))
        for item in items
        if item["key"].endswith("acl_file") and item["value"]
    }
    if len(found) != 1:
        count = "no ACL file" if not found else "several ACL files"
        raise CommandError(f"the broker uses {count}: name one with --old", status=USAGE)
    [(value, source)] = found
    place = PLACE.fullmatch(source)
    # paths are relative to the file that names them
    return pathlib.Path(place["file"]).parent / value if place else pathlib.Path(value)


def users_of(api: Api) -> dict[str, str | None]:
    """The user name of each session."""
    pages = api.pages("/clients")
    return {item["client_id"]: item["username"] for page in pages for item in page["items"]}


def subscriptions_of(api: Api) -> Iterator[tuple[str, str]]:
    """Client and filter of each subscription."""
    for page in api.pages("/subscriptions"):
        for held in page["items"]:
            yield held["client_id"], held["filter"]


if __name__ == "__main__":
    sys.exit(main())
