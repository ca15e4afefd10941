"""`mqttcore subs`: subscriptions of a running broker."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, Json, asking, endpoint_options, path_of
from mqttcore.cli.listing import paging_options, print_list
from mqttcore.cli.table import Column

SHARED: Final = "$share/"
COLUMNS: Final = (
    Column("CLIENT", lambda held: held["client_id"]),
    Column("FILTER", lambda held: held["filter"]),
    Column("GROUP", lambda held: held["group"]),
    Column("QOS", lambda held: held["qos"], is_number=True),
)
MEMBERS: Final = (
    *COLUMNS[:2],
    Column("QOS", lambda held: held["qos"], is_number=True),
    Column("CONNECTED", lambda held: member(held, "connected")),
    Column("QUEUE", lambda held: member(held, "queued"), is_number=True),
    Column("OUT", lambda held: member(held, "inflight"), is_number=True),
)
"""Of the members of one shared subscription."""
RECEIVERS: Final = tuple(column for column in COLUMNS if column.title != "FILTER")
OF_CLIENT: Final = (
    Column("FILTER", lambda held: held["filter"]),
    Column("GROUP", lambda held: held["share"]),
    Column("QOS", lambda held: held["qos"], is_number=True),
    Column("NO LOCAL", lambda held: held["no_local"]),
    Column("ID", lambda held: held["subscription_id"], is_number=True),
)


def member(held: Json, field: str) -> object:
    """Something of a member; None if its session has ended."""
    return held["member"][field] if held.get("member") else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints subscriptions; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("subs", options, list_subscriptions)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore subs",
        description="Lists subscriptions of a running broker, or the subscribers of a topic.",
        parents=[endpoint_options(), paging_options()],
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument(
        "--topic",
        metavar="TOPIC",
        help="clients that would receive a message on this topic; at most 1,000",
    )
    which.add_argument(
        "--filter",
        metavar="FILTER",
        help="subscriptions with exactly this topic filter; of a shared one, with the queues of its"
        " members",
    )
    which.add_argument("--client", metavar="ID", help="subscriptions of this client")
    return made


def list_subscriptions(api: Api, options: argparse.Namespace) -> int:
    """Prints a table of subscriptions."""
    if options.client is not None:
        path = f"{path_of('clients', options.client)}/subscriptions"
        return print_list(api, path, {}, OF_CLIENT, options)
    query = {"topic": options.topic, "filter": options.filter}
    columns = RECEIVERS if options.topic is not None else COLUMNS
    if (options.filter or "").startswith(SHARED):
        columns = MEMBERS
    return print_list(api, "/subscriptions", query, columns, options)


if __name__ == "__main__":
    sys.exit(main())
