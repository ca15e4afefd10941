"""The command line of `mqttcore serve`, read without `argparse` if it is plain."""

import sys
from collections.abc import Sequence

# `typing` would be loaded before `mqttcore.serve` ends collections
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Final

VALUES: "Final" = {
    "--config": ("FILE", "TOML file, or a folder whose files *.toml are merged in the order of"
                 " their names"),
    "--listen": ("ADDRESS", "address instead of the listeners of the file, as 127.0.0.1:1883,"
                 " ws://127.0.0.1:8083/mqtt or unix:/run/mqttcore/mqtt.sock; may be repeated"),
    "--data": ("DIR", "data folder for sessions and messages; created if it does not exist"),
    "--log-level": ("LEVEL", "lowest level that is logged: debug, info, warning or error"),
}  # fmt: skip
"""Flags with a value: its name, and the help."""

SWITCHES: "Final" = {
    "--accept-loss": "repair a damaged data folder before the start: unreadable data is lost and"
    " reported; reads the whole folder, so use it for one start only",
    "--accept-clock": "count the whole downtime by the system clock, for expiry and for the age of"
    " streams; for one start, after a warning that the clock is implausible",
    "--check-config": "check the configuration, print all errors, and exit; plugins are started and"
    " stopped",
    "--print-defaults": "print a configuration file with every key, its default and its meaning,"
    " and exit",
}
"""Flags without a value, and their help."""


class Options:
    """The command line."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.listen: list[str] = []
        self.data: str | None = None
        self.log_level: str | None = None
        self.accept_loss = False
        self.accept_clock = False
        self.check_config = False
        self.print_defaults = False


def read_options(arguments: Sequence[str] | None) -> Options:
    """Reads the command line; exits with a message if it is wrong."""
    given = sys.argv[1:] if arguments is None else arguments
    options = plain_options(given)
    return parser().parse_args(given, Options()) if options is None else options


def plain_options(given: Sequence[str]) -> Options | None:
    """Reads a command line of whole flags; None: only `argparse` knows what it means.

    `argparse`, and what it imports, take a tenth of the start.
    """
    options = Options()
    words = iter(given)
    for flag in words:
        if flag in SWITCHES:
            setattr(options, attribute(flag), True)
            continue
        value = next(words, "-") if flag in VALUES else "-"
        if value.startswith("-"):
            return None
        if flag == "--listen":
            options.listen.append(value)
        else:
            setattr(options, attribute(flag), value)
    return options


def attribute(flag: str) -> str:
    """The attribute of `Options` for a flag."""
    return flag.removeprefix("--").replace("-", "_")


def parser() -> "argparse.ArgumentParser":
    """The command line."""
    import argparse
    import functools

    from mqttcore import __version__

    made = argparse.ArgumentParser(
        prog="mqttcore serve",
        description="Runs an MQTT broker. Precedence: command line, then MQTTCORE__... variables,"
        " then the file.",
        # With a width, adding an argument does not load shutil to ask the terminal for its own.
        formatter_class=functools.partial(argparse.HelpFormatter, width=80),
    )
    for flag, (name, does) in VALUES.items():
        short = ["-c"] if flag == "--config" else []
        action = "append" if flag == "--listen" else "store"
        made.add_argument(*short, flag, action=action, metavar=name, help=does)
    for flag, does in SWITCHES.items():
        made.add_argument(flag, action="store_true", help=does)
    made.add_argument("--version", action="version", version=f"mqttcore {__version__}")
    made.formatter_class = argparse.HelpFormatter
    return made
