"""`mqttcore explain`: explains deliveries of messages and decisions of rules about clients."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, Json, Query, add_command, asking, missing_parts
from mqttcore.cli.events import clock, event_options, print_events
from mqttcore.cli.failure import NOT_DONE, OK, CommandError
from mqttcore.cli.listing import natural
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text, printable, printable_json

STEPS: Final = (
    Column("STEP", lambda step: step["step"]),
    Column("VERDICT", lambda step: step["verdict"]),
    Column("BY", lambda step: step["by"]),
    Column("GRANTED BY", lambda step: step["granted_by"]),
    Column("PLACE", lambda step: step["place"]),
    Column("DETAIL", lambda step: step["detail"]),
)
RECEIVERS: Final = (
    Column("RECEIVER", lambda receiver: receiver["client_id"]),
    Column("QOS", lambda receiver: receiver["qos"], is_number=True),
    Column("VERDICT", lambda receiver: receiver["verdict"]),
    Column("GROUP", lambda receiver: receiver["group"]),
    Column("DETAIL", lambda receiver: receiver["detail"]),
)
PASSING: Final = frozenset({"ok", "delivered"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Explains; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("explain", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line. Longer than other functions: one call for each option."""
    made = argparse.ArgumentParser(
        prog="mqttcore explain",
        description="Explains decisions of a running broker. Nothing is sent. Exit status 1: the"
        " message or the request would not pass now.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    words = "explain what would happen to a message, for each receiver"
    delivery = add_command(commands, "delivery", words)
    delivery.add_argument(
        "topic", metavar="TOPIC", help="topic, including the mount point of the publisher"
    )
    delivery.add_argument(
        "--from", dest="publisher", metavar="ID", help="publisher (default: the broker itself)"
    )
    delivery.add_argument("--to", metavar="ID", help="only this receiver")
    delivery.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default: 0)"
    )
    delivery.add_argument("-r", "--retain", action="store_true", help="set RETAIN")
    delivery.add_argument(
        "--bytes",
        type=natural,
        default=0,
        metavar="COUNT",
        help="bytes of the payload (default: 0)",
    )
    delivery.add_argument(
        "--limit",
        type=natural,
        default=100,
        metavar="COUNT",
        help="maximum number of receivers (default: 100)",
    )
    delivery.set_defaults(run=explain_delivery)
    words = "list recent events that say why clients did not get messages, the newest first"
    history = add_command(commands, "history", words)
    history.add_argument("--client", metavar="ID", help="client identifier (default: all clients)")
    event_options(history)
    history.set_defaults(run=print_events)
    words = "print deliveries while they happen, each with its verdict, until the command is ended"
    watch = add_command(commands, "watch", words)
    watch.add_argument(
        "filter", metavar="FILTER", help="topic filter, including mount points of publishers"
    )
    watch.add_argument("--client", metavar="ID", help="only this receiver")
    watch.add_argument(
        "--count",
        type=natural,
        default=0,
        metavar="COUNT",
        help="end after COUNT deliveries (default: 0, no limit)",
    )
    watch.set_defaults(run=watch_deliveries)
    words = "print the rule that allows or denies an action of a client"
    access = add_command(commands, "access", words)
    access.add_argument("client", metavar="ID", help="client identifier")
    access.add_argument(
        "action", choices=("publish", "subscribe", "receive"), help="action of the client"
    )
    access.add_argument("topic", metavar="TOPIC", help="topic, or topic filter of a subscription")
    access.set_defaults(run=explain_access)
    return made


def explain_delivery(api: Api, options: argparse.Namespace) -> int:
    """Prints the steps and the receivers of a message."""
    body = {
        "from": options.publisher,
        "topic": options.topic,
        "qos": options.qos,
        "retain": options.retain,
        "bytes": options.bytes,
        "to": options.to,
        "limit": options.limit,
    }
    found = api.call("POST", "/explain/delivery", body=body)
    receivers = found["receivers"]["items"]
    if options.json:
        print(json_text(found))
    else:
        print_steps(found)
        if receivers:
            print()
            print(*Table(RECEIVERS).lines(receivers), sep="\n")
        print_notes(found["receivers"])
    verdicts = [found["verdict"], *(one["verdict"] for one in receivers if options.to)]
    return OK if PASSING.issuperset(verdicts) else NOT_DONE


def watch_deliveries(api: Api, options: argparse.Namespace) -> int:
    """Prints deliveries as they happen."""
    query: Query = {"filter": options.filter, "client": options.client}
    printed = 0
    for kind, data in api.events("/explain/delivery/live", query):
        if options.json:
            print(printable_json(data), flush=True)
        elif kind == "lost":
            print(f"-- {json.loads(data)['lost']} deliveries are missing here --", file=sys.stderr)
        else:
            print(delivery_line(json.loads(data)), flush=True)
        printed += kind == "delivery"
        if printed == options.count and printed:
            return OK
    raise CommandError("the broker has ended the stream: it stops, or the key is not in force")


def delivery_line(delivery: Json) -> str:
    """A delivery in one line."""
    ms = delivery["ts_us"] // 1_000
    words = (
        f"{clock(ms)}.{ms % 1_000:03}",
        delivery["verdict"],
        delivery["client_id"] or "-",
        delivery["topic"],
        f"qos={delivery['qos']}",
        f"bytes={delivery['bytes']}",
        "retain" if delivery["retain"] else "",
        delivery["group"] and f"group={delivery['group']}",
        delivery["detail"] and f"({delivery['detail']})",
    )
    return printable(" ".join(filter(None, words)))


def explain_access(api: Api, options: argparse.Namespace) -> int:
    """Prints the steps of a permission."""
    body = {"client": options.client, "action": options.action, "topic": options.topic}
    found = api.call("POST", "/explain/access", body=body)
    if options.json:
        print(json_text(found))
    else:
        print_steps(found)
    return OK if found["verdict"] in PASSING else NOT_DONE


def print_steps(found: Json) -> None:
    """Prints the verdict and the steps."""
    print(printable(found["verdict"]))
    print()
    print(*Table(STEPS).lines(found["steps"]), sep="\n")


def print_notes(receivers: Json) -> None:
    """Prints to standard error the missing parts of the list of receivers."""
    sys.stdout.flush()
    if receivers["next"]:
        print("there are more receivers: --limit prints up to 1000", file=sys.stderr)
    if receivers["partial"]:
        print(missing_parts(receivers["partial"]), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
