"""Writes the options of all commands into `docs/command-line.md`: `python -m tests.command_line`.

What stands above `MARK` is written by hand; a test fails if the rest differs from the parsers.
"""

from __future__ import annotations

from pathlib import Path

from mqttcore.cli import GROUPS
from mqttcore.cli.command_tree import Command, Option, commands

from tests.reference import table

PAGE = Path(__file__).parent.parent / "docs/command-line.md"
MARK = "<!-- The rest is generated from the parsers by `python -m tests.command_line`. -->\n"


def generated() -> str:
    """The part of the page below `MARK`."""
    groups = {name: group for group, names in GROUPS.items() for name in names}
    parts, group = [], ""
    for command in commands():
        if groups[command.path[0]] != group:
            group = groups[command.path[0]]
            parts.append(f"## {group}")
        parts.append(section(command))
    return "\n\n".join(parts) + "\n"


def section(command: Command) -> str:
    """A command: what it does, its subcommands, its options."""
    title = " ".join(("mqttcore", *command.path))
    text = f"### `{title}`\n\n{sentence(command.meaning)}"
    if command.subcommands:
        text += f" Subcommands: {', '.join(f'`{name}`' for name in command.subcommands)}."
    rows = [row(option) for option in command.options if "--help" not in option.names]
    return f"{text}\n\n{table(('option', 'meaning'), iter(rows))}" if rows else text


def row(option: Option) -> tuple[str, str]:
    """An option with its value, and what it means."""
    names = ", ".join(f"`{name}`" for name in option.names)
    value = f"`{option.value}`" if option.value else ""
    return f"{names} {value}".strip(), sentence(option.meaning.replace("%%", "%"))


def sentence(text: str) -> str:
    """A help text as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") or not text else ".")


def page() -> str:
    """The whole page as it should be."""
    by_hand, _, _ = PAGE.read_text().partition(MARK)
    return f"{by_hand}{MARK}\n{generated()}"


if __name__ == "__main__":
    PAGE.write_text(page())
