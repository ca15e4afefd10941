"""All commands with their subcommands and options, read from their parsers."""

import argparse
import importlib
from collections.abc import Iterator
from typing import NamedTuple

from mqttcore.cli import COMMANDS, module_of


class Option(NamedTuple):
    """An option, or an argument without a dash."""

    names: tuple[str, ...]
    """Such as ``-t``, ``--topic``; empty for an argument without a dash."""
    value: str
    """The placeholder of its value; empty if it has none."""
    choices: tuple[str, ...]
    """The only values that it takes; empty if it takes others."""
    meaning: str


class Command(NamedTuple):
    """A command or a subcommand."""

    path: tuple[str, ...]
    """Such as ``("certs", "dev")``."""
    meaning: str
    options: tuple[Option, ...]
    subcommands: tuple[str, ...]


def commands() -> Iterator[Command]:
    """Reads the parsers of all commands, in the order of the help."""
    for name, does in COMMANDS.items():
        parser: argparse.ArgumentParser = importlib.import_module(module_of(name)).parser()
        yield from below((name,), does, parser)


def below(
    path: tuple[str, ...], meaning: str, parser: argparse.ArgumentParser
) -> Iterator[Command]:
    """A command and its subcommands."""
    options: list[Option] = []
    subcommands: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    # argparse has no other way to list what a parser accepts.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            subcommands = {name: action.choices[name] for name in helps}  # without aliases
        elif action.help is not argparse.SUPPRESS:
            options.append(option_of(action))
    yield Command(path, meaning, tuple(options), tuple(subcommands))
    for name, subparser in subcommands.items():
        yield from below((*path, name), helps.get(name, ""), subparser)


def option_of(action: argparse.Action) -> Option:
    """An option as it is declared."""
    value = ""
    if action.nargs != 0:
        given = action.metavar or action.dest.upper()
        value = given if isinstance(given, str) else " ".join(given)
    choices = tuple(map(str, action.choices or ()))
    if choices and not action.metavar:
        value = "|".join(choices)
    return Option(tuple(action.option_strings), value, choices, action.help or "")
