"""Traces beside what clients sent and received, in all formats (ADR 0058)."""

from __future__ import annotations

import http.client
import json
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore._socket_path import short
from mqttcore.config import HttpListener, Listener

from tests import wire as bytes_of
from tests.eventually import eventually
from tests.operations.api import Api, UnixConnection
from tests.operations.pcapng import streams
from tests.tls import Files, open_tls
from tests.websocket import WebSocketWire
from tests.wire import NAMES, Will, Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="there is no tshark")

TRANSPORTS = ("tcp", "ipv6", "tls", "websocket")
HOSTILE = 'a\u202e"\x07<img onerror=alert(1)>\x9b31m'


@dataclass(frozen=True)
class Place:
    """A broker with a listener for each transport, and its API."""

    broker: Broker
    api: Api
    files: Files

    def open(self, transport: str, version: int) -> Wire:
        """A connection."""
        port = self.broker.addresses[TRANSPORTS.index(transport)][1]
        if transport == "tls":
            return open_tls(port, self.files.context(), version=version)
        if transport == "websocket":
            return WebSocketWire(port, version=version)
        host = "::1" if transport == "ipv6" else "127.0.0.1"
        return Wire(port, version=version, host=host)

    def trace(self, **body: object) -> str:
        """Starts a trace; returns its identifier."""
        status, started = self.api.ask("POST", "/traces", body)
        assert status == 201, started
        return str(started["id"])

    def file(self, trace: str, form: str) -> bytes:
        """The file of a trace."""
        with (
            short(self.api.folder / "http") as socket,
            closing(UnixConnection(socket)) as connection,
        ):
            connection.request("GET", f"/api/v1/traces/{trace}/file?format={form}")
            answer = connection.getresponse()
            assert answer.status == http.client.OK
            return answer.read()

    def lines(self, trace: str) -> list[dict[str, Any]]:
        """The lines of a trace."""
        return [json.loads(line) for line in self.file(trace, "json").splitlines()]

    def packets(self, trace: str, client_id: str) -> list[dict[str, Any]]:
        """The packets of a client, without events."""
        lines = self.lines(trace)
        return [one for one in lines if one["client_id"] == client_id and one["dir"] != "broker"]

    def until(self, trace: str, packet: str, count: int = 1) -> None:
        """Waits until a trace has this packet."""

        def has() -> bool:
            return [line.get("packet") for line in self.lines(trace)].count(packet) >= count

        eventually(has)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("traces")
    files = Files.make(folder)
    settings = Settings(
        listeners=(
            Listener(address="127.0.0.1:0", name="tcp", anonymous=True),
            Listener(address="[::1]:0", name="ipv6", anonymous=True),
            Listener(address="127.0.0.1:0", name="tls", anonymous=True, tls=files.tls()),
            Listener(
                address="127.0.0.1:0", name="websocket", anonymous=True, transport="websocket"
            ),
        ),
        http=HttpListener(),
        data=str(folder / "data"),
    )
    with Broker(settings) as broker:
        yield Place(broker, Api(folder / "data"), files)


@dataclass
class Seen:
    """What a connection sent and received, packet by packet."""

    sent: list[bytes]
    received: list[bytes]


def record(wire: Wire) -> Seen:
    """Keeps what the connection sends and receives from now on."""
    seen = Seen([], [])
    send, cut = wire.send, wire._cut

    def sending(*chunks: bytes) -> None:
        seen.sent.append(b"".join(chunks))
        send(*chunks)

    def cutting() -> bytes | None:
        raw = cut()
        if raw is not None:
            seen.received.append(raw)
        return raw

    wire.send = sending  # type: ignore[method-assign] # packets, whatever the transport does
    wire._cut = cutting  # type: ignore[method-assign] # as above
    return seen


def talk(wire: Wire, client_id: str) -> None:
    """Has all packets but AUTH go both ways."""
    wire.connect(client_id, will=Will(topic="will", payload=b"last words"), username="user")
    wire.subscribe((f"{client_id}/#", 2))
    for qos in (0, 1, 2):
        payload = f"message {qos}".encode()
        wire.publish(f"{client_id}/{qos}", payload, qos=qos, packet_id=10 + qos)
        wire.receive_publish()
    wire.publish(f"{client_id}/large", b"\xff" * 150_000)
    wire.receive_publish()
    wire.unsubscribe(f"{client_id}/#")
    wire.ping()
    wire.disconnect()


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_trace_has_what_the_client_sent_and_received(
    place: Place, transport: str, version: int
) -> None:
    client_id = bytes_of.unique("c")
    trace = place.trace(where={"client_id": client_id}, payload="all")
    with place.open(transport, version) as wire:
        seen = record(wire)
        host, port = wire.socket.getsockname()[:2]

        talk(wire, client_id)

        place.until(trace, "DISCONNECT")
    ((stream,),) = (found for found in streams(place.file(trace, "pcapng")).values())
    assert stream.sent == b"".join(seen.sent)
    assert stream.received == b"".join(seen.received)
    assert stream.comments == []
    packets = place.packets(trace, client_id)
    for direction, raws in (("in", seen.sent), ("out", seen.received)):
        shown = [one for one in packets if one["dir"] == direction]
        assert [one["packet"] for one in shown] == [NAMES[raw[0] >> 4] for raw in raws]
        assert [one["bytes"] for one in shown] == [len(raw) for raw in raws]
        assert {(one["ip"], one["port"]) for one in shown} == {(host, port)}
    assert {one["packet"] for one in packets} == set(NAMES[1:15])


def test_the_fields_of_packets_are_decoded(place: Place) -> None:
    client_id = bytes_of.unique("fields")
    trace = place.trace(where={"client_id": client_id}, payload="head:4")
    with place.open("tcp", 5) as wire:
        wire.connect(client_id, username="user", password=b"hidden", props={"receive_maximum": 7})
        wire.subscribe(("f/+", 1), props={"subscription_identifier": 9})
        properties = {"user_property": [("a", "1"), ("a", "2")], "topic_alias": 3}
        wire.publish("f/1", b"text and more", qos=1, props=properties)
        wire.publish("", b"\xff\xfe", qos=1, packet_id=2, props={"topic_alias": 3})
        place.until(trace, "PUBACK", 2)

    packets = place.packets(trace, client_id)
    connect, subscribe = packets[0], packets[2]
    first, second = (one for one in packets if (one["packet"], one["dir"]) == ("PUBLISH", "in"))

    secret = connect["fields"]["password"]
    assert secret == "*" * 3
    assert connect["fields"]["username"] == "user"
    assert connect["fields"]["properties"]["receive_maximum"] == 7
    assert subscribe["fields"]["filters"][0]["filter"] == "f/+"
    assert subscribe["fields"]["properties"]["subscription_identifiers"] == [9]
    assert (first["fields"]["payload"], first["fields"]["payload_bytes"]) == ("text", 13)
    assert first["fields"]["properties"]["user_properties"] == [["a", "1"], ["a", "2"]]
    assert (second["fields"]["topic"], second["topic"]) == ("", "f/1")
    assert second["fields"]["payload_base64"] == "//4="
    assert b"hidden" not in place.file(trace, "pcapng")


def test_a_trace_of_a_topic_has_the_acknowledgements_of_its_messages(place: Place) -> None:
    client_id = bytes_of.unique("exchanges")
    trace = place.trace(where={"client_id": client_id, "topic": "x/#"})
    with place.open("tcp", 5) as wire:
        wire.connect(client_id)
        wire.subscribe(("x/1", 1), ("x/2", 2), ("y", 1))
        wire.publish("x/1", qos=1, packet_id=1)
        wire.receive_publish()
        wire.publish("y", qos=1, packet_id=1)
        wire.receive_publish()
        wire.publish("x/2", qos=2, packet_id=7)
        wire.receive_publish()
        place.until(trace, "PUBCOMP", 2)

    packets = place.packets(trace, client_id)
    one = ["in PUBLISH", "in PUBACK", "out PUBACK", "out PUBLISH"]
    two = [f"{way} {name}" for way in ("in", "out") for name in NAMES[5:8]]
    two += ["in PUBLISH", "out PUBLISH"]
    assert sorted(f"{each['dir']} {each['packet']}" for each in packets) == sorted(
        ["in SUBSCRIBE", *one, *two]
    )


def test_hostile_names_and_payloads_stay_data(place: Place) -> None:
    trace = place.trace(where={"client_id": "*onerror*"}, payload="all")
    name = HOSTILE.replace("\x07", "").replace("\x9b", "")
    with place.open("tcp", 5) as wire:
        wire.connect(name)
        payload = f'{HOSTILE}\n{{"dir":"in"}}\r\n\x1b[2J'.encode()
        wire.publish("hostile", payload, qos=1, props={"user_property": (name, "\u2028x")})
        place.until(trace, "PUBACK")

    publish = next(one for one in place.lines(trace) if one.get("packet") == "PUBLISH")
    assert publish["client_id"] == name
    assert publish["fields"]["payload"].encode() == payload
    text = place.file(trace, "text").decode()
    assert all(line.isprintable() for line in text.splitlines())

    def has_the_same_lines() -> bool:
        """The end of the connection may be written between two reads."""
        return len(place.file(trace, "text").decode().splitlines()) == len(place.lines(trace))

    eventually(has_the_same_lines)


def test_a_trace_that_begins_late_has_a_made_connect(place: Place) -> None:
    client_id = bytes_of.unique("late")
    with place.open("tcp", 5) as wire:
        wire.connect(client_id)
        trace = place.trace(where={"client_id": client_id})
        wire.publish("late", b"unseen", qos=1)
        place.until(trace, "PUBACK")

    ((stream,),) = streams(place.file(trace, "pcapng")).values()
    assert stream.comments[0].startswith("not captured")
    assert "a part is left out" in stream.comments[1]
    assert stream.sent[0] >> 4 == bytes_of.CONNECT
    assert b"unseen" not in stream.sent


def dissected(file: pathlib.Path, *arguments: str) -> list[str]:
    """Lines that tshark prints about a file."""
    program = shutil.which("tshark")
    assert program is not None
    done = subprocess.run(  # noqa: S603 -- a program of the system, and our own file
        [program, "-r", str(file), "-o", "tcp.check_checksum:TRUE", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_tshark
def test_tshark_reads_each_packet_and_finds_no_fault(place: Place, tmp_path: pathlib.Path) -> None:
    trace = place.trace(payload="head:64")
    for version in (4, 5):
        for transport in TRANSPORTS:
            with place.open(transport, version) as wire:
                talk(wire, bytes_of.unique("shark"))
    place.until(trace, "DISCONNECT", 8)
    file = tmp_path / "trace.pcapng"
    file.write_bytes(place.file(trace, "pcapng"))
    lines = place.lines(trace)
    expected = [one["packet"] for one in lines if one["dir"] != "broker"]

    faults = "_ws.malformed or tcp.analysis.flags or tcp.checksum.status == 0"
    assert dissected(file, "-Y", f"{faults} or ip.checksum.status == 0") == []
    kinds = dissected(file, "-Y", "mqtt", "-T", "fields", "-e", "mqtt.msgtype")
    names = [NAMES[int(kind)] for line in kinds for kind in line.split(",")]
    assert sorted(names) == sorted(expected)
    versions = dissected(file, "-Y", "mqtt.ver", "-T", "fields", "-e", "mqtt.ver")
    assert versions.count("4") == versions.count("5") == 4


@needs_tshark
def test_tshark_reads_a_trace_that_begins_late_and_has_large_payloads(
    place: Place, tmp_path: pathlib.Path
) -> None:
    client_id = bytes_of.unique("large")
    with place.open("ipv6", 5) as wire:
        wire.connect(client_id)
        trace = place.trace(where={"client_id": client_id}, payload="all")
        props = {"user_property": ("name", "value"), "message_expiry_interval": 60}
        wire.publish("large", bytes(200_000), qos=2, props=props)
        place.until(trace, "PUBCOMP")
    file = tmp_path / "trace.pcapng"
    file.write_bytes(place.file(trace, "pcapng"))

    assert dissected(file, "-Y", "_ws.malformed or tcp.analysis.flags") == []
    kinds = dissected(file, "-Y", "mqtt", "-T", "fields", "-e", "mqtt.msgtype")
    assert kinds == ["1", "3", "5", "6", "7"]


def test_a_trace_ends_by_itself(place: Place) -> None:
    trace = place.trace(for_s=1)

    def has_ended() -> bool:
        return place.api.ask("GET", f"/traces/{trace}")[1]["active"] is False

    eventually(has_ended)
    before = len(place.lines(trace))
    with place.open("tcp", 4) as wire:
        wire.connect(bytes_of.unique("after"))
        wire.ping()
    assert len(place.lines(trace)) == before


@pytest.fixture(autouse=True)
def no_trace_is_left(place: Place) -> Iterator[None]:
    yield
    for trace in place.api.ask("GET", "/traces")[1]["items"]:
        assert place.api.ask("DELETE", f"/traces/{trace['id']}")[0] == 204
