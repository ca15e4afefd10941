"""Runs commands in this process, as the `mqttcore` command does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from mqttcore import cli

from tests.wire import Wire


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


@pytest.fixture
def topic(topic: str, client: Callable[..., Wire]) -> Iterator[str]:
    """Its retained messages are removed after the test: others subscribe to `+` and `+/a`."""
    yield topic
    for name in (topic, f"{topic}/a"):
        client().publish(name, b"", qos=1, retain=True)
