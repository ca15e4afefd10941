"""`mqttcore trace`: packets of a running broker."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener

from tests.cli.conftest import Outcome, Run
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

Trace = Callable[..., Outcome]


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", name="main", anonymous=True),),
        http=HttpListener(),
        data=str(tmp_path / "data"),
    )
    with Broker(settings) as started:
        yield started


@pytest.fixture
def trace(run: Run, tmp_path: pathlib.Path, broker: Broker) -> Trace:
    """Runs `mqttcore trace` on that broker."""
    assert broker.is_running

    def traced(*arguments: object) -> Outcome:
        return run("trace", *arguments, "--data", tmp_path / "data")

    return traced


def publish(broker: Broker, client_id: str) -> None:
    """A client that publishes and leaves."""
    with Wire(broker.port) as wire:
        wire.connect(client_id)
        wire.publish("plant/1", b"21.5", qos=1)
        wire.ping()


def test_a_trace_is_started_listed_saved_and_stopped(
    trace: Trace, broker: Broker, tmp_path: pathlib.Path
) -> None:
    begun = trace("start", "--client", "plc-*", "--payload", "head:2", "--name", "mine")
    assert (begun.status, begun.error) == (0, "")
    number = begun.out.strip()
    publish(broker, "plc-7")

    listed = trace("list")
    assert [number, "mine", "client_id=plc-*"] == listed.out.splitlines()[1].split()[:3]
    for name, part in (("a.json", b'"payload":"21"'), ("a.txt", b'payload="21"')):
        assert trace("save", number, tmp_path / name) == Outcome(0, "", "")
        assert part in (tmp_path / name).read_bytes()
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    saved = trace("save", number, tmp_path / "a.pcapng", "--json")
    size = (tmp_path / "a.pcapng").stat().st_size
    assert json.loads(saved.out) == {"file": str(tmp_path / "a.pcapng"), "bytes": size}
    assert trace("stop", number, "--keep").status == 0
    assert json.loads(trace("list", "--json").out)["items"][0]["active"] is False
    assert trace("stop", number).status == 0
    assert len(trace("list").out.splitlines()) == 1


def test_tail_prints_packets_until_the_trace_ends(trace: Trace, broker: Broker) -> None:
    number = trace("start", "--topic", "plant/#", "--payload", "all").out.strip()
    publish(broker, "plc-7")
    trace("stop", number, "--keep")

    text = trace("tail", number, "--all")
    lines = trace("tail", number, "--all", "--json")

    assert (text.status, text.error) == (0, "")
    assert "PUBLISH" in text.out
    assert 'payload="21.5"' in text.out
    packets = [json.loads(line)["packet"] for line in lines.out.splitlines()]
    assert packets == ["PUBLISH", "PUBACK"]


def test_tail_ends_with_a_trace_that_is_stopped(trace: Trace, broker: Broker) -> None:
    number = trace("start").out.strip()
    stopping = threading.Timer(0.5, lambda: publish(broker, "late"))
    stopping.start()
    short = json.loads(trace("start", "--for", 1, "--json").out)["id"]

    done = trace("tail", short)

    stopping.join()
    assert done.status == 0
    assert trace("stop", number).status == 0


def test_what_makes_no_sense_is_refused(trace: Trace, tmp_path: pathlib.Path) -> None:
    for arguments, word in (
        (("start", "--payload", "some"), "head:64"),
        (("start", "--ip", "10.0.0.0/40"), "10.0.0.0/8"),
        (("start", "--for", "0"), "86400"),
        (("save", "none", tmp_path / "a.pcap"), ".pcapng"),
    ):
        done = trace(*arguments)
        assert (done.status, done.out) == (2, "")
        assert word in done.error
    for command, *more in (("stop",), ("tail",), ("save", tmp_path / "a.txt")):
        done = trace(command, "none", *more)
        assert (done.status, done.out) == (1, "")
        assert "no such trace" in done.error
    assert list(tmp_path.glob("a.*")) == []
