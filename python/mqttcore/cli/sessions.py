"""`mqttcore sessions`: kept sessions of a running broker."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, add_command, asking, path_of
from mqttcore.cli.confirmed import confirmation, remove_many
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural, paging_options, print_list, with_default
from mqttcore.cli.table import Column, duration

COLUMNS: Final = (
    Column("CLIENT", lambda client: client["client_id"]),
    Column("USER", lambda client: client["username"]),
    Column("MQTT", lambda client: client["version"], is_number=True),
    Column("AWAY", lambda client: since(client["away_since_ms"]), is_number=True),
    Column("EXPIRES IN", lambda client: until(client["expires_at_ms"]), is_number=True),
    Column("SUBS", lambda client: client["subscriptions"], is_number=True),
    Column("QUEUE", lambda client: client["queue"]["messages"], is_number=True),
    Column("BYTES", lambda client: client["queue"]["bytes"], is_number=True),
)


def since(unix_ms: int | None) -> str | None:
    """The time since then."""
    return None if unix_ms is None else duration(max(0, round(time.time() - unix_ms / 1_000)))


def until(unix_ms: int | None) -> str:
    """The time until then."""
    if unix_ms is None:
        return "never"
    return duration(max(0, round(unix_ms / 1_000 - time.time())))


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
    listing = add_command(commands, "list", words, paging_options(), choice())
    listing.add_argument(
        "--expires-within",
        type=natural,
        metavar="SECONDS",
        help="only sessions that end within this time",
    )
    listing.add_argument(
        "--sort",
        choices=("client_id", "queue", "away", "expires"),
        default="client_id",
        help="order (default: client_id)",
    )
    listing.set_defaults(run=list_sessions)
    words = "end a session: its subscriptions and queued messages are lost"
    end = add_command(commands, "end", words)
    end.add_argument("client", metavar="ID", help="client identifier")
    end.set_defaults(run=end_session)
    words = "end sessions without a connection: their subscriptions and queued messages are lost"
    many = add_command(commands, "end-offline", words, choice())
    confirmation(many, "end")
    many.set_defaults(run=end_sessions)
    return made


def choice() -> argparse.ArgumentParser:
    """The options that choose sessions, as a parent of parsers."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--find", metavar="TEXT", help="part of the client identifier")
    made.add_argument("--user", metavar="NAME", help="user name")
    made.add_argument(
        "--min-queue", type=natural, metavar="COUNT", help="minimum number of queued messages"
    )
    made.add_argument(
        "--away", type=natural, metavar="SECONDS", help="minimum time without a connection"
    )
    return made


def chosen(options: argparse.Namespace) -> dict[str, str | int | bool | None]:
    """The query for the sessions that the options choose."""
    return {
        "q": options.find,
        "user": options.user,
        "min_queue": options.min_queue,
        "away_s": options.away,
    }


def list_sessions(api: Api, options: argparse.Namespace) -> int:
    """Prints a table of sessions."""
    more = {
        "connected": False,
        "expires_within_s": options.expires_within,
        "sort": options.sort,
    }
    return print_list(api, "/sessions", chosen(options) | more, COLUMNS, options)


def end_session(api: Api, options: argparse.Namespace) -> int:
    """Ends a session."""
    api.call("DELETE", path_of("clients", options.client), query={"session": "end"})
    if options.json:
        print(json.dumps({"client_id": options.client, "session_ended": True}))
    return OK


def end_sessions(api: Api, options: argparse.Namespace) -> int:
    """Ends sessions, if their number is confirmed."""
    query = chosen(options)
    return remove_many(api, "/sessions", query, options, what="sessions", action="end")


if __name__ == "__main__":
    sys.exit(main())
