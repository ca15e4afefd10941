"""`mqttcore reload`: has a running broker read its configuration again."""

import argparse
import sys
from collections.abc import Mapping, Sequence

from mqttcore.cli.api import Api, asking, endpoint_options
from mqttcore.cli.failure import OK
from mqttcore.cli.terminal import json_text, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Reloads; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("reload", options, reload)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return argparse.ArgumentParser(
        prog="mqttcore reload",
        description="Has a running broker read its configuration again, as SIGHUP does, and prints"
        " what has changed. If anything in it is wrong, nothing changes.",
        parents=[endpoint_options()],
    )


def reload(api: Api, options: argparse.Namespace) -> int:
    """Reloads; returns the exit status."""
    done = api.call("POST", "/reload")
    if options.json:
        print(json_text(done))
        return OK
    print_changes(done, "changed")
    return OK


def print_changes(found: Mapping[str, Sequence[str]], title: str) -> None:
    """Prints the keys that change, and those that need a restart."""
    print(f"{title}: {printable(', '.join(found['changed'])) or 'nothing'}")
    if found["needs_restart"]:
        print(f"a restart is needed for: {printable(', '.join(found['needs_restart']))}")


if __name__ == "__main__":
    sys.exit(main())
