"""The end of a broker: clients are told, sockets are closed, the port is free."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_clients_are_told_and_closed(fresh_broker: Broker, client: Open, version: int) -> None:
    one = client(version=version, port=fresh_broker.port)

    fresh_broker.stop()

    one.expect_refusal(0x8B)


def test_half_connected_clients_are_closed(fresh_broker: Broker, wire: Open) -> None:
    one = wire(port=fresh_broker.port)
    one.send(b"\x10")

    fresh_broker.stop()

    one.expect_close()


def test_the_port_is_free_afterwards(fresh_broker: Broker, client: Open) -> None:
    port = fresh_broker.port
    one = client(port=port)
    fresh_broker.stop()
    one.expect_refusal(0x8B)

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_what_was_sent_before_the_end_arrives(
    fresh_broker: Broker, client: Open, topic: str
) -> None:
    receiver, sender = client(port=fresh_broker.port), client(port=fresh_broker.port)
    receiver.subscribe((topic, 1))
    for number in range(1, 11):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number)

    fresh_broker.stop()

    found = [receiver.expect(mqtt.PUBLISH) for _ in range(10)]
    assert mqtt.payloads(found) == [b"%d" % number for number in range(1, 11)]
    receiver.expect_refusal(0x8B)


def test_stopping_twice_is_no_error(fresh_broker: Broker) -> None:
    fresh_broker.stop()
    fresh_broker.stop()


def test_two_brokers_do_not_meet(
    fresh_broker: Broker, broker: Broker, client: Open, topic: str
) -> None:
    one, other = client(port=fresh_broker.port), client(port=broker.port)
    one.subscribe(topic)
    other.subscribe(topic)

    one.publish(topic, b"x")

    assert one.receive_publish().payload == b"x"
    other.ping()


def test_a_will_is_kept_for_a_session_that_is_kept(fresh_broker: Broker, client: Open) -> None:
    one = client(
        port=fresh_broker.port,
        props={"session_expiry_interval": 60},
        will=Will(topic="will", properties={"will_delay_interval": 60}),
    )

    fresh_broker.stop()

    one.expect_refusal(0x8B)
