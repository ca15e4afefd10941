"""`mqttcore kick`: disconnects a client of a running broker."""

import argparse
import json
import sys
from collections.abc import Sequence

from mqttcore.cli.api import Api, asking, endpoint_options, path_of
from mqttcore.cli.failure import OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Disconnects; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("kick", options, kick)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore kick",
        description="Disconnects a client; its will is published. It may connect again at once:"
        " `mqttcore ban` prevents that.",
        parents=[endpoint_options()],
    )
    add_options(made)
    return made


def add_options(made: argparse.ArgumentParser) -> None:
    """Adds the client, and how it is disconnected."""
    made.add_argument("client", metavar="ID", help="client identifier")
    made.add_argument(
        "--end-session",
        action="store_true",
        help="also end the session: subscriptions and queued messages are lost",
    )
    made.add_argument(
        "--reason",
        metavar="CODE",
        help="reason code of the DISCONNECT, as 0x89 (default: 0x98, administrative action)",
    )


def kick(api: Api, options: argparse.Namespace) -> int:
    """Disconnects; returns the exit status."""
    query = {"session": "end" if options.end_session else None, "reason": options.reason}
    api.call("DELETE", path_of("clients", options.client), query=query)
    if options.json:
        print(json.dumps({"client_id": options.client, "session_ended": options.end_session}))
    return OK


if __name__ == "__main__":
    sys.exit(main())
