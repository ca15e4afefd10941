"""The examples run, and do what README and their own words say."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mqttcore import Settings
from mqttcore.config import HttpListener, Listener, ServerLimits, Tls, TopicMetric, TopicRule, load
from mqttcore.sessions import SessionLimits, SessionPolicy
from mqttcore.streams.kafka import Kafka
from mqttcore.streams.settings import Retention, Stream
from mqttcore.streams.tier import Tier

from tests.wire import Wire

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BANNER = re.compile(r"listening on (?:port |127\.0\.0\.1:)(\d+)")


class Running:
    """A program that says on which port it listens."""

    def __init__(self, *command: str, cwd: pathlib.Path = EXAMPLES) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *command],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        found = BANNER.search(self.line("listening on"))
        assert found
        self.port = int(found[1])

    def line(self, text: str) -> str:
        """The next line with ``text`` in it."""
        assert self.process.stdout is not None
        seen = []
        while line := self.process.stdout.readline():
            if text in line:
                return line
            seen.append(line)
        raise AssertionError("".join(seen))

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def doors() -> Iterator[Running]:
    running = Running("-m", "mqttcore.serve", "-c", "doors.toml", "--listen", "127.0.0.1:0")
    yield running
    running.close()


def test_embedded_publishes_the_time() -> None:
    running = Running("embedded.py", "127.0.0.1:0", "30")
    try:
        with Wire(running.port) as wire:
            wire.connect("watch")
            wire.subscribe(("clock", 0))
            assert re.fullmatch(rb"\d\d:\d\d:\d\d", wire.receive_publish().payload)
            assert "watch" in running.line("sent to 1")
    finally:
        running.close()


def test_watch_events_prints_them() -> None:
    running = Running("watch_events.py", "127.0.0.1:0", "2")
    try:
        with Wire(running.port) as wire:
            wire.connect("someone")
            wire.disconnect()
        assert running.line("connected") == "connected someone\n"
        assert running.line("disconnected") == "disconnected someone\n"
        assert running.process.wait(10) == 0
    finally:
        running.close()


def test_doors_lets_in_doors_and_guards(doors: Running) -> None:
    with Wire(doors.port) as door, Wire(doors.port) as guard, Wire(doors.port) as thief:
        thief.connect("7", username="door", password=b"guess", reason=0x86)
        door.connect("7", username="door", password=b"a long random text")
        guard.connect("g", username="ann", password=b"")

        assert door.subscribe(("door/7/open", 1), ("door/8/open", 1)).reasons == (1, 0x87)
        assert guard.subscribe(("door/#", 0)).reasons == (0,)
        assert door.publish("door/7/open", qos=1, packet_id=2).reason == 0x87
        assert door.publish("door/7/state", b"shut", qos=1, packet_id=3).reason == 0
        assert guard.receive_publish().payload == b"shut"
        assert guard.publish("door/7/open", b"now", qos=1, packet_id=4).reason == 0
        assert door.receive_publish().payload == b"now"
        assert guard.publish("elsewhere", qos=1, packet_id=5).reason == 0x87


def test_the_example_file_holds_the_defaults() -> None:
    settings = load(EXAMPLES / "mqttcore.toml")

    assert settings == Settings()


def test_the_example_file_names_every_key() -> None:
    text = (EXAMPLES / "mqttcore.toml").read_text()
    named = set(re.findall(r"^#? ?(\w+) =", text, re.MULTILINE))

    clients = (Settings, Listener, ServerLimits, SessionPolicy, SessionLimits)
    kinds = (*clients, Tls, TopicRule, TopicMetric, Stream, Retention, Tier, HttpListener, Kafka)
    keys = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    tables = {"listeners", "limits", "plugins", "session", "streams", "retention", "http", "topics"}
    assert keys - named == tables | {"kafka", "sasl", "sni", "tier", "tls"}


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", readme_blocks(), ids=lambda text: text.splitlines()[0])
def test_the_python_of_the_readme_runs(block: str, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", block],
        check=True,
        cwd=tmp_path,
        timeout=30,
        stdout=subprocess.PIPE,
        text=True,
    )

    for promised in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
        assert promised in done.stdout.splitlines()


def test_the_python_of_the_page_for_authors_runs() -> None:
    page = (ROOT / "docs/plugins.md").read_text()
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)  # noqa: S102 - our own text

    names["test_a_door_comes_in"]()


def test_the_toml_of_the_readme_is_fine(tmp_path: pathlib.Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "mqttcore.toml").write_text(block)
        load(tmp_path / "mqttcore.toml")
