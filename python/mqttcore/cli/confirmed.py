"""Commands that remove many objects: only with the number that a dry run has found."""

import argparse

from mqttcore.cli.api import Api, Query
from mqttcore.cli.failure import NOT_DONE, OK, CommandError
from mqttcore.cli.listing import natural
from mqttcore.cli.terminal import json_text, printable


def confirmation(parser: argparse.ArgumentParser, action: str) -> None:
    """Adds the option that confirms the number; ``action`` is "remove" or the like."""
    parser.add_argument(
        "--yes",
        type=natural,
        metavar="COUNT",
        help=f"{action} them, if there are exactly COUNT; without it they are only counted",
    )


def remove_many(
    api: Api, path: str, query: Query, options: argparse.Namespace, *, what: str, action: str
) -> int:
    """Removes objects, if their number is confirmed; returns the exit status.

    ``what`` names the objects ("sessions"), ``action`` says what is done to them ("end").

    Raises:
        CommandError: there are some, and their number is not confirmed.
    """
    confirmed = {} if options.yes is None else {"dry_run": False, "count": options.yes}
    done = api.call("DELETE", path, query={**query, **confirmed})
    past = f"{action.removesuffix('e')}ed"
    if options.json:
        print(json_text(done))
    else:
        print(f"{done['count']} {what} {'match' if done['dry_run'] else past}")
        if done["dry_run"]:
            print(*(f"  {printable(name)}" for name in done["sample"]), sep="\n")
    if done["dry_run"] and done["count"]:
        text = f"nothing was {past}: --yes {done['count']} {action}s them"
        raise CommandError(text, status=NOT_DONE)
    return OK
