"""Recent events: why clients did not get messages, and when they came and went."""

import argparse
import sys
import time
from typing import Final

from mqttcore.cli.api import Api, Json, Query, missing_parts
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text

COLUMNS: Final = (
    Column("LAST", lambda event: clock(event["last_ms"])),
    Column("EVENT", lambda event: event["event"]),
    Column("CLIENT", lambda event: event["client_id"]),
    Column("TOPIC", lambda event: event["topic"]),
    Column("TIMES", lambda event: event["count"], is_number=True),
    Column("REASON", lambda event: reason(event)),
)


def event_options(made: argparse.ArgumentParser) -> None:
    """Adds the options of recent events."""
    made.add_argument(
        "--topic",
        metavar="TOPIC",
        help="events of this topic, of filters that match it, and those without a topic",
    )
    made.add_argument(
        "--event",
        metavar="KINDS",
        help="only events of these kinds, separated by commas, such as denied,auth_failed",
    )
    made.add_argument(
        "--since", type=natural, metavar="SECONDS", help="only events of the last SECONDS"
    )
    made.add_argument(
        "--limit",
        type=natural,
        default=100,
        metavar="COUNT",
        help="maximum number of events, up to 1000 (default: 100)",
    )


def print_events(api: Api, options: argparse.Namespace) -> int:
    """Prints recent events, the newest first."""
    query: Query = {
        "client": options.client,
        "topic": options.topic,
        "since_s": options.since,
        "events": options.event,
        "limit": options.limit,
    }
    found = api.get("/explain/delivery", query)
    if options.json:
        print(json_text(found))
        return OK
    print(*Table(COLUMNS).lines(found["items"]), sep="\n")
    sys.stdout.flush()
    if found["has_more"]:
        print("there are older events: --limit prints up to 1000", file=sys.stderr)
    elif since_ms := found["complete_since_ms"]:
        print(f"events before {clock(since_ms)} may be missing", file=sys.stderr)
    if found["partial"]:
        print(missing_parts(found["partial"]), file=sys.stderr)
    return OK


def clock(ms: int) -> str:
    """A local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1_000))


def reason(event: Json) -> str:
    """The reason in words and as a code."""
    code = event["reason_code"]
    return " ".join(filter(None, (event["why"], None if code is None else f"0x{code:02X}")))
