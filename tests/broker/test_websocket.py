"""MQTT over WebSocket: the same broker, whatever carries the packets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mqttcore import Broker
from mqttcore.config import Listener

from tests import wire as mqtt
from tests.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    HttpWire,
    WebSocketWire,
    frame,
    torn,
    upgrade,
)
from tests.wire import Wire, unique

Open = Callable[..., Wire]
OpenWeb = Callable[..., WebSocketWire]


def test_the_answer_names_the_sub_protocol_and_nothing_else(websocket_port: int) -> None:
    one = HttpWire(websocket_port)

    one.send(upgrade(Sec_WebSocket_Extensions="permessage-deflate"))

    response = one.response()
    one.close()
    assert response.status == 101
    assert response.headers == {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-accept": ACCEPT,
        "sec-websocket-protocol": "mqtt",
    }


def test_clients_of_before_3_1_1_ask_for_their_own_sub_protocol(web: OpenWeb) -> None:
    one = web(version=3, protocol="mqttv3.1")

    assert one.response.headers["sec-websocket-protocol"] == "mqttv3.1"
    one.connect(unique())


def test_the_request_may_come_byte_by_byte(websocket_port: int) -> None:
    one = HttpWire(websocket_port)

    for byte in upgrade():
        one.send(bytes([byte]))

    assert one.response().status == 101
    one.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_between_transports_both_ways(
    web: OpenWeb, client: Open, topic: str, version: int, qos: int
) -> None:
    plain = client(version=version)
    framed = web(version=version)
    framed.connect(unique())
    for one in (plain, framed):
        one.subscribe((f"{topic}/{one is plain}", qos))

    plain.publish(f"{topic}/False", b"into frames", qos=qos)
    framed.publish(f"{topic}/True", b"out of frames", qos=qos)

    assert framed.receive_publish().payload == b"into frames"
    assert plain.receive_publish().payload == b"out of frames"


def test_packets_need_not_begin_where_frames_do(web: OpenWeb, topic: str, version: int) -> None:
    one = web(version=version)
    stream = b"".join(
        [
            mqtt.connect(unique(), version=version),
            mqtt.subscribe((topic, 0), version=version),
            mqtt.publish(topic, b"first", version=version),
            mqtt.publish(topic, b"second" * 50, version=version),
            mqtt.pingreq(),
        ]
    )

    one.send_raw(b"".join(frame(BINARY, piece) for piece in torn(stream, (1, 2, 40, 3))))

    one.expect(mqtt.CONNACK)
    one.expect(mqtt.SUBACK)
    assert one.receive_publish().payload == b"first"
    assert one.receive_publish().payload == b"second" * 50
    one.expect(mqtt.PINGRESP)


def test_fragments_and_pings_between_them_make_one_stream(web: OpenWeb, topic: str) -> None:
    one = web()
    one.connect(unique())
    one.subscribe((topic, 0))
    first, *middle, last = torn(mqtt.publish(topic, b"x" * 1_000), (100,))

    one.send_frame(BINARY, first, final=False)
    for number, piece in enumerate(middle):
        one.send_frame(PING, b"%d" % number)
        assert one.receive_frame().payload == b"%d" % number
        one.send_frame(CONTINUATION, piece, final=False)
    one.send_frame(CONTINUATION, last)

    assert one.receive_publish().payload == b"x" * 1_000


def test_a_message_larger_than_a_frame_comes_whole(web: OpenWeb, topic: str) -> None:
    one = web()
    one.connect(unique())
    one.subscribe((topic, 1))
    payload = bytes(range(256)) * 2_000

    one.publish(topic, payload, qos=1)

    assert one.receive_publish().payload == payload


def test_a_session_moves_from_one_transport_to_the_other(
    web: OpenWeb, client: Open, topic: str
) -> None:
    name, kept = unique(), {"session_expiry_interval": 60}
    framed = web()
    framed.connect(name, clean=False, props=kept)
    framed.subscribe((topic, 1))
    framed.disconnect()
    framed.close()
    client().publish(topic, b"meanwhile", qos=1)

    plain = client(name, clean=False, props=kept)

    assert plain.receive_publish().payload == b"meanwhile"


def test_a_ping_does_not_keep_an_mqtt_connection_alive(web: OpenWeb) -> None:
    one = web(version=5)
    one.connect(unique(), keep_alive=1)

    one.send_frame(PING, b"alive?")

    assert one.receive_frame().opcode == PONG
    one.expect_refusal(0x8D)
    assert one.frames.popleft().opcode == CLOSE


def test_a_close_is_echoed_and_the_will_is_sent(web: OpenWeb, client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe((topic, 0))
    one = web()
    one.connect(unique(), will=mqtt.Will(topic=topic, payload=b"gone"))

    one.send_frame(CLOSE, (4_000).to_bytes(2, "big") + b"enough")

    one.expect_closing(4_000)
    assert watcher.receive_publish().payload == b"gone"


def test_disconnect_ends_with_a_close_and_without_the_will(
    web: OpenWeb, client: Open, topic: str
) -> None:
    watcher = client()
    watcher.subscribe((topic, 0))
    one = web()
    one.connect(unique(), will=mqtt.Will(topic=topic, payload=b"gone"))

    one.disconnect()

    one.expect_closing(1_000)
    watcher.ping()
    assert watcher.drain() == []


def test_a_listener_has_the_path_and_the_origins_that_it_is_told(
    start_broker: Callable[..., Broker],
) -> None:
    listener = Listener(
        address="127.0.0.1:0",
        anonymous=True,
        transport="websocket",
        path="/deep/down",
        origins=("https://example.org",),
    )
    broker = start_broker(listeners=(listener,))

    with WebSocketWire(broker.port, path="/deep/down") as one:
        one.connect(unique())
    for origin, status in [
        ("https://example.org", 101),
        (f"http://127.0.0.1:{broker.port}", 101),
        ("https://example.com", 403),
    ]:
        page = HttpWire(broker.port)
        page.send(upgrade("/deep/down", Host=f"127.0.0.1:{broker.port}", Origin=origin))
        assert page.response().status == status, origin
        page.close()
