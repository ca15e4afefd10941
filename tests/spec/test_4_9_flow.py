"""Section 4.9 of MQTT 5.0: flow control."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.fixture
def many(topic: str) -> bytes:
    """Ten messages of QoS 2 in one go."""
    return b"".join(
        mqtt.publish(topic, b"%d" % each, qos=2, packet_id=each) for each in range(1, 11)
    )


def number(found: Packet) -> bytes:
    """The packet identifier as it stands in the packet."""
    return (found.packet_id or 0).to_bytes(2, "big")


def sent(sender: Wire, many: bytes) -> None:
    """Sends the ten messages; they are all taken when this returns."""
    sender.send(many)
    for _ in range(10):
        sender.expect(mqtt.PUBREC)


# --- the broker's quota ---------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
@pytest.mark.parametrize("maximum", [1, 2, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_are_under_way_than_the_receive_maximum(
    client: Open, topic: str, many: bytes, maximum: int, qos: int
) -> None:
    one = client(props={"receive_maximum": maximum})
    one.subscribe((topic, qos))

    sent(client(), many)

    found = [one.expect(mqtt.PUBLISH) for _ in range(maximum)]
    assert mqtt.payloads(found) == [b"%d" % each for each in range(1, maximum + 1)]
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
def test_without_a_receive_maximum_all_are_sent(client: Open, topic: str, many: bytes) -> None:
    one = client()
    one.subscribe((topic, 2))

    sent(client(), many)

    assert len([one.expect(mqtt.PUBLISH) for _ in range(10)]) == 10


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
@pytest.mark.parametrize("code", [0x00, 0x80])
def test_puback_gives_one_place_back(client: Open, topic: str, many: bytes, code: int) -> None:
    one = client(props={"receive_maximum": 2})
    one.subscribe((topic, 1))
    sent(client(), many)
    first = one.expect(mqtt.PUBLISH)
    one.expect(mqtt.PUBLISH)

    one.send(mqtt.ack(mqtt.PUBACK, first.packet_id or 0, code))

    assert one.expect(mqtt.PUBLISH).payload == b"3"
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
def test_pubrec_gives_no_place_back_and_pubcomp_does(client: Open, topic: str, many: bytes) -> None:
    one = client(props={"receive_maximum": 1})
    one.subscribe((topic, 2))
    sent(client(), many)
    first = number(one.expect(mqtt.PUBLISH))

    one.send(b"\x50\x02", first)
    one.expect_bytes(b"\x62\x02" + first)
    one.ping()

    one.send(b"\x70\x02", first)
    assert one.expect(mqtt.PUBLISH).payload == b"2"


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
def test_an_error_pubrec_gives_one_place_back(client: Open, topic: str, many: bytes) -> None:
    one = client(props={"receive_maximum": 1})
    one.subscribe((topic, 2))
    sent(client(), many)

    one.send(b"\x50\x03", number(one.expect(mqtt.PUBLISH)), b"\x97")

    assert one.expect(mqtt.PUBLISH).payload == b"2"
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
def test_acknowledgements_of_nothing_do_not_raise_the_quota(
    client: Open, topic: str, many: bytes
) -> None:
    one = client(props={"receive_maximum": 1})
    one.subscribe((topic, 1))
    one.send(*(mqtt.ack(mqtt.PUBACK, each) for each in range(100, 110)))
    one.send(*(mqtt.ack(mqtt.PUBCOMP, each) for each in range(100, 110)))
    one.ping()

    sent(client(), many)

    one.expect(mqtt.PUBLISH)
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
def test_what_is_sent_again_stays_within_the_quota_of_the_new_connection(
    client: Open, topic: str, many: bytes
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    sent(client(), many)
    first = [one.expect(mqtt.PUBLISH) for _ in range(10)]
    one.send(b"\x50\x02", number(first[0]))
    one.expect(mqtt.PUBREL)
    one.close()

    again = client(name, keep=True, props={"receive_maximum": 3})

    again.expect_bytes(b"\x62\x02" + number(first[0]))
    assert mqtt.payloads([again.expect(mqtt.PUBLISH) for _ in range(2)]) == [b"2", b"3"]
    again.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
def test_each_connection_begins_with_its_whole_quota(client: Open, topic: str, many: bytes) -> None:
    name = unique("c")
    one = client(name, keep=True, props={"receive_maximum": 1})
    one.subscribe((topic, 1))
    sent(client(), many)
    one.expect(mqtt.PUBLISH)
    one.close()

    again = client(name, keep=True, props={"receive_maximum": 4})

    assert len([again.expect(mqtt.PUBLISH) for _ in range(4)]) == 4
    again.ping()


@pytest.mark.spec("5.0", "MQTT-4.9.0-3")
def test_a_used_up_quota_delays_no_other_packet(client: Open, topic: str, many: bytes) -> None:
    one = client(props={"receive_maximum": 1})
    one.subscribe((topic, 2))
    sent(client(), many)
    one.expect(mqtt.PUBLISH)

    one.ping()
    assert one.subscribe(f"{topic}/more", packet_id=2).packet_id == 2
    assert one.unsubscribe(f"{topic}/more", packet_id=3).packet_id == 3
    one.send(mqtt.publish(f"{topic}/own", qos=1, packet_id=4))
    assert one.expect(mqtt.PUBACK).packet_id == 4
    one.send(mqtt.publish(f"{topic}/own", qos=2, packet_id=5))
    assert one.expect(mqtt.PUBREC).packet_id == 5
    one.send(mqtt.ack(mqtt.PUBREL, 5))
    assert one.expect(mqtt.PUBCOMP).packet_id == 5


@pytest.mark.spec("5.0", "MQTT-4.9.0-3")
def test_a_used_up_quota_delays_no_message_of_qos_0(client: Open, topic: str, many: bytes) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 2), (f"{topic}/zero", 0))
    sent(sender, many)
    one.expect(mqtt.PUBLISH)

    sender.publish(f"{topic}/zero", b"at once")

    assert one.expect(mqtt.PUBLISH).payload == b"at once"


@pytest.mark.spec("5.0", "MQTT-4.9.0-3")
def test_a_used_up_quota_still_takes_acknowledgements(
    client: Open, topic: str, many: bytes
) -> None:
    one = client(props={"receive_maximum": 2})
    one.subscribe((topic, 2))
    sent(client(), many)
    found = [number(one.expect(mqtt.PUBLISH)) for _ in range(2)]

    one.send(b"\x50\x02", found[1], b"\x50\x02", found[0])

    one.expect_bytes(b"\x62\x02" + found[1])
    one.expect_bytes(b"\x62\x02" + found[0])


# --- the client's quota ---------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.9.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_may_use_the_whole_receive_maximum(
    client: Open, wire: Open, start_broker: Callable[..., Broker], topic: str, qos: int
) -> None:
    one = wire(port=start_broker(receive_maximum=3).port)
    assert one.connect(unique("c")).property("receive_maximum") == 3

    for _ in range(3):
        one.send(
            *(mqtt.publish(topic, qos=qos, packet_id=each) for each in range(1, 4)),
        )
        for each in range(1, 4):
            assert one.receive().packet_id == each
        if qos == 2:
            one.send(*(mqtt.ack(mqtt.PUBREL, each) for each in range(1, 4)))
            for each in range(1, 4):
                assert one.expect(mqtt.PUBCOMP).packet_id == each


@pytest.mark.spec("5.0", "MQTT-4.9.0-2")
def test_a_client_that_sends_one_more_is_disconnected(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=3).port)
    for each in range(1, 4):
        one.send(mqtt.publish(topic, qos=2, packet_id=each))
        one.expect(mqtt.PUBREC)

    one.send(mqtt.publish(topic, qos=2, packet_id=4))

    one.expect_refusal(0x93)


@pytest.mark.spec("5.0", "MQTT-4.9.0-3")
def test_a_client_with_no_quota_left_may_send_everything_else(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    one = client(port=start_broker(receive_maximum=1).port)
    one.send(mqtt.publish(topic, qos=2, packet_id=1))
    one.expect(mqtt.PUBREC)

    one.publish(topic, b"qos 0")
    one.ping()
    one.subscribe(topic)
    one.unsubscribe(topic)
    one.send(mqtt.ack(mqtt.PUBREL, 1))

    assert one.expect(mqtt.PUBCOMP).packet_id == 1
