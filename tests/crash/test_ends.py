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
from tests.crash.test_promise import arrive, leave_subscribed, messages, waiting
from tests.wire import Will, Wire

SLOW_US = 300_000
WILL = Will(topic="wills", payload=b"gone", qos=1)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[PoweredLife]:
    """A broker whose disk keeps nothing that was not synced."""
    life = PoweredLife(tmp_path / "disk")
    life.forgets_all = True
    life.start()
    yield life
    life.is_cut = False
    life.kill()


@contextlib.contextmanager
def slow(life: PoweredLife) -> Iterator[None]:
    """Syncs take long in here; at the end the power goes, and the next broker starts."""
    life.control["sync_us"] = SLOW_US
    yield
    life.control["sync_us"] = 0
    life.crash()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean start", "no expiry"])
def test_a_session_that_a_connack_ended_does_not_come_back(
    life: PoweredLife, is_clean: bool
) -> None:
    leave_subscribed(life, ("t", 1))

    with slow(life):
        wire = Wire(life.port)
        connack = wire.connect("reader", clean=is_clean)
        assert connack.session_present is not is_clean

    wire.close()
    arrive(life, "reader", present=False).close()


def test_what_a_disconnect_ended_is_over_when_the_connection_ends(life: PoweredLife) -> None:
    leave_subscribed(life, ("wills", 1))
    mortal = arrive(life, "mortal", will=WILL)
    leaver = arrive(life, "leaver")

    with slow(life):
        mortal.send(mqtt.disconnect())
        leaver.send(mqtt.disconnect(props={"session_expiry_interval": 0}))
        for wire in (mortal, leaver):
            wire.expect_close()
            wire.close()

    with arrive(life, "reader", present=True) as reader:
        assert messages(reader) == []
    arrive(life, "leaver", present=False).close()


def test_retained_messages_come_behind_the_suback(life: PoweredLife) -> None:
    with Wire(life.port) as writer:
        writer.connect("writer")
        writer.publish("t", b"!", qos=1, retain=True)
    reader = arrive(life, "reader")

    life.control["sync_us"] = SLOW_US
    reader.send(mqtt.subscribe(("t", 1)))

    assert [reader.receive().kind for _ in range(2)] == [mqtt.SUBACK, mqtt.PUBLISH]
    reader.close()


def test_a_store_that_fails_leaves_its_wills_to_the_next_broker(life: PoweredLife) -> None:
    leave_subscribed(life, ("wills", 1))
    reader = arrive(life, "reader", present=True)
    mortal = arrive(life, "mortal", will=WILL)
    life.control["fail_sync"] = 1

    mortal.send(mqtt.publish("t", b"!", qos=2, packet_id=1))
    found = reader.receive_until_close()
    for wire in (reader, mortal):
        wire.close()
    assert life.wait() == 74

    assert [one.payload for one in found if one.kind == mqtt.PUBLISH] == []
    life.start()
    with arrive(life, "reader", present=True) as reader:
        assert reader.receive_publish().payload == b"gone"
        assert waiting(reader) == []


def test_an_embedded_broker_whose_store_fails_stops_and_says_so(tmp_path: Path) -> None:
    life = PoweredLife(tmp_path / "disk")
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
    command = [sys.executable, "-c", textwrap.dedent(program), str(life.data)]
    with subprocess.Popen(  # noqa: S603 -- our own command
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=life.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "up\n"
        life.control["fail_sync"] = 1
        told, _ = process.communicate("go on\n", timeout=60)

    lines = told.splitlines()
    assert lines[-3:-1] == ["True False", "failed"]
    assert lines[-1].startswith("left:")
    assert "sync" in lines[-1]
