"""`mqttcore topics`: the tree of topics with retained messages of a running broker."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from mqttcore.cli.api import Api, asking, endpoint_options
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural
from mqttcore.cli.terminal import json_text, printable

DEPTH: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tree; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("topics", options, tree)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore topics",
        description="Prints topics with retained messages as a tree, each level with the number of"
        " retained messages at and below it. The broker does not know topics that were never"
        " retained.",
        parents=[endpoint_options()],
    )
    made.add_argument(
        "prefix",
        nargs="?",
        default="",
        metavar="TOPIC",
        help="only this topic and the topics below",
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
    counts = count(topics(api, options.prefix), options.prefix, options.depth)
    if options.json:
        items = [{"topic": "/".join(path), "retained": number} for path, number in counts.items()]
        print(json_text({"items": items}))
        return OK
    for path in sorted(counts):
        print(f"{'  ' * (len(path) - 1)}{printable(path[-1]) or '(empty level)'}  {counts[path]}")
    return OK


def topics(api: Api, prefix: str) -> Iterator[str]:
    """All topics with a retained message at and below a topic."""
    query = {"filter": f"{prefix}/#" if prefix else "#"}
    for page in api.pages("/retained", query):
        for message in page["items"]:
            yield str(message["topic"])


def count(found: Iterator[str], prefix: str, depth: int) -> dict[tuple[str, ...], int]:
    """The number of topics at and below each level, down to ``depth`` levels below the prefix."""
    above = len(prefix.split("/")) - 1 if prefix else 0
    counts: dict[tuple[str, ...], int] = {}
    for topic in found:
        levels = topic.split("/")[above:]
        for end in range(1, 1 + (min(depth, len(levels)) if depth else len(levels))):
            path = ("/".join(topic.split("/")[: above + 1]), *levels[1:end])
            counts[path] = counts.get(path, 0) + 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
