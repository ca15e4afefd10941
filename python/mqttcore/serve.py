"""`mqttcore serve`: runs the broker in its own process.

Exit status: 0 after SIGINT or SIGTERM, 1 if it cannot start, 2 if the configuration is wrong, 74 if
data can no longer be stored (then everything that was acknowledged is stored), 70 if a thread of
the broker panicked. SIGHUP reads the configuration again; if it has an error, the old one stays in
use.
"""

import gc
import os
import sys
from collections.abc import Sequence

from mqttcore._serve_options import parser, read_options

__all__ = ["main", "parser"]

DEFAULTS = os.path.join(os.path.dirname(__file__), "data", "mqttcore.toml")
"""A configuration file with every key, its default and its meaning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the broker until a signal ends it; returns the exit status."""
    options = read_options(arguments)
    if options.print_defaults:
        with open(DEFAULTS, encoding="utf-8") as file:
            print(file.read(), end="")
        return 0
    # A start makes hardly any garbage: collections would be a fourteenth of it.
    gc.disable()
    try:
        from mqttcore.server import run

        return run(options)
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
