"""`mqttcore sub --watch`."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pytest
from mqttcore.cli import watch
from mqttcore.cli.sub import parser
from mqttcore.cli.watch import Watch, value
from mqttcore.packets import Publish

from tests.cli.conftest import Run
from tests.conftest import RunningBroker
from tests.eventually import eventually
from tests.wire import Wire

Connect = Callable[..., Wire]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A table on a terminal that is none, whose clock stands still."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    later(monkeypatch, 0.0)
    return Watch(parser().parse_args(["-t", "#", "--watch"]))


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0 + seconds)
    monkeypatch.setattr("mqttcore.cli.watch.time", clock)


def test_topics_have_counts_rates_and_last_values(
    shown: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        shown.show(Publish(topic="fast", payload=f"{number}\n".encode()))
    shown.show(Publish(topic="slow", payload=b"\xff\x00"))
    assert shown.pause_s == 1.0
    shown.flush()
    assert capsys.readouterr().out == ""

    later(monkeypatch, 2.0)
    assert shown.pause_s == 0.0
    shown.flush()

    lines = capsys.readouterr().out.removeprefix("\x1b[H\x1b[J").splitlines()
    assert [line.split() for line in lines] == [
        ["TOPIC", "MESSAGES", "MSG/S", "LAST"],
        ["fast", "4", "2.0", "3\\n"],
        ["slow", "1", "0.5", "ff", "00"],
        ["2", "topics,", "5", "messages,", "2.5", "a", "second"],
    ]
    later(monkeypatch, 3.0)
    shown.flush()
    assert capsys.readouterr().out.endswith("2 topics, 5 messages, 0.0 a second")


def test_a_screen_has_the_topics_with_most_messages(
    shown: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "TOPICS_MAX", 5)
    for number in range(7):
        for _ in range(number + 1):
            shown.show(Publish(topic=f"topic/{number}"))
    later(monkeypatch, 1.0)
    shown.flush()

    lines = list(shown.lines(width=60, height=4))

    assert [line.split()[0] for line in lines] == ["TOPIC", "topic/4", "topic/3", "5"]
    assert lines[-1].endswith("; 13 messages of further topics")


@pytest.mark.parametrize(
    ("payload", "cell"),
    [
        (b"21.5", "21.5"),
        (b"", ""),
        (b"\xff" * 20, "ff " * 15 + "ff …"),
        ("ü".encode() * 150, "ü" * 100),
        (b"x" + "ü".encode() * 150, "x" + "ü" * 99),
    ],
)
def test_values_are_text_or_hexadecimal(payload: bytes, cell: str) -> None:
    assert value(payload) == cell


def test_other_outputs_are_refused(run: Run) -> None:
    done = run("sub", "-t", "a", "--watch")

    assert (done.status, done.error) == (2, "mqttcore sub: --watch needs a terminal: use -v\n")


def test_a_table_is_drawn_on_a_terminal(client: Connect, broker: RunningBroker, topic: str) -> None:
    sender = client()
    screen, terminal = pty.openpty()
    program = [sys.executable, "-m", "mqttcore", "sub", "-p", str(broker.port), "-t", topic]
    with (
        closing(os.fdopen(screen, "rb", buffering=0)) as shown,
        subprocess.Popen([*program, "--watch"], stdout=terminal) as process,  # noqa: S603 -- our own program
    ):
        os.close(terminal)
        read = b""

        def is_drawn() -> bool:
            nonlocal read
            sender.publish(topic, b"21.5", qos=1)
            if select.select([shown], [], [], 0.1)[0]:
                read += shown.read(65_536)
            return topic.encode() in read and b"21.5" in read

        eventually(is_drawn)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
