"""Runs commands in this process, as the `mqttcore` command does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from mqttcore import cli


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    error: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: `run("pub", "-t", "a", "-m", "x")`."""

    def run_command(*arguments: object) -> Outcome:
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            status = int(str(end.code))
        shown = capsys.readouterr()
        return Outcome(status, shown.out, shown.err)

    return run_command
