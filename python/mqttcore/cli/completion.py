"""`mqttcore completion bash|zsh|fish`: prints a script that completes the `mqttcore` command.

The script is made from the parsers of all commands and starts no Python when it completes.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mqttcore.cli.command_tree import Command, Option, commands

EPILOG: Final = """\
bash:  mqttcore completion bash > ~/.local/share/bash-completion/completions/mqttcore
zsh:   mqttcore completion zsh > ~/.zfunc/_mqttcore    # with fpath+=~/.zfunc before compinit
fish:  mqttcore completion fish > ~/.config/fish/completions/mqttcore.fish"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a script; returns the exit status."""
    options = parser().parse_args(arguments)
    print(SCRIPTS[options.shell](), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore completion",
        description="Prints a script that completes commands, options and values in a shell.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("shell", choices=list(SCRIPTS), help="for which shell")
    return made


def bash() -> str:
    """The script of bash."""
    found = [top(), *commands()]
    return BASH.format(
        paths=paths(found),
        values="\n".join(values(found, 'words="{choices}"')),
        words="\n".join(
            f"        {quoted(spelled(command))}) words={quoted(' '.join(words(command)))} ;;"
            for command in found
        ),
    )


def zsh() -> str:
    """The script of zsh."""
    found = [top(), *commands()]
    meanings = {command.path: command.meaning for command in found}
    lists = ((spelled(command), " ".join(described(command, meanings))) for command in found)
    return ZSH.format(
        paths=paths(found),
        values="\n".join(values(found, "compadd -- {choices}; return")),
        words="\n".join(f"        {quoted(at)}) found=({text}) ;;" for at, text in lists),
    )


def fish() -> str:
    """The script of fish."""
    found = list(commands())
    lines = ["# Completion of mqttcore; made by `mqttcore completion fish`."]
    lines += [
        f"complete -c mqttcore -n __fish_use_subcommand -a {command.path[0]}"
        f" -d {quoted(command.meaning)}"
        for command in found
        if len(command.path) == 1
    ]
    for command in found:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.path)
        begin = f"complete -c mqttcore -n {quoted(seen)}"
        if len(command.path) > 1:
            above = f"__fish_seen_subcommand_from {command.path[0]}"
            yet = f"{above}; and not __fish_seen_subcommand_from {command.path[-1]}"
            line = f"complete -c mqttcore -n {quoted(yet)} -a {command.path[-1]}"
            lines.append(f"{line} -d {quoted(command.meaning)}")
        lines += [f"{begin} {fish_option(option)}" for option in command.options if option.names]
    return "\n".join(lines) + "\n"


def fish_option(option: Option) -> str:
    """An option in the words of fish's `complete`."""
    parts = [f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in option.names]
    if option.choices:
        parts.append(f"-x -a {quoted(' '.join(option.choices))}")
    elif option.value:
        parts.append("-r")
    return " ".join([*parts, f"-d {quoted(plain(option.meaning))}"])


def top() -> Command:
    """The `mqttcore` command itself."""
    named = [command.path[0] for command in commands() if len(command.path) == 1]
    flags = [
        Option(("--help",), "", (), "list the commands"),
        Option(("--version",), "", (), "print the version"),
    ]
    return Command((), "", tuple(flags), tuple(named))


def spelled(command: Command) -> str:
    """The words of a command, as the scripts collect them."""
    return "".join(f" {word}" for word in command.path)


def paths(found: Sequence[Command]) -> str:
    """All commands, as a pattern of `case`."""
    return "|".join(quoted(spelled(command)) for command in found if command.path)


def words(command: Command) -> Iterator[str]:
    """All words that may come next."""
    yield from command.subcommands
    for option in command.options:
        yield from option.names
        if not option.names:
            yield from option.choices


def described(command: Command, meanings: dict[tuple[str, ...], str]) -> Iterator[str]:
    """The words that may come next, with their meanings in the format of zsh's `_describe`."""
    for name in command.subcommands:
        yield quoted(f"{name}:{meanings[(*command.path, name)]}")
    for option in command.options:
        for name in option.names or option.choices:
            yield quoted(f"{name}:{plain(option.meaning)}")


def values(found: Sequence[Command], act: str) -> Iterator[str]:
    """The arms of a `case` for options that take a value; ``act`` is for those with choices."""
    for command in found:
        for option in command.options:
            if option.names and option.value:
                pattern = "|".join(quoted(f"{spelled(command)} {name}") for name in option.names)
                done = act.format(choices=" ".join(option.choices)) if option.choices else FILES
                yield f"        {pattern}) {done} ;;"


FILES: Final = "value=file"


def plain(text: str) -> str:
    """A help text without argparse's placeholders."""
    return text.replace("%%", "%")


def quoted(text: str) -> str:
    """A text as one word of the shells."""
    return "'" + text.replace("'", "'\\''") + "'"


BASH: Final = """\
# Completion of mqttcore; made by `mqttcore completion bash`.
_mqttcore() {{
    local at= words= value= index
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$at ${{COMP_WORDS[index]}}" in
        {paths}) at="$at ${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$at" in
{words}
    esac
    case "$at ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{values}
    esac
    # Without a word that fits, bash completes names of files.
    [[ $value == file ]] && words=
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _mqttcore mqttcore
"""

ZSH: Final = """\
#compdef mqttcore
# Completion of mqttcore; made by `mqttcore completion zsh`.
_mqttcore() {{
    local at= value= index
    local -a found
    for ((index = 2; index < CURRENT; index++)); do
        case "$at $words[index]" in
        {paths}) at="$at $words[index]" ;;
        esac
    done
    case "$at" in
{words}
    esac
    case "$at $words[CURRENT - 1]" in
{values}
    esac
    [[ $value == file ]] && {{ _files; return }}
    _describe mqttcore found || _files
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _mqttcore "$@"
else
    compdef _mqttcore mqttcore
fi
"""

SCRIPTS: Final[dict[str, Callable[[], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


if __name__ == "__main__":
    sys.exit(main())
