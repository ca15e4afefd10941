"""Section 3.3.4 of MQTT 5.0: Receive Maximum, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.spec("5.0", "MQTT-3.3.4-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_may_fill_the_servers_receive_maximum_again_and_again(
    start_broker: Callable[..., Broker], wire: Open, topic: str, qos: int
) -> None:
    one = wire(port=start_broker(receive_maximum=3).port)
    assert one.connect("x").property("receive_maximum") == 3

    for _ in range(3):
        one.send(*[mqtt.publish(topic, qos=qos, packet_id=number) for number in (1, 2, 3)])
        for number in (1, 2, 3):
            answer = one.expect(mqtt.PUBACK if qos == 1 else mqtt.PUBREC)
            assert answer.packet_id == number
        if qos == 2:
            one.send(*[mqtt.ack(mqtt.PUBREL, number) for number in (1, 2, 3)])
            assert [one.expect(mqtt.PUBCOMP).packet_id for _ in range(3)] == [1, 2, 3]

    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-7")
def test_a_client_beyond_the_servers_receive_maximum_is_disconnected(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=3).port)
    for number in (1, 2, 3):
        one.send(mqtt.publish(topic, qos=2, packet_id=number))
        one.expect(mqtt.PUBREC)

    one.send(mqtt.publish(topic, qos=2, packet_id=4))

    one.expect_refusal(0x93)


@pytest.mark.spec("5.0", "MQTT-3.3.4-8")
def test_at_the_servers_receive_maximum_everything_else_is_still_taken(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=1).port)
    one.send(mqtt.publish(topic, qos=2, packet_id=1))
    one.expect(mqtt.PUBREC)

    one.subscribe(topic)
    one.publish(topic, b"qos 0")
    one.unsubscribe(topic)

    assert one.receive_publish().payload == b"qos 0"
    one.send(mqtt.ack(mqtt.PUBREL, 1))
    one.expect_bytes(bytes.fromhex("70 02 00 01"))


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
@pytest.mark.parametrize("maximum", [1, 2, 10])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_stays_within_the_clients_receive_maximum(
    client: Open, topic: str, maximum: int, qos: int
) -> None:
    receiver, sender = client(props={"receive_maximum": maximum}), client()
    receiver.subscribe((topic, qos))
    for number in range(maximum + 2):
        sender.publish(topic, b"%d" % number, qos=qos)

    first = [receiver.expect(mqtt.PUBLISH) for _ in range(maximum)]
    receiver.ping()
    receiver.acknowledge(first[0])
    next_one = receiver.expect(mqtt.PUBLISH)
    receiver.ping()

    found = [each.payload for each in [*first, next_one]]
    assert found == [b"%d" % number for number in range(maximum + 1)]


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
def test_pubrec_alone_gives_no_room_and_an_error_pubrec_does(client: Open, topic: str) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    receiver.subscribe((topic, 2))
    for number in range(3):
        sender.publish(topic, b"%d" % number, qos=2)

    first = receiver.expect(mqtt.PUBLISH).packet_id or 0
    receiver.send(mqtt.ack(mqtt.PUBREC, first))
    receiver.expect(mqtt.PUBREL)
    receiver.ping()
    receiver.send(mqtt.ack(mqtt.PUBCOMP, first))
    second = receiver.expect(mqtt.PUBLISH)
    receiver.send(mqtt.ack(mqtt.PUBREC, second.packet_id or 0, 0x80))

    assert receiver.receive_publish().payload == b"2"


@pytest.mark.spec("5.0", "MQTT-3.3.4-9")
def test_a_resumed_session_stays_within_the_new_connections_receive_maximum(
    client: Open, topic: str
) -> None:
    name, sender = unique("c"), client()
    old = client(name, keep=True)
    old.subscribe((topic, 1))
    for _ in range(5):
        sender.publish(topic, qos=1)
        old.expect(mqtt.PUBLISH)
    old.close()

    new = client(name, keep=True, props={"receive_maximum": 2})

    found = [new.expect(mqtt.PUBLISH) for _ in range(2)]
    new.ping()
    new.acknowledge(found[0])
    new.expect(mqtt.PUBLISH)
    new.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.4-10")
def test_a_full_quota_of_the_client_delays_nothing_but_publish(
    client: Open, version: int, topic: str
) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 2))
    for _ in range(2):
        sender.publish(topic, qos=2)
    open_one = one.expect(mqtt.PUBLISH).packet_id or 0

    one.subscribe(f"{topic}/other")
    one.unsubscribe(f"{topic}/other")
    one.publish(f"{topic}/x", qos=1)
    one.publish(f"{topic}/x", qos=2)
    one.ping()
    one.send(mqtt.ack(mqtt.PUBREC, open_one))

    one.expect_bytes(b"\x62\x02" + open_one.to_bytes(2, "big"))


@pytest.mark.spec("5.0", "MQTT-3.3.4-10")
def test_a_full_quota_of_the_client_does_not_delay_qos_0(client: Open, topic: str) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 1))
    for payload in (b"in flight", b"waits"):
        sender.publish(topic, payload, qos=1)
    one.expect(mqtt.PUBLISH)

    sender.publish(topic, b"qos 0")

    assert one.expect(mqtt.PUBLISH).payload == b"qos 0"
