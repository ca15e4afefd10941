"""The `mqttcore` command: its help, its completion, and the page about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from mqttcore import cli
from mqttcore.cli import command_tree, completion

from tests.command_line import PAGE, page


def test_the_page_lists_what_the_parsers_accept() -> None:
    """If it fails: `python -m tests.command_line`."""
    assert PAGE.read_text() == page()


def test_each_command_and_option_says_what_it_does() -> None:
    for command in command_tree.commands():
        title = " ".join(command.path)
        assert command.meaning, title
        for option in command.options:
            assert option.meaning, f"{title} {option.names or option.value}"


def test_each_parser_has_the_name_that_users_type() -> None:
    for name in cli.COMMANDS:
        module = __import__(cli.module_of(name), fromlist=["parser"])
        assert module.parser().prog == f"mqttcore {name}"


def test_the_help_lists_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0

    shown = capsys.readouterr().out
    for name, does in cli.COMMANDS.items():
        assert f"  {name:13}{does}\n" in shown


def test_an_unknown_command_is_refused_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["srve"]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "unknown command 'srve' did you mean \"serve\"?" in shown.err


def test_the_end_of_the_reader_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "mqttcore", "completion", "bash"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)

    assert (done.returncode, done.stderr) == (cli.BROKEN_PIPE, "")


def completed(*line: str) -> set[str]:
    """The words that bash offers for the last word of a line."""
    quoted = " ".join(completion.quoted(word) for word in ("mqttcore", *line))
    program = f"""{completion.bash()}
        COMP_WORDS=({quoted}); COMP_CWORD={len(line)}; _mqttcore; echo "${{COMPREPLY[@]}}" """
    shell = shutil.which("bash")
    assert shell is not None
    done = subprocess.run(  # noqa: S603 -- our own script
        [shell, "--norc", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_subcommands_options_and_values() -> None:
    assert completed("") == {*cli.COMMANDS, "--help", "--version"}
    assert completed("store", "ver") == {"verify"}
    assert completed("store", "repair", "--") == {"--accept-loss", "--help", "--json"}
    assert completed("completion", "z") == {"zsh"}
    assert completed("bench", "") >= {"conn", "fan", "pairs", "pub", "retained", "sub"}
    assert "--hold" in completed("bench", "conn", "--h")


def test_bash_completes_names_of_files_where_an_option_takes_one() -> None:
    # nothing of ours: bash then takes its default, files
    assert completed("serve", "--config", "") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")

    done = subprocess.run(  # noqa: S603 -- our own script
        [program, "-n"],
        input=completion.SCRIPTS[shell](),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
