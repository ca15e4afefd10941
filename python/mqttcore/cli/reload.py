"""`mqttcore reload`: has a running broker read its configuration again."""

import argparse
import json
import sys
from collections.abc import Sequence

from mqttcore.cli.api import Api, asking, endpoint_options
from mqttcore.cli.failure import OK


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
        print(json.dumps(done, ensure_ascii=False))
        return OK
    print(f"changed: {', '.join(done['changed']) or 'nothing'}")
    if done["needs_restart"]:
        print(f"a restart is needed for: {', '.join(done['needs_restart'])}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
