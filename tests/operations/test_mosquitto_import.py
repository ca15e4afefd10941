"""`mqttcore store import-mosquitto`: the state of a real Mosquitto, and files that are none."""

from __future__ import annotations

import contextlib
import getpass
import json
import pathlib
import shutil
import struct
import subprocess
from collections.abc import Iterator

import pytest
from mqttcore import Broker, store
from mqttcore.config import Listener, Settings
from mqttcore.mosquitto_db import HEADER, MAGIC

from tests.operations.sys_diff import free_port, wait_for
from tests.wire import PUBLISH, PUBREC, PUBREL, Wire, ack, publish

COMMAND = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
user {user}
"""
needs_mosquitto = pytest.mark.skipif(COMMAND is None, reason="mosquitto is not installed")


@contextlib.contextmanager
def mosquitto(folder: pathlib.Path) -> Iterator[int]:
    """Runs Mosquitto, yields its port; it writes `mosquitto.db` when it ends."""
    assert COMMAND is not None
    folder.mkdir()
    config = folder / "mosquitto.conf"
    port = free_port()
    config.write_text(CONFIG.format(port=port, folder=folder, user=getpass.getuser()))
    with subprocess.Popen([COMMAND, "-c", config], stderr=subprocess.DEVNULL) as process:  # noqa: S603 -- found on a fixed path
        try:
            wait_for(port)
            yield port
        finally:
            process.terminate()


def away(port: int, client_id: str, *filters: str, version: int = 5, qos: int = 1) -> None:
    """Leaves a session with subscriptions."""
    props = {"session_expiry_interval": 3_600} if version == 5 else None
    with Wire(port, version=version) as wire:
        wire.connect(client_id, clean=False, props=props)
        for number, text in enumerate(filters, 1):
            ids = {"subscription_identifier": 40 + number} if version == 5 else None
            wire.subscribe((text, qos), props=ids, packet_id=number)
        wire.disconnect()


def imported(
    file: pathlib.Path, folder: pathlib.Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str, str]:
    """Status, output and errors of an import."""
    status = store.main(["import-mosquitto", str(file), str(folder), *more])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@contextlib.contextmanager
def mqttcore(folder: pathlib.Path) -> Iterator[int]:
    """Runs a broker on the folder; yields its port."""
    listeners = (Listener(address="127.0.0.1:0", anonymous=True),)
    with Broker(Settings(listeners=listeners, data=str(folder))) as broker:
        yield broker.port


@needs_mosquitto
def test_sessions_queues_and_retained_messages_go_on(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mosquitto(tmp_path / "mosquitto") as port:
        away(port, "old", "plant/#", version=4)
        away(port, "new", "plant/+", "other/#", qos=2)
        with Wire(port) as wire:
            wire.connect("publisher")
            props = {"content_type": "text/plain", "user_property": ("unit", "°C")}
            wire.publish("plant/1", b"kept", qos=1, retain=True, props=props)
            for number in range(3):
                wire.publish("plant/2", b"%d" % number, qos=2)
            wire.publish("plant/3", b"short", qos=1, props={"message_expiry_interval": 1_000})
            wire.disconnect()
    file = tmp_path / "mosquitto" / "mosquitto.db"

    status, out, _ = imported(file, tmp_path / "data", capsys)

    assert status == 0
    assert json.loads(out) == {
        "sessions": 2,
        "subscriptions": 3,
        "queued": 10,
        "in_flight": 0,
        "retained": 1,
        "expired_sessions": 0,
        "expired_messages": 0,
        "left_out": [],
    }
    with mqttcore(tmp_path / "data") as port:
        with Wire(port, version=4) as old:
            assert old.connect("old", clean=False).session_present
            found = [old.receive_publish().payload for _ in range(5)]
            assert found == [b"kept", b"0", b"1", b"2", b"short"]
        with Wire(port) as new:
            new.connect("new", clean=False, props={"session_expiry_interval": 60})
            first = new.receive_publish()
            assert first.property("content_type") == "text/plain"
            assert first.property("user_property") == [("unit", "°C")]
            assert first.property("subscription_identifier") == [41]
            assert [new.receive_publish().payload for _ in range(3)] == [b"0", b"1", b"2"]
            last = new.receive_publish()
            left_s = last.property("message_expiry_interval")
            assert isinstance(left_s, int)
            assert 900 < left_s <= 1_000
            with Wire(port) as publisher:
                publisher.connect("publisher")
                publisher.publish("other/a", b"live", qos=2)
            assert new.receive_publish().payload == b"live"
        with Wire(port) as late:
            late.connect("late")
            late.subscribe(("#", 1))
            kept = late.receive_publish()
            assert (kept.topic, kept.payload, kept.retain) == ("plant/1", b"kept", True)


@needs_mosquitto
def test_messages_in_flight_go_on_and_one_that_is_not_released_is_refused_by_name(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"session_expiry_interval": 3_600}
    with mosquitto(tmp_path / "mosquitto") as port, Wire(port) as reader, Wire(port) as wire:
        reader.connect("reader", clean=False, props=kept)
        reader.subscribe(("a", 2))
        wire.connect("publisher")
        wire.publish("a", b"sent", qos=1)
        wire.publish("a", b"released", qos=2)
        sent, half = reader.expect(PUBLISH), reader.expect(PUBLISH)
        reader.send(ack(PUBREC, half.packet_id or 0))
        reader.expect(PUBREL)
        with Wire(port) as sender:
            sender.connect("sender", clean=False, props=kept)
            sender.send(publish("a", b"open", qos=2, packet_id=9))
            sender.expect(PUBREC)
    file = tmp_path / "mosquitto" / "mosquitto.db"

    status, out, error = imported(file, tmp_path / "data", capsys)

    assert (status, out) == (1, "")
    assert "client 'sender': it has not released its QoS 2 message 9 of topic 'a'" in error
    assert "nothing was written; --accept-loss leaves these out" in error
    assert not (tmp_path / "data").exists()

    status, out, _ = imported(file, tmp_path / "data", capsys, "--accept-loss")

    found = json.loads(out)
    assert (status, found["sessions"], found["in_flight"], found["queued"]) == (0, 2, 2, 0)
    assert len(found["left_out"]) == 1
    with mqttcore(tmp_path / "data") as port, Wire(port) as reader:
        reader.connect("reader", clean=False, props=kept)
        packets = [reader.receive(), reader.receive()]
        by_kind = {one.name: one for one in packets}
        again = by_kind["PUBLISH"]
        assert (again.packet_id, again.dup) == (sent.packet_id, True)
        assert again.payload == b"sent"
        assert by_kind["PUBREL"].packet_id == half.packet_id


def text(raw: bytes) -> bytes:
    return struct.pack(">H", len(raw)) + raw


def of_version_4(*chunks: tuple[int, bytes]) -> bytes:
    """A file as Mosquitto 1.5.6 wrote it."""
    parts = [HEADER.pack(MAGIC, 0, 4)]
    for kind, content in chunks:
        parts += [struct.pack(">HI", kind, len(content)), content]
    return b"".join(parts)


MESSAGE_4 = (struct.pack("<Q", 5) + text(b"from") + text(b"") + struct.pack(">HHH", 1883, 1, 0)) + (
    text(b"a/b") + struct.pack(">BBI", 1, 1, 3) + b"hot"
)
QUEUED_4 = text(b"meter") + struct.pack("<Q", 5) + struct.pack(">HBBBBB", 1, 1, 0, 1, 11, 0)


def test_a_file_of_version_4_is_read(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(
        of_version_4(
            (1, struct.pack("<BBQ", 1, 8, 5)),
            (2, MESSAGE_4),
            (6, text(b"meter") + struct.pack("<Hq", 1, 0)),
            (3, QUEUED_4),
            (4, struct.pack("<Q", 5)),
            (5, text(b"meter") + text(b"a/#") + b"\x01"),
        )
    )

    status, out, _ = imported(file, tmp_path / "data", capsys)

    found = json.loads(out)
    counts = [found[name] for name in ("sessions", "subscriptions", "queued", "retained")]
    assert (status, counts, found["left_out"]) == (0, [1, 1, 1, 1], [])
    with mqttcore(tmp_path / "data") as port, Wire(port, version=4) as wire:
        wire.connect("meter", clean=False)
        assert wire.receive_publish().payload == b"hot"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is empty"),
        (b"x" * 100, "no persistence file of Mosquitto"),
        (HEADER.pack(MAGIC, 0, 7), "version 7 of the format; 4 to 6"),
        (of_version_4((1, b"\x00\x04" + b"\0" * 8)), "identifiers have 4 bytes"),
        (of_version_4((9, b"")), "unknown kind 9"),
        (of_version_4((2, MESSAGE_4))[:-1], "cut off: copy it after Mosquitto has stopped"),
        (of_version_4((5, text(b"m"))), "a chunk is shorter than its fields"),
        (of_version_4((2, b"short")), "a chunk is shorter than its fields"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    problem: str,
) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(content)

    status, _, error = imported(file, tmp_path / "data", capsys)

    assert (status, error.startswith(f"mqttcore store: {file}: ")) == (1, True)
    assert problem in error
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([(5, text(b"m") + text(b"a") + b"\0")], "client 'm': the file has its subscriptions"),
        ([(6, text(b"\xff") + b"\0" * 10)], "the client identifier is no text of MQTT"),
        (
            [(6, text(b"m") + b"\0" * 10), (5, text(b"m") + text(b"a/#/b") + b"\0")],
            "client 'm': subscription 'a/#/b': ",
        ),
        (
            [(2, MESSAGE_4.replace(b"a/b", b"a/+")), (4, struct.pack("<Q", 5))],
            "retained message of topic 'a/+': ",
        ),
    ],
)
def test_what_cannot_be_taken_over_is_named_and_left_out_on_demand(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    chunks: list[tuple[int, bytes]],
    problem: str,
) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(of_version_4(*chunks))

    status, _, error = imported(file, tmp_path / "data", capsys)
    accepted, out, _ = imported(file, tmp_path / "data", capsys, "--accept-loss")

    assert (status, accepted) == (1, 0)
    assert problem in error
    assert problem in json.loads(out)["left_out"][0]


def test_a_missing_file_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, error = imported(tmp_path / "none", tmp_path / "data", capsys)

    assert (status, error) == (
        1,
        f"mqttcore store: {tmp_path / 'none'}: No such file or directory\n",
    )


def test_a_folder_with_content_is_not_touched(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(of_version_4())

    status, _, error = imported(file, tmp_path, capsys)

    assert status == 1
    assert "not empty" in error
    assert list(tmp_path.iterdir()) == [file]
