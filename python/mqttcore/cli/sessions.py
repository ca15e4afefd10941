"""`mqttcore sessions`: kept sessions of a running broker."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, add_command, asking, path_of
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural, paging_options, print_list, with_default
from mqttcore.cli.table import Column, expiry

COLUMNS: Final = (
    Column("CLIENT", lambda client: client["client_id"]),
    Column("USER", lambda client: client["username"]),
    Column("MQTT", lambda client: client["version"], is_number=True),
    Column("EXPIRES AFTER", lambda client: expiry(client["session_expiry_s"]), is_number=True),
    Column("SUBS", lambda client: client["subscriptions"], is_number=True),
    Column("QUEUE", lambda client: client["queue"]["messages"], is_number=True),
    Column("BYTES", lambda client: client["queue"]["bytes"], is_number=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints or ends sessions; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(with_default(given, "list"))
    return asking("sessions", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore sessions",
        description="Kept sessions of a running broker. Without a subcommand: list.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    words = "list sessions without a connection"
    listing = add_command(commands, "list", words, paging_options())
    listing.add_argument("--find", metavar="TEXT", help="part of the client identifier")
    listing.add_argument(
        "--min-queue", type=natural, metavar="COUNT", help="minimum number of queued messages"
    )
    listing.add_argument(
        "--sort",
        choices=("client_id", "queue"),
        default="client_id",
        help="order (default: client_id)",
    )
    listing.set_defaults(run=list_sessions)
    words = "end a session: its subscriptions and queued messages are lost"
    end = add_command(commands, "end", words)
    end.add_argument("client", metavar="ID", help="client identifier")
    end.set_defaults(run=end_session)
    return made


def list_sessions(api: Api, options: argparse.Namespace) -> int:
    """Prints a table of sessions."""
    query = {
        "connected": False,
        "q": options.find,
        "min_queue": options.min_queue,
        "sort": options.sort,
    }
    return print_list(api, "/clients", query, COLUMNS, options)


def end_session(api: Api, options: argparse.Namespace) -> int:
    """Ends a session."""
    api.call("DELETE", path_of("clients", options.client), query={"session": "end"})
    if options.json:
        print(json.dumps({"client_id": options.client, "session_ended": True}))
    return OK


if __name__ == "__main__":
    sys.exit(main())
