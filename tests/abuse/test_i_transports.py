"""Abuse table I: what is sent over WebSocket. TLS is in `test_i_tls.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from mqttcore.config import ServerLimits

from tests import wire as mqtt
from tests.abuse.beside import Beside
from tests.conftest import both_transports
from tests.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    HttpWire,
    WebSocketWire,
    frame,
    upgrade,
)
from tests.wire import unique

if TYPE_CHECKING:
    from mqttcore import Broker

OpenWeb = Callable[..., WebSocketWire]
LONG_HEADER = b"\x7f\xff\xff\xff\xff\xff\xff\xff"


@pytest.fixture
def admitted(web: OpenWeb) -> WebSocketWire:
    """A client in frames that has its CONNACK."""
    one = web()
    one.connect(unique())
    return one


def refusal(port: int, request: bytes) -> int:
    """The status that answers `request`; a body says why, and the connection ends."""
    one = HttpWire(port)
    one.send(request)
    response = one.response()
    body = response.rest + one.rest()
    one.close()
    assert response.headers["content-length"] == str(len(body))
    assert "sec-websocket-accept" not in response.headers
    return response.status


@pytest.mark.parametrize("when", ["before CONNECT", "after CONNACK"])
@pytest.mark.parametrize(
    "bad",
    [
        frame(BINARY, mqtt.pingreq(), masked=False),
        frame(BINARY, mqtt.pingreq(), reserved=0b100),
        frame(BINARY, mqtt.pingreq(), reserved=0b010),
        frame(BINARY, mqtt.pingreq(), reserved=0b001),
        frame(0x3, mqtt.pingreq()),
        frame(0xB, mqtt.pingreq()),
        frame(PING, b"x" * 126),
        frame(PING, b"x", final=False),
        frame(CLOSE, b"x"),
        frame(CLOSE, (1_005).to_bytes(2, "big")),
        frame(CONTINUATION, mqtt.pingreq()),
        frame(BINARY, b"\xc0", final=False) + frame(BINARY, b"\x00"),
    ],
    ids=lambda bad: bad[:2].hex(),
)
def test_i06_a_frame_that_breaks_a_rule_is_closed_with_1002(
    web: OpenWeb, bystander: Beside, when: str, bad: bytes
) -> None:
    one = web()
    if when == "after CONNACK":
        one.connect(unique())

    one.send_raw(bad)

    one.expect_closing(1_002)
    bystander.check()


def test_i07_a_length_of_63_bits_ends_at_the_header(
    admitted: WebSocketWire, bystander: Beside
) -> None:
    admitted.send_raw(bytes([0x80 | BINARY, 0xFF]) + LONG_HEADER + bytes(4))

    admitted.expect_closing(1_009)
    bystander.check()


def test_i07_a_message_in_endless_fragments_ends_at_the_cap(
    admitted: WebSocketWire, bystander: Beside
) -> None:
    admitted.send_frame(BINARY, b"", final=False)
    admitted.send_raw(frame(CONTINUATION, b"", final=False) * 1_024)

    admitted.expect_closing(1_008)
    bystander.check()


def test_i07_a_packet_beyond_the_maximum_is_refused_by_its_own_reason(
    admitted: WebSocketWire,
) -> None:
    admitted.send(b"\x30" + mqtt.var_int(ServerLimits().maximum_packet_size))

    admitted.expect_refusal(0x95)


def test_i08_a_text_frame_is_closed_with_1003(admitted: WebSocketWire, bystander: Beside) -> None:
    admitted.send_frame(TEXT, mqtt.pingreq())

    admitted.expect_closing(1_003)
    bystander.check()


@pytest.mark.parametrize(
    ("status", "request_bytes"),
    [
        (400, upgrade(leave_out="Sec-WebSocket-Protocol")),
        (400, upgrade(Sec_WebSocket_Protocol="chat, soap")),
        (400, upgrade(leave_out="Sec-WebSocket-Key")),
        (400, upgrade(Sec_WebSocket_Key="short")),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        (400, mqtt.connect("plain")),
        (400, b"GET /mqtt\x00 HTTP/1.1\r\n\r\n"),
        (403, upgrade(Origin="https://evil.example")),
        (403, upgrade(Origin="null")),
        (403, upgrade(Host="evil.example:8083", Origin="http://evil.example:8083")),
        (404, upgrade("/")),
        (404, upgrade("/mqtt/../admin")),
        (405, upgrade(method="POST")),
        (426, b"GET /mqtt HTTP/1.1\r\nHost: here\r\n\r\n"),
        (426, upgrade(leave_out="Connection")),
        (426, upgrade(Upgrade="h2c")),
        (426, upgrade(Sec_WebSocket_Version="8")),
        (431, upgrade(X="x" * 8_192)),
        (431, b"GET /mqtt HTTP/1.1\r\n" + b"A: b\r\n" * 1_400),
        (505, upgrade(version="HTTP/1.0")),
    ],
    ids=lambda value: value if isinstance(value, int) else None,
)
def test_i09_a_request_that_does_not_fit_is_told_so(
    websocket_port: int, bystander: Beside, status: int, request_bytes: bytes
) -> None:
    assert refusal(websocket_port, request_bytes) == status
    bystander.check()


def test_i09_slow_headers_end_at_a_deadline_that_no_byte_extends(websocket_port: int) -> None:
    one = HttpWire(websocket_port)
    began = time.monotonic()
    one.send(upgrade()[:-2])

    one.socket.settimeout(0.5)
    response = None
    while response is None:
        try:
            response = one.response()
        except TimeoutError:
            one.send(b"X: y\r\n")

    one.close()
    assert response.status == 408
    assert time.monotonic() - began > 4.5


def test_i10_compression_is_not_agreed_to(websocket_port: int) -> None:
    one = HttpWire(websocket_port)
    one.send(upgrade(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))

    assert "sec-websocket-extensions" not in one.response().headers
    one.close()


def test_i11_a_flood_of_pings_costs_others_nothing(
    admitted: WebSocketWire, bystander: Beside
) -> None:
    flood = frame(PING, b"x" * 125) * 1_000

    for _ in range(100):
        admitted.send_raw(flood)
        bystander.check()

    admitted.send(mqtt.pingreq())
    admitted.expect(mqtt.PINGRESP)
    # Only the last of those that came together is answered (RFC 6455 section 5.5.3).
    assert 0 < len(admitted.frames) < 100_000
    assert {one.opcode for one in admitted.frames} == {PONG}


def test_i11_pings_beyond_their_rate_end_the_connection(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker(
        listeners=both_transports(), exempt_addresses=(), control_packets_per_second=100
    )
    with WebSocketWire(broker.addresses[1][1]) as one:
        one.connect(unique())

        packet = None
        while packet is None or packet.kind == mqtt.PINGRESP:
            one.send_raw(frame(PING, b"x") * 150)
            one.send(mqtt.pingreq())
            packet = one.receive()

        assert (packet.kind, packet.reason) == (mqtt.DISCONNECT, 0x96)
