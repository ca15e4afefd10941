"""`mqttcore explain`: verdicts and rules of a running broker."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener

from tests.cli.conftest import Outcome, Run
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

Ask = Callable[..., Outcome]


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    """A broker with an endpoint and a kept session `away` that is subscribed to `road/+`."""
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", name="main", anonymous=True),),
        http=HttpListener(address="127.0.0.1:0", token_file=tmp_path / "token"),
        data=str(tmp_path / "data"),
    )
    with Broker(settings) as started:
        with Wire(started.port) as wire:
            wire.connect("away", clean=False, props={"session_expiry_interval": 3_600})
            wire.subscribe(("road/+", 1))
        yield started


@pytest.fixture
def explain(run: Run, tmp_path: pathlib.Path, broker: Broker) -> Ask:
    """Runs `mqttcore explain` on that broker."""
    assert broker.is_running

    def explained(*arguments: object) -> Outcome:
        return run("explain", *arguments, "--data", tmp_path / "data")

    return explained


def test_a_message_for_an_offline_client_waits(explain: Ask) -> None:
    done = explain("delivery", "road/1", "-q", 1, "--to", "away")

    assert (done.status, done.error) == (1, "")
    assert done.out.splitlines()[0] == "ok"
    assert done.out.splitlines()[-1].split()[:3] == ["away", "1", "waiting:offline"]


def test_the_exit_status_says_whether_the_message_passes(explain: Ask) -> None:
    assert explain("delivery", "road/1", "-q", 1).status == 0
    invalid = explain("delivery", "road/#", "--json")
    assert invalid.status == 1
    assert json.loads(invalid.out)["verdict"] == "refused:topic"
    nobody = explain("delivery", "road/1", "--to", "nobody")
    assert (nobody.status, nobody.out) == (1, "")
    assert "no client" in nobody.error


def test_the_rule_that_decides_is_printed(explain: Ask) -> None:
    allowed = explain("access", "away", "subscribe", "road/+")
    denied = explain("access", "away", "publish", "$share/x")

    assert allowed.status == 0
    assert "allow #" in allowed.out
    assert (denied.status, denied.out.splitlines()[0]) == (1, "denied:publish")
