"""Abuse table I: PROXY headers, in front of each transport."""

from __future__ import annotations

import dataclasses
import logging
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from mqttcore.auth.certificate import Certificate
from mqttcore.config import Listener

from tests.abuse.beside import clients_of_test
from tests.eventually import eventually
from tests.tls import Files
from tests.websocket import WebSocketWire
from tests.wire import PATIENCE_S, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Start = Callable[..., "Broker"]

V1 = b"PROXY TCP4 192.0.2.7 192.0.2.9 56324 1883\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
ADDRESSES = bytes([192, 0, 2, 7, 192, 0, 2, 9]) + struct.pack(">HH", 56324, 1883)
BEHIND = Listener(address="127.0.0.1:0", anonymous=True, proxy_from=("127.0.0.1",))


def v2(rest: bytes = ADDRESSES, *, command: int = 0x21, family: int = 0x11) -> bytes:
    """A header of version 2."""
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


def tlv(kind: int, value: bytes) -> bytes:
    """One TLV."""
    return struct.pack(">BH", kind, len(value)) + value


V2 = v2(ADDRESSES + tlv(0x05, b"unique"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("tls"))


def dial(port: int, header: bytes) -> socket.socket:
    """A connection that begins with a header."""
    one = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    one.sendall(header)
    return one


def open_tcp(port: int, header: bytes, _: Files) -> Wire:
    return Wire(port, using=dial(port, header))


def open_tls(port: int, header: bytes, files: Files) -> Wire:
    plain = dial(port, header)
    return Wire(port, using=files.context().wrap_socket(plain, server_hostname="localhost"))


def open_websocket(port: int, header: bytes, _: Files) -> Wire:
    return WebSocketWire(port, first=header)


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "open_wire", [open_tcp, open_tls, open_websocket], ids=["tcp", "tls", "websocket"]
)
def test_i13_a_header_in_front_of_each_transport_says_the_peer(
    start_broker: Start, files: Files, open_wire: Callable[..., Wire], header: bytes
) -> None:
    behind = dataclasses.replace(
        BEHIND,
        tls=files.tls() if open_wire is open_tls else None,
        transport="websocket" if open_wire is open_websocket else "tcp",
    )
    running = start_broker(listeners=(behind,))

    with open_wire(running.port, header, files) as one:
        one.connect(unique("i13"))
        [session] = clients_of_test(running)

    assert session.peer == ("192.0.2.7", 56324)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"", "there is none"),
        (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "longer than 107 bytes"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.9 56324\r\n", "two addresses and two ports"),
        (V1 + V2, "PROXY header behind a PROXY header"),
        (V1 + V1, "PROXY header behind a PROXY header"),
        (V2 + V1, "PROXY header behind a PROXY header"),
        (v2(ADDRESSES + b"\x05\xff\xff"), "a TLV goes beyond"),
        (v2(family=0x41), "unknown address family"),
        (v2(family=0x12), "unknown address family"),
        (v2(command=0x31), "unknown version"),
        (v2(ADDRESSES + tlv(0x20, b"\x07\0\0\0\0" + tlv(0x22, b"a\nb"))), "control characters"),
    ],
)
def test_i13_what_is_no_valid_header_is_refused_and_logged(
    start_broker: Start, caplog: pytest.LogCaptureFixture, header: bytes, why: str
) -> None:
    caplog.set_level(logging.WARNING)
    running = start_broker(listeners=(BEHIND,))

    with Wire(running.port) as one:
        one.send(header + bytes.fromhex("100d00044d5154540502003c000000"))
        one.expect_close()

    assert clients_of_test(running) == []
    assert running.stats()["connects_refused"] == 1
    eventually(lambda: why in caplog.text, told=lambda: caplog.text)


def test_i13_a_peer_that_is_not_listed_is_refused_with_and_without_a_header(
    start_broker: Start,
) -> None:
    running = start_broker(listeners=(dataclasses.replace(BEHIND, proxy_from=("192.0.2.0/24",)),))

    for header in (V1, V2, b""):
        with Wire(running.port, using=dial(running.port, header)) as one:
            one.expect_close()

    assert running.stats()["connects_refused"] == 3


def test_i13_the_name_that_the_proxy_has_verified_is_the_user_name(
    start_broker: Start,
) -> None:
    rules = Certificate.Config(publish=("device/%u/#",), subscribe=("device/%u/#",))
    behind = dataclasses.replace(BEHIND, anonymous=False, identity="proxy_cn")
    running = start_broker(Certificate(rules), listeners=(behind,))
    certified = v2(ADDRESSES + tlv(0x20, b"\x07\0\0\0\0" + tlv(0x22, b"truck-1")))

    with Wire(0, using=dial(running.port, certified)) as one:
        one.connect(unique("i13"), username="admin")
        [session] = clients_of_test(running)
        assert session.username == "truck-1"
        assert one.subscribe("device/truck-1/#", "device/truck-2/#").reasons == (0, 0x87)
    with Wire(0, using=dial(running.port, V2)) as nobody:
        nobody.connect(unique("i13"), username="truck-1", reason=0x86)
