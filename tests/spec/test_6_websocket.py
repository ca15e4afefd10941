"""Section 6 of MQTT 3.1.1 and 5.0: MQTT over WebSocket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    HttpWire,
    WebSocketWire,
    frame,
    torn,
    upgrade,
)
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]
UNACCEPTABLE_DATA = 1_003


@pytest.fixture
def framed(web: Callable[..., WebSocketWire], version: int) -> Callable[..., WebSocketWire]:
    """Opens WebSockets of the run's version that have sent CONNECT: `framed(will=...)`."""

    def connected(**options: object) -> WebSocketWire:
        one = web(version=version)
        one.connect(unique("framed"), **options)  # type: ignore[arg-type]  # as Wire.connect says
        return one

    return connected


# --- 6.0.0-1: binary frames -----------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.spec("5.0", "MQTT-6.0.0-1")
@pytest.mark.parametrize("payload", [b"\xc0\x00", b"", b"hello"], ids=["packet", "empty", "words"])
def test_a_text_frame_ends_the_connection(
    framed: Callable[..., WebSocketWire], payload: bytes
) -> None:
    one = framed()

    one.send_frame(TEXT, payload)

    one.expect_closing(UNACCEPTABLE_DATA)


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.spec("5.0", "MQTT-6.0.0-1")
def test_a_connect_in_a_text_frame_lets_nobody_in(
    web: Callable[..., WebSocketWire], version: int
) -> None:
    one = web(version=version)

    one.send_frame(TEXT, mqtt.connect("c", version=version))

    one.expect_closing(UNACCEPTABLE_DATA)


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.spec("5.0", "MQTT-6.0.0-1")
def test_a_text_frame_loses_the_will_s_owner_not_the_will(
    framed: Callable[..., WebSocketWire], client: Open, topic: str
) -> None:
    heir = client()
    heir.subscribe(topic)
    one = framed(will=Will(topic=topic, payload=b"lost"))

    one.send_frame(TEXT, b"x")

    one.expect_closing(UNACCEPTABLE_DATA)
    assert heir.receive_publish().payload == b"lost"


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.spec("5.0", "MQTT-6.0.0-1")
def test_the_broker_sends_binary_frames_alone(
    framed: Callable[..., WebSocketWire], topic: str
) -> None:
    one = framed()
    one.subscribe((topic, 2))

    for qos in (0, 1, 2):
        one.publish(topic, b"x" * 70_000, qos=qos)
        assert one.receive_publish().payload == b"x" * 70_000
    one.ping()

    assert not one.frames


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.spec("5.0", "MQTT-6.0.0-1")
def test_frames_of_control_are_no_data(framed: Callable[..., WebSocketWire]) -> None:
    one = framed()

    one.send_frame(PING, b"are you there?")

    found = one.receive_frame()
    assert (found.opcode, found.payload) == (PONG, b"are you there?")
    one.send_frame(PONG, b"nobody asked")
    one.ping()


# --- 6.0.0-2: packets and frames ------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-2")
@pytest.mark.spec("5.0", "MQTT-6.0.0-2")
@pytest.mark.parametrize("sizes", [(1,), (2,), (3, 1), (7,), (40, 1), (1_000,)])
def test_frames_may_be_cut_anywhere(
    framed: Callable[..., WebSocketWire], topic: str, sizes: tuple[int, ...]
) -> None:
    one = framed()
    one.subscribe(topic)
    stream = b"".join(
        mqtt.publish(topic, b"%d" % each * each, version=one.version) for each in range(20)
    )

    for piece in torn(stream, sizes):
        one.send_raw(frame(BINARY, piece))

    found = [one.receive_publish() for _ in range(20)]
    assert mqtt.payloads(found) == [b"%d" % each * each for each in range(20)]


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-2")
@pytest.mark.spec("5.0", "MQTT-6.0.0-2")
def test_connect_may_be_cut_anywhere(web: Callable[..., WebSocketWire], version: int) -> None:
    for cut in range(1, 16):
        one = web(version=version)
        first, second = (data := mqtt.connect("", version=version))[:cut], data[cut:]

        one.send_raw(frame(BINARY, first) + frame(BINARY, second))

        assert one.expect(mqtt.CONNACK).reason == 0
        one.close()


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-2")
@pytest.mark.spec("5.0", "MQTT-6.0.0-2")
def test_a_frame_may_hold_many_packets_and_the_half_of_another(
    web: Callable[..., WebSocketWire], topic: str, version: int
) -> None:
    one = web(version=version)
    packets = [
        mqtt.connect("", version=version),
        mqtt.subscribe(topic, version=version),
        mqtt.publish(topic, b"x", version=version),
        mqtt.pingreq(),
    ]
    stream = b"".join(packets)

    one.send_raw(frame(BINARY, stream[:-1]) + frame(BINARY, stream[-1:]))

    for kind in (mqtt.CONNACK, mqtt.SUBACK, mqtt.PUBLISH, mqtt.PINGRESP):
        one.expect(kind)


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-2")
@pytest.mark.spec("5.0", "MQTT-6.0.0-2")
def test_a_packet_may_come_in_fragments_and_empty_frames(
    framed: Callable[..., WebSocketWire], topic: str
) -> None:
    one = framed()
    one.subscribe(topic)
    first, *rest = torn(mqtt.publish(topic, b"x" * 500, version=one.version), (90,))

    one.send_frame(BINARY)
    one.send_frame(BINARY, first, final=False)
    for piece in rest:
        one.send_frame(CONTINUATION, piece, final=False)
    one.send_frame(CONTINUATION)
    one.send_frame(BINARY)

    assert one.receive_publish().payload == b"x" * 500


# --- 6.0.0-3 and -4: the sub-protocol -------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-4")
@pytest.mark.spec("5.0", "MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", ["mqtt", "soap, mqtt", "mqtt,wamp", "mqttv3.1, mqtt"])
def test_the_broker_answers_the_sub_protocol_mqtt(
    websocket_port: int, version: int, offered: str
) -> None:
    one = HttpWire(websocket_port)

    one.send(upgrade(Sec_WebSocket_Protocol=offered))

    response = one.response()
    one.send(frame(BINARY, mqtt.connect("", version=version)))
    answer = one.socket.recv(100)
    one.close()
    assert (response.status, response.headers["sec-websocket-protocol"]) == (101, "mqtt")
    assert response.headers["sec-websocket-accept"] == ACCEPT
    # A binary frame with a CONNACK.
    assert (answer[0], answer[2], answer[4:6]) == (0x82, 0x20, b"\x00\x00")


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-3")
@pytest.mark.spec("5.0", "MQTT-6.0.0-3")
@pytest.mark.parametrize("offered", ["soap", "MQTT/5", "mqt"])
def test_a_client_that_does_not_offer_mqtt_gets_no_websocket(
    websocket_port: int, offered: str
) -> None:
    one = HttpWire(websocket_port)

    one.send(upgrade(Sec_WebSocket_Protocol=offered))

    assert one.response().status == 400
    one.close()


@pytest.mark.spec("3.1.1", "MQTT-6.0.0-3")
@pytest.mark.spec("5.0", "MQTT-6.0.0-3")
def test_a_client_that_offers_nothing_gets_no_websocket(websocket_port: int) -> None:
    one = HttpWire(websocket_port)

    one.send(upgrade(leave_out="Sec-WebSocket-Protocol"))

    assert one.response().status == 400
    one.close()


# --- beyond the statements ------------------------------------------------------------------------


@pytest.mark.beyond
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_between_frames_and_plain_tcp(
    framed: Callable[..., WebSocketWire], client: Open, topic: str, qos: int
) -> None:
    one, plain = framed(), client()
    one.subscribe((f"{topic}/in", qos))
    plain.subscribe((f"{topic}/out", qos))

    plain.publish(f"{topic}/in", b"into frames", qos=qos)
    one.publish(f"{topic}/out", b"out of frames", qos=qos)

    assert one.receive_publish().payload == b"into frames"
    assert plain.receive_publish().payload == b"out of frames"


@pytest.mark.beyond
def test_disconnect_is_answered_by_an_orderly_close(
    framed: Callable[..., WebSocketWire],
) -> None:
    one = framed()

    one.send(b"\xe0\x00")

    one.expect_closing(1_000)


@pytest.mark.beyond
def test_a_violation_is_reported_in_frames_too(framed: Callable[..., WebSocketWire]) -> None:
    one = framed()

    one.send(b"\xc1\x00")

    one.expect_refusal(0x81)
    assert one.frames.popleft().opcode == CLOSE


@pytest.mark.beyond
def test_a_websocket_close_without_disconnect_publishes_the_will(
    framed: Callable[..., WebSocketWire], client: Open, topic: str
) -> None:
    heir = client()
    heir.subscribe(topic)
    one = framed(will=Will(topic=topic, payload=b"lost"))

    one.send_frame(CLOSE, (1_000).to_bytes(2, "big"))

    one.expect_closing(1_000)
    assert heir.receive_publish().payload == b"lost"
