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


# Options that many commands share: the title of their list, and commands that have all of them.
SHARED = {
    "Options of HTTP clients": (("reload",), ("streams",)),
    "Options of MQTT clients": (("pub",), ("sub",), ("rr",), ("bench", "conn")),
}


def generated() -> str:
    """The part of the page below `MARK`."""
    groups = {name: group for group, names in GROUPS.items() for name in names}
    known = {command.path: command.options for command in commands()}
    shared = {
        title: tuple(
            option for option in known[paths[0]] if all(option in known[path] for path in paths)
        )
        for title, paths in SHARED.items()
    }
    parts, group = [], ""
    for title, options in shared.items():
        parts.append(f"## {title}\n\n{option_table(options)}")
    for command in commands():
        if groups[command.path[0]] != group:
            group = groups[command.path[0]]
            parts.append(f"## {group}")
        parts.append(section(command, shared))
    return "\n\n".join(parts) + "\n"


def section(command: Command, shared: dict[str, tuple[Option, ...]]) -> str:
    """A command: what it does, its subcommands, its options but for shared ones."""
    title = " ".join(("mqttcore", *command.path))
    text = f"### `{title}`\n\n{sentence(command.meaning)}"
    if command.subcommands:
        text += f" Subcommands: {', '.join(f'`{name}`' for name in command.subcommands)}."
    own = command.options
    for name, options in shared.items():
        if set(options) <= set(own):
            text += f" Has the [{name[0].lower()}{name[1:]}](#{name.lower().replace(' ', '-')})."
            own = tuple(option for option in own if option not in options)
    return f"{text}\n\n{option_table(own)}".strip()


def option_table(options: tuple[Option, ...]) -> str:
    """The options as a table; nothing if there are none."""
    rows = [row(option) for option in options if "--help" not in option.names]
    return table(("option", "meaning"), iter(rows)) if rows else ""


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
