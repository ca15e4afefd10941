"""`mqttcore topics`: the tree of topics with retained messages of a running broker."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, asking, endpoint_options
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural
from mqttcore.cli.terminal import json_text, printable

DEPTH: Final = 2
ALL_LEVELS: Final = 1_024
"""The most levels of a topic."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tree; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("topics", options, tree)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore topics",
        description="Prints topics with retained messages as a tree, each level with the number of"
        " retained messages at and below it, and of subscribers that would receive a message on"
        " it. The broker does not know topics that were never retained.",
        parents=[endpoint_options()],
    )
    made.add_argument(
        "prefix",
        nargs="?",
        default="",
        metavar="TOPIC",
        help="only topics below this one",
    )
    made.add_argument(
        "--depth",
        type=natural,
        default=DEPTH,
        metavar="LEVELS",
        help=f"number of levels (default: {DEPTH}); 0: all",
    )
    return made


def tree(api: Api, options: argparse.Namespace) -> int:
    """Prints the tree."""
    above = options.prefix.count("/") + 1 if options.prefix else 0
    query = {"prefix": options.prefix or None, "depth": options.depth or ALL_LEVELS}
    pages = api.pages("/topics", query)
    if options.json:
        print(json_text({"items": [item for page in pages for item in page["items"]]}))
        return OK
    for page in pages:
        for item in page["items"]:
            indent = "  " * (item["topic"].count("/") - above)
            name = printable(item["name"]) or "(empty level)"
            print(f"{indent}{name}  {item['messages']}{receivers(item['subscribers'])}")
    return OK


def receivers(count: int | None) -> str:
    """The receivers of a topic, if there are any."""
    return f"  {count} subscriber{'s' * (count > 1)}" if count else ""


if __name__ == "__main__":
    sys.exit(main())
