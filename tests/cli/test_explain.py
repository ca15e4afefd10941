"""`mqttcore explain`: verdicts and rules of a running broker."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener

from tests.cli.conftest import Outcome, Run
from tests.eventually import eventually
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
            wire.disconnect()
        yield started


@pytest.fixture
def explain(run: Run, tmp_path: pathlib.Path, broker: Broker) -> Ask:
    """Runs `mqttcore explain` on that broker."""
    assert broker.is_running

    def explained(*arguments: object) -> Outcome:
        return run("explain", *arguments, "--data", tmp_path / "data")

    return explained


@contextmanager
def publishing(wire: Wire) -> Iterator[None]:
    """Publishes to `road/1` again and again, from another thread."""
    wire.connect("writer")
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.is_set():
            wire.publish("road/1", b"21", qos=1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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


@pytest.mark.parametrize("command", ["client", "topic"])
def test_recent_events_are_listed(
    run: Run, explain: Ask, broker: Broker, tmp_path: pathlib.Path, command: str
) -> None:
    def listed(*more: object) -> Outcome:
        if command == "topic":
            return explain("history", "--client", "away", "--topic", "road/1", *more)
        return run("clients", "events", "away", "--data", tmp_path / "data", *more)

    eventually(lambda: "disconnected" in listed().out)
    done = listed("--since", 3_600)

    assert (done.status, done.error) == (0, "")
    title, *rows = (line.split() for line in done.out.splitlines())
    assert title == ["LAST", "EVENT", "CLIENT", "TOPIC", "TIMES", "REASON"]
    assert [row[2] for row in rows] == [
        *("disconnected", "subscribed", "connected", "session_created"),
    ]
    assert rows[1][3:] == ["away", "road/+", "1", "-"]
    assert (rows[0][4:6], rows[0][-1]) == (["-", "1"], "0x00")
    assert json.loads(listed("--json").out)["items"][1]["topic"] == "road/+"
    assert "there are older events" in listed("--limit", 1).error
    chosen = json.loads(listed("--event", "subscribed,denied", "--json").out)
    assert [item["event"] for item in chosen["items"]] == ["subscribed"]
    unknown = listed("--event", "subscribe")
    assert (unknown.status != 0, 'did you mean "subscribed"?' in unknown.error) == (True, True)


def test_events_of_another_topic_are_left_out(explain: Ask) -> None:
    done = explain("history", "--client", "away", "--topic", "elsewhere", "--json")

    assert "subscribed" not in [item["event"] for item in json.loads(done.out)["items"]]


def test_deliveries_are_printed_while_they_happen(explain: Ask, broker: Broker) -> None:
    with Wire(broker.port) as here, Wire(broker.port) as writer, publishing(writer):
        here.connect("here")
        here.subscribe(("road/1", 0))
        text = explain("watch", "road/#", "--count", 20)
        lines = explain("watch", "road/#", "--client", "away", "--count", 2, "--json")
    refused = explain("watch", "road/#/1")

    assert (text.status, text.error) == (0, "")
    rows = [line.split()[2:] for line in text.out.splitlines()]
    assert ["waiting:offline", "away", "road/1", "qos=1", "bytes=2"] in rows
    assert ["delivered", "here", "road/1", "qos=0", "bytes=2"] in rows
    assert len(rows) == 20
    found = [json.loads(line) for line in lines.out.splitlines()]
    assert [(one["client_id"], one["verdict"]) for one in found] == [
        ("away", "waiting:offline")
    ] * 2
    assert (refused.status, refused.out) == (2, "")
    assert "plant/+/temperature" in refused.error
