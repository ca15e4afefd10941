"""Failures of commands: a text for the user, and the exit status."""

import sys
from collections.abc import Callable
from typing import Final

from mqttcore.cli.terminal import printable

OK: Final = 0
NOT_DONE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
TIMEOUT: Final = 27
"""Exit status of Mosquitto's commands for a timeout (MOSQ_ERR_TIMEOUT)."""


class CommandError(Exception):
    """A command failed; ``status`` is its exit status."""

    def __init__(self, text: str, /, *, status: int = NOT_DONE) -> None:
        super().__init__(text)
        self.status = status


def reporting(command: str, act: Callable[[], int], *, is_quiet: bool = False) -> int:
    """Runs ``act``; prints a failure as a line on standard error. Returns the exit status."""
    try:
        return act()
    except CommandError as error:
        text, status = str(error), error.status
    except UnicodeEncodeError as error:
        # `argv` has bytes that are not UTF-8 as lone surrogates
        text, status = f"{error.object!r} is not UTF-8: MQTT and the API need it", USAGE
    if not is_quiet:
        tell(command, text)
    return status


def tell(command: str, text: str) -> None:
    """Prints a line of a command on standard error."""
    print(f"mqttcore {command}: {printable(text)}", file=sys.stderr)
