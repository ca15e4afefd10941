"""`mqttcore ban` against a running broker: over its control socket, and over the HTTP API."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, Settings, _core, ban
from mqttcore.config import HttpListener, Listener

from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
ADMINISTRATIVE = 0x98


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "data"


@pytest.fixture
def broker(folder: pathlib.Path) -> Iterator[Broker]:
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        http=HttpListener(),
        data=str(folder),
    )
    with Broker(settings) as broker:
        yield broker


@pytest.mark.parametrize("way", ["control socket", "HTTP API"])
def test_a_client_is_banned_listed_and_let_in_again(
    broker: Broker, folder: pathlib.Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [str(folder)] if way == "control socket" else ["--data", str(folder)]

    def run(*arguments: str, status: int = 0) -> dict[str, object]:
        assert ban.main([*arguments[:1], *where, *arguments[1:]]) == status
        out = capsys.readouterr().out
        return json.loads(out) if out else {}

    with Wire(broker.port) as wire:
        wire.connect("truck/7")
        added = run("add", "--client-id", "truck/7", "--reason", "floods", "--seconds", "60")
        assert added == {"disconnected": 1}
        assert wire.receive_until_close()[-1].reason == ADMINISTRATIVE
    bans = run("list")["bans"]
    assert isinstance(bans, list)
    assert [one for one in bans if "floods" in one.values()] == bans
    by = f"user {os.getuid()}" if way == "control socket" else "the owner"
    assert [one["by"] for one in bans] == [by]
    assert run("lift", "--client-id", "truck/7") == {"lifted": True}
    assert run("lift", "--client-id", "truck/7", status=1) == {}
    for option, value in (
        ("--address", "10.0.0.7"),
        ("--user", "joe"),
        ("--client-id-regex", "a+"),
    ):
        assert run("add", option, value) == {"disconnected": 0}
        assert run("lift", option, value) == {"lifted": True}
    assert run("list") == {"bans": []}


def test_a_folder_and_an_address_are_not_both(folder: pathlib.Path) -> None:
    assert ban.main(["list", str(folder), "--url", "http://127.0.0.1:1"]) == 2
    assert ban.main(["list", "--url", "http://127.0.0.1:1"]) == 3
