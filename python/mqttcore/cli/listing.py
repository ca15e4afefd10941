"""Commands that print lists of the API, page by page."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from mqttcore.cli.api import Api, Json, Query, missing_parts, whole
from mqttcore.cli.failure import OK
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text

LIMIT: Final = 100


def paging_options() -> argparse.ArgumentParser:
    """The options of all lists, as a parent of their parsers."""
    made = argparse.ArgumentParser(add_help=False)
    group = made.add_argument_group("list")
    group.add_argument(
        "--limit",
        type=natural,
        default=LIMIT,
        metavar="COUNT",
        help=f"maximum number of lines (default: {LIMIT}); 0: all",
    )
    return made


def natural(text: str) -> int:
    """A number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("the number must be 0 or more")
    return number


def print_list(
    api: Api,
    path: str,
    query: Query,
    columns: Sequence[Column],
    options: argparse.Namespace,
) -> int:
    """Prints a list as a table or as JSON; returns the exit status."""
    pages = api.pages(path, query, limit=options.limit)
    if options.json:
        print(json_text(whole(pages)))
        return OK
    print_pages(pages, columns)
    return OK


def print_pages(pages: Iterator[Json], columns: Sequence[Column]) -> None:
    """Prints pages as one table; notes about it go to standard error."""
    table = Table(columns)
    partial: list[Json] = []
    has_more = False
    for page in pages:
        for line in table.lines(page["items"]):
            print(line)
        partial += page["partial"]
        has_more = page["next"] is not None
    if has_more:
        sys.stdout.flush()
        print("there are more: --limit 0 prints all", file=sys.stderr)
    if partial:
        print(missing_parts(partial), file=sys.stderr)


def with_default(
    arguments: Sequence[str], default: str, *, helps: Sequence[str] = ("-h", "--help")
) -> list[str]:
    """The arguments with a subcommand: ``default`` if they begin with none.

    ``helps`` are the options that print the help.
    """
    is_help = bool(arguments) and arguments[0] in helps
    has_one = bool(arguments) and not arguments[0].startswith("-")
    return list(arguments) if is_help or has_one else [default, *arguments]
