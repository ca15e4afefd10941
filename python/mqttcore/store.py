"""`mqttcore store verify|repair|seal|dump|backup|info DIR`: tools for data folders.

``backup`` also copies the store of a running broker, which continues meanwhile; the other tools
need a folder that no broker has open. ``import-mosquitto`` makes a new one.

Exit status: 0 all is well, 1 it cannot be done, 2 the command line is wrong, 3 the store is
damaged (``verify``) or data was given up (``repair``).
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Final, Self

from mqttcore import control, damage
from mqttcore._core import (
    CopyProgress,
    store_backup,
    store_dump,
    store_info,
    store_repair,
    store_seal,
    store_verify,
)
from mqttcore.errors import StoreError

DAMAGED: Final = 3
MIB: Final = 1024 * 1024
UNTOLD_S: Final = 2.0
"""How long a copy takes before it says how far it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except BrokenPipeError:
        raise
    except (StoreError, ValueError, OSError) as error:
        print(
            f"mqttcore store: {options.directory}: {error}{damage.advice(error)}", file=sys.stderr
        )
        return DAMAGED if damage.is_damage(error) else 1
    return status


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore store",
        description="Checks, repairs and copies a data folder. All tools but backup need the"
        " broker to be stopped.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, run, words in (
        ("verify", verify, "read everything and verify all checksums; change nothing"),
        ("repair", repair, "discard unreadable data, keep everything else"),
        ("seal", seal, "write all rows of streams into Parquet files"),
        ("dump", dump, "print every record of the log, without payloads"),
        (
            "backup",
            backup,
            "copy the data folder into a new or empty folder, also while the broker runs",
        ),
        ("info", info, "print a summary of the store"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument("directory", type=pathlib.Path, metavar="DIR", help="data folder")
        command.set_defaults(run=run)
        words = "print JSON; it is printed without, too"
        if name == "dump":
            words = "print a JSON object for each record"
        command.add_argument("--json", action="store_true", help=words)
        if name == "backup":
            command.add_argument("to", type=pathlib.Path, metavar="TO", help="folder of the copy")
        if name == "repair":
            command.add_argument(
                "--accept-loss",
                action="store_true",
                help="confirms the loss; without it nothing is changed. verify prints the data that"
                " would be lost",
            )
    add_import(commands)
    return made


def add_import(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command that takes over the state of Mosquitto."""
    words = "make a new data folder of Mosquitto's persistence file"
    command = commands.add_parser(
        "import-mosquitto",
        help=words,
        description="Makes a new data folder of the persistence file of Mosquitto 1.5.6 and later:"
        " sessions, subscriptions, queued and retained messages. Stop Mosquitto first: it writes"
        " the file when it ends.",
    )
    command.add_argument(
        "file", type=pathlib.Path, metavar="FILE", help="Mosquitto's file, as mosquitto.db"
    )
    command.add_argument(
        "directory", type=pathlib.Path, metavar="DIR", help="new or empty data folder"
    )
    command.add_argument(
        "--accept-loss",
        action="store_true",
        help="leave out what cannot be taken over; without it nothing is written then",
    )
    command.add_argument(
        "--json", action="store_true", help="print JSON; it is printed without, too"
    )
    command.set_defaults(run=take_over)


def take_over(options: argparse.Namespace) -> int:
    """Makes a store of the state of Mosquitto."""
    from mqttcore.mosquitto_db import MosquittoDbError
    from mqttcore.store_import import LeftOutError, import_mosquitto

    try:
        done = import_mosquitto(options.file, options.directory, accepts_loss=options.accept_loss)
    except MosquittoDbError as error:
        print(f"mqttcore store: {options.file}: {error}", file=sys.stderr)
        return 1
    except LeftOutError as error:
        print(error, file=sys.stderr)
        print(
            "mqttcore store: nothing was written; --accept-loss leaves these out", file=sys.stderr
        )
        return 1
    tell(done)
    return 0


def verify(options: argparse.Namespace) -> int:
    """Reads everything."""
    tell(store_verify(options.directory))
    return 0


def info(options: argparse.Namespace) -> int:
    """Prints a summary of the store."""
    tell(store_info(options.directory))
    return 0


def repair(options: argparse.Namespace) -> int:
    """Repairs a damaged store, if the loss of damaged data is confirmed."""
    if not options.accept_loss:
        tell(store_verify(options.directory))
        return 0
    done = store_repair(options.directory)
    tell(done)
    return DAMAGED if done["damage"] is not None else 0


def seal(options: argparse.Namespace) -> int:
    """Writes all rows into Parquet files, for readers of files."""
    tell({"streams": store_seal(options.directory)})
    return 0


def dump(options: argparse.Namespace) -> int:
    """Prints every record."""
    if options.json:
        store_dump(options.directory, tell_record, as_fields=True)
    else:
        store_dump(options.directory, print)
    return 0


def tell_record(fields: dict[str, object]) -> None:
    """Prints a record as one line of JSON."""
    print(json.dumps(fields))


def backup(options: argparse.Namespace) -> int:
    """Copies the store, or has the running broker copy it."""
    to = options.to.absolute()
    with ProgressLine() as line:
        try:
            copied = control.ask(options.directory, "backup", str(to), line.tell)
        except control.NobodyThereError:
            progress = CopyProgress()
            with control.repeated(lambda: line.tell_of(progress)):
                copied = store_backup(options.directory, to, progress)
    tell({"copied_bytes": copied})
    return 0


class ProgressLine:
    """Shows how far a copy is, in one line of a terminal; nothing in the first two seconds."""

    def __init__(self) -> None:
        self._shown_from = time.monotonic() + UNTOLD_S
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._write("")

    def tell_of(self, progress: CopyProgress) -> None:
        """Shows `progress`, if its total is known."""
        if progress.total is not None:
            self.tell(progress.done, progress.total, progress.eta_s)

    def tell(self, done: int, total: int, eta_s: int | None) -> None:
        """Shows how many bytes are there, and how long the rest takes."""
        if not sys.stderr.isatty() or time.monotonic() < self._shown_from:
            return
        self._is_shown = True
        left = "" if eta_s is None else f", {eta_s} s left"
        self._write(f"copied {done / MIB:,.0f} of {total / MIB:,.0f} MiB{left}")

    @staticmethod
    def _write(text: str) -> None:
        # Back to the start of the line, and erase the rest of it.
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


def tell(facts: dict[str, object]) -> None:
    """Prints one JSON object, for people and for programs."""
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    sys.exit(main())
