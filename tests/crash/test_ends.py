"""What is said to be over does not come back: syncs are slow, and the power goes right then."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.power import PoweredLife
from tests.crash.test_acknowledged import arrive, leave_subscribed, messages, waiting
from tests.wire import Will, Wire

SLOW_US = 300_000
WILL = Will(topic="wills", payload=b"gone", qos=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PoweredLife]:
    """A broker whose disk keeps nothing that was not synced."""
    server = PoweredLife(tmp_path / "disk")
    server.forgets_all = True
    server.start()
    yield server
    server.is_cut = False
    server.kill()


@contextlib.contextmanager
def slow(server: PoweredLife) -> Iterator[None]:
    """Syncs take long in here; at the end the power goes, and the next broker starts."""
    server.control["sync_us"] = SLOW_US
    yield
    server.control["sync_us"] = 0
    server.crash()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean start", "no expiry"])
def test_a_session_that_a_connack_ended_does_not_come_back(
    server: PoweredLife, is_clean: bool
) -> None:
    leave_subscribed(server, ("t", 1))

    with slow(server):
        wire = Wire(server.port)
        connack = wire.connect("reader", clean=is_clean)
        assert connack.session_present is not is_clean

    wire.close()
    arrive(server, "reader", present=False).close()


def test_a_session_that_a_disconnect_ended_is_gone_when_the_connection_ends(
    server: PoweredLife,
) -> None:
    leave_subscribed(server, ("wills", 1))
    mortal = arrive(server, "mortal", will=WILL)
    leaver = arrive(server, "leaver")

    with slow(server):
        mortal.send(mqtt.disconnect())
        leaver.send(mqtt.disconnect(props={"session_expiry_interval": 0}))
        for wire in (mortal, leaver):
            wire.expect_close()
            wire.close()

    with arrive(server, "reader", present=True) as reader:
        assert messages(reader) == []
    arrive(server, "leaver", present=False).close()


def test_retained_messages_come_behind_the_suback(server: PoweredLife) -> None:
    with Wire(server.port) as writer:
        writer.connect("writer")
        writer.publish("t", b"!", qos=1, retain=True)
    reader = arrive(server, "reader")

    server.control["sync_us"] = SLOW_US
    reader.send(mqtt.subscribe(("t", 1)))

    assert [reader.receive().kind for _ in range(2)] == [mqtt.SUBACK, mqtt.PUBLISH]
    reader.close()


def test_a_store_that_fails_leaves_its_wills_to_the_next_broker(server: PoweredLife) -> None:
    leave_subscribed(server, ("wills", 1))
    reader = arrive(server, "reader", present=True)
    mortal = arrive(server, "mortal", will=WILL)
    server.control["fail_sync"] = 1

    mortal.send(mqtt.publish("t", b"!", qos=2, packet_id=1))
    found = reader.receive_until_close()
    for wire in (reader, mortal):
        wire.close()
    assert server.wait() == 74

    assert [one.payload for one in found if one.kind == mqtt.PUBLISH] == []
    server.start()
    with arrive(server, "reader", present=True) as reader:
        assert reader.receive_publish().payload == b"gone"
        assert waiting(reader) == []


def test_an_embedded_broker_whose_store_fails_stops_and_says_so(tmp_path: Path) -> None:
    server = PoweredLife(tmp_path / "disk")
    program = """
        import sys
        from mqttcore import Broker, Settings, StoreFailedError
        from mqttcore.config import Listener

        listeners = (Listener(address="127.0.0.1:0", anonymous=True),)
        try:
            with Broker(Settings(listeners=listeners, data=sys.argv[1])) as broker:
                print("up", flush=True)
                sys.stdin.readline()
                try:
                    broker.publish("t", b"!", qos=1, retain=True)
                except StoreFailedError:
                    print("refused", flush=True)
                print(broker.failure(within=30.0) is not None, broker.is_running, flush=True)
                try:
                    broker.stats()
                except StoreFailedError:
                    print("failed", flush=True)
        except StoreFailedError as error:
            print("left:", error, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(server.data)]
    with subprocess.Popen(  # noqa: S603 -- our own command
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=server.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "up\n"
        server.control["fail_sync"] = 1
        told, _ = process.communicate("go on\n", timeout=60)

    lines = told.splitlines()
    assert lines[-3:-1] == ["True False", "failed"]
    assert lines[-1].startswith("left:")
    assert "sync" in lines[-1]
