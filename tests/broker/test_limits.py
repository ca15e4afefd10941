"""Receive Maximum and Maximum Packet Size, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests import wire as mqtt
from tests.wire import Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_is_under_way_than_the_client_allows(client: Open, topic: str, qos: int) -> None:
    receiver, sender = client(props={"receive_maximum": 2}), client()
    receiver.subscribe((topic, qos))

    for number in range(1, 6):
        sender.publish(topic, b"%d" % number, qos=qos, packet_id=number)

    first = [receiver.expect(mqtt.PUBLISH), receiver.expect(mqtt.PUBLISH)]
    receiver.ping()
    receiver.acknowledge(first[0])
    third = receiver.expect(mqtt.PUBLISH)
    receiver.ping()
    assert mqtt.payloads([*first, third]) == [b"1", b"2", b"3"]


def test_no_more_bytes_are_under_way_than_the_limit_says(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    port = start_broker(max_inflight_bytes=100 + 2 * len(topic)).port
    receiver, sender = client(port=port), client(port=port)
    receiver.subscribe((topic, 1))
    payloads = [b"a" * 50, b"b" * 50, b"c" * 200, b"d"]

    for number, payload in enumerate(payloads, 1):
        sender.publish(topic, payload, qos=1, packet_id=number)

    first, second = receiver.expect(mqtt.PUBLISH), receiver.expect(mqtt.PUBLISH)
    receiver.ping()
    receiver.acknowledge(first)
    receiver.ping()
    receiver.acknowledge(second)
    alone = receiver.expect(mqtt.PUBLISH)
    receiver.ping()
    receiver.acknowledge(alone)
    last = receiver.expect(mqtt.PUBLISH)
    assert mqtt.payloads([first, second, alone, last]) == payloads


def test_pubrec_alone_does_not_free_receive_maximum(client: Open, topic: str) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 2))
    for number in (1, 2):
        sender.publish(topic, b"%d" % number, qos=2, packet_id=number)
    first = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(mqtt.PUBREC, first.packet_id or 0))
    receiver.expect(mqtt.PUBREL)
    receiver.ping()
    receiver.send(mqtt.ack(mqtt.PUBCOMP, first.packet_id or 0))

    assert receiver.receive_publish().payload == b"2"


def test_qos_0_passes_a_used_up_receive_maximum(client: Open, topic: str) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 1))
    sender.publish(topic, b"1", qos=1)
    sender.publish(topic, b"2", qos=1, packet_id=2)
    receiver.expect(mqtt.PUBLISH)

    sender.publish(topic, b"0", qos=0)

    assert receiver.expect(mqtt.PUBLISH).payload == b"0"


def test_3_x_clients_have_the_brokers_own_receive_maximum(client: Open, topic: str) -> None:
    receiver, sender = client(version=4), client(version=4)
    receiver.subscribe((topic, 1))

    for number in range(1, 41):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number)

    found = [receiver.expect(mqtt.PUBLISH) for _ in range(32)]
    receiver.ping()
    for each in found:
        receiver.acknowledge(each)
    rest = [receiver.expect(mqtt.PUBLISH) for _ in range(8)]
    numbers = [int(each.payload) for each in [*found, *rest]]
    assert numbers == list(range(1, 41))


def test_the_brokers_receive_maximum_may_be_used_up_and_reused(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    port = start_broker(receive_maximum=3).port
    sender = client(port=port)

    for _ in range(3):
        for number in (1, 2, 3):
            sender.send(mqtt.publish(topic, qos=2, packet_id=number))
            sender.expect(mqtt.PUBREC)
        for number in (1, 2, 3):
            sender.send(mqtt.ack(mqtt.PUBREL, number))
            sender.expect(mqtt.PUBCOMP)

    sender.ping()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_is_spared_what_is_too_large_for_it(client: Open, topic: str, qos: int) -> None:
    receiver, other = client(props={"maximum_packet_size": 200}), client()
    for each in (receiver, other):
        each.subscribe((topic, qos))
    sender = client()

    sender.publish(topic, b"x" * 200, qos=qos)
    sender.publish(topic, b"small", qos=qos, packet_id=2)

    assert len(other.receive_publish().payload) == 200
    assert receiver.receive_publish().payload == b"small"
    receiver.ping()


def test_a_packet_that_was_too_large_uses_no_receive_maximum(client: Open, topic: str) -> None:
    receiver = client(props={"maximum_packet_size": 200, "receive_maximum": 1})
    receiver.subscribe((topic, 1))
    sender = client()

    for number in (1, 2, 3):
        sender.publish(topic, b"x" * 200, qos=1, packet_id=number)
    sender.publish(topic, b"small", qos=1, packet_id=4)

    assert receiver.receive_publish().payload == b"small"


def test_a_packet_of_the_largest_size_is_taken(
    start_broker: Callable[..., Broker], client: Open, topic: str, version: int
) -> None:
    port = start_broker(maximum_packet_size=2_048).port
    one = client(version=version, port=port)
    frame = mqtt.publish(topic, b"", version=version)
    fitting = mqtt.publish(topic, b"x" * (2_048 - len(frame) - 1), version=version)
    assert len(fitting) == 2_048

    one.send(fitting)

    one.ping()


def test_a_packet_beyond_the_largest_size_ends_the_connection(
    start_broker: Callable[..., Broker], client: Open, topic: str, version: int
) -> None:
    port = start_broker(maximum_packet_size=2_048).port
    one = client(version=version, port=port)

    one.send(mqtt.publish(topic, b"x" * 2_048, version=version))

    one.expect_refusal(0x95)


def test_a_full_queue_keeps_the_oldest(
    start_broker: Callable[..., Broker], client: Open, topic: str, version: int
) -> None:
    port = start_broker(queue_messages=3).port
    keep: dict[str, Any] = {"version": version, "clean": False, "port": port}
    if version == 5:
        keep["props"] = {"session_expiry_interval": 60}
    receiver, sender = client("away", **keep), client(port=port)
    receiver.subscribe((topic, 1))
    receiver.disconnect()

    for number in range(1, 6):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number)

    again = client("away", **keep)
    assert mqtt.payloads([again.receive_publish() for _ in range(3)]) == [b"1", b"2", b"3"]
    again.ping()
