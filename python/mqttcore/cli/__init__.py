"""The `mqttcore` command: it imports the module of one command and runs its `main`.

Exit status of all commands, unless their help says otherwise: 0 done, 1 not done, 2 the command
line is wrong, 3 the broker cannot be reached, 4 the broker refused, 130 interrupted.
"""

import importlib
import os
import sys
from collections.abc import Sequence

# `typing` would take a fifth of the time of `mqttcore --help`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

GROUPS: "Final" = {
    "Run a broker": {
        "serve": "run the broker",
        "doctor": "print the risks of a configuration on this machine",
        "healthcheck": "ask a running broker whether it works",
        "conf": "check a configuration; show that of a running broker; print the JSON Schema",
        "reload": "make a running broker read its configuration again",
    },
    "Send and receive messages": {
        "pub": "publish messages",
        "sub": "subscribe and print messages",
        "rr": "publish a request and print the response",
        "bench": "measure messages, connections and subscriptions of a broker",
    },
    "Control a running broker": {
        "top": "show rates, clients and shards, refreshed each second",
        "clients": "list clients; show or disconnect one",
        "kick": "disconnect a client",
        "ban": "ban clients; list and lift bans",
        "subs": "list subscriptions, or the subscribers of a topic",
        "explain": "explain deliveries and permissions",
        "acl": "explain rules, print what another ACL file would change",
        "trace": "record packets of chosen clients",
        "sessions": "list sessions without a connection; end one",
        "retained": "list, print, remove, export and import retained messages",
        "topics": "print the tree of topics with retained messages",
        "streams": "list streams and their offsets",
        "keys": "create, list and revoke keys of the HTTP API",
    },
    "Files and data": {
        "certs": "make certificates for tests of TLS",
        "passwd": "write password files",
        "plugins": "list, create and check plugins",
        "pipeline": "build tables and alerts from a stream",
        "store": "check, repair and copy a data folder",
        "audit": "check, print and follow the audit log",
    },
    "Shell": {
        "completion": "print the completion script of bash, zsh or fish",
    },
}
"""All commands with their descriptions, in the groups of the help."""

COMMANDS: "Final" = {name: does for group in GROUPS.values() for name, does in group.items()}

TOOLS: "Final" = frozenset(
    {"ban", "certs", "doctor", "healthcheck", "passwd", "pipeline", "serve", "store"}
)
"""Commands that are modules of `mqttcore`, so that `python -m mqttcore.serve` works, too. The
others are modules of this package."""

INTERRUPTED: "Final" = 130
"""Exit status of shells for SIGINT."""
BROKEN_PIPE: "Final" = 141
"""Exit status of shells for SIGPIPE: the reader of the output has ended, as in `mqttcore sub ... |
head`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else "--help"
    prepare_streams()
    title = f"mqttcore {name}" if name in COMMANDS else "mqttcore"
    try:
        status = run(name, given[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return BROKEN_PIPE
    except OSError as error:  # commands report others themselves
        discard_output()
        where = error.filename or "standard output"
        print(f"{title}: cannot write to {where}: {error.strerror}", file=sys.stderr)
        return 1
    return status


def run(name: str, arguments: Sequence[str]) -> int:
    """Runs the command of this name, or prints the help or the version."""
    if name in COMMANDS:
        try:
            status: int = importlib.import_module(module_of(name)).main(arguments)
        except SystemExit as ended:  # argparse; its output is not flushed yet
            if not isinstance(ended.code, int):
                raise
            return ended.code
        return status
    if name == "--version":
        from mqttcore import __version__

        print(f"mqttcore {__version__}")
        return 0
    if name in ("-h", "--help"):
        print(usage())
        return 0
    from mqttcore._schema import did_you_mean

    print(f"mqttcore: unknown command {name!r} {did_you_mean(name, COMMANDS)}", file=sys.stderr)
    print("mqttcore --help lists the commands", file=sys.stderr)
    return 2


def prepare_streams() -> None:
    """Makes the standard streams usable if one is closed, or its encoding does not have all text.

    Without this, a socket would get the descriptor of a closed stream.
    """
    for name in ("stdin", "stdout", "stderr"):  # in the order of their descriptors
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            # it stays open until the process ends
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discards what standard output has not written: Python would try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def module_of(name: str) -> str:
    """The module with the `main` and `parser` of a command."""
    if name == "pipeline":
        return "mqttcore.pipeline.__main__"
    return f"mqttcore.{name}" if name in TOOLS else f"mqttcore.cli.{name}"


def usage() -> str:
    """The help."""
    lines = ["usage: mqttcore COMMAND [ARGUMENTS]"]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:13}{does}" for name, does in commands.items()]
    lines += ["", "`mqttcore COMMAND --help` lists the arguments; `mqttcore --version`."]
    return "\n".join(lines)
