"""PUBLISH both ways: quality of service, acknowledgements, resending, order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def keep(version: int) -> dict[str, object]:
    """What makes a session outlive its connection."""
    props = {"session_expiry_interval": 60} if version == 5 else None
    return {"version": version, "clean": False, "props": props}


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_message_arrives_with_the_lower_quality(
    client: Open, topic: str, version: int, published: int, subscribed: int
) -> None:
    receiver, sender = client(version=version), client(version=version)
    assert receiver.subscribe((topic, subscribed)).reason == subscribed

    sender.publish(topic, b"payload", qos=published, packet_id=77)

    found = receiver.receive_publish()
    assert (found.topic, found.payload) == (topic, b"payload")
    assert found.qos == min(published, subscribed)
    assert not found.dup
    assert not found.retain
    receiver.ping()


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_message_arrives_with_the_quality_of_the_subscription_where_that_is_configured(
    start_broker: Callable[..., Broker],
    client: Open,
    topic: str,
    published: int,
    subscribed: int,
) -> None:
    port = start_broker(upgrade_outgoing_qos=True).port
    receiver, sender = client(port=port), client(port=port)
    receiver.subscribe((topic, subscribed))

    sender.publish(topic, b"payload", qos=published)

    assert receiver.receive_publish().qos == subscribed


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("sent_as", [3, 4, 5])
def test_a_message_passes_between_versions(
    client: Open, topic: str, version: int, sent_as: int, qos: int
) -> None:
    receiver, sender = client(version=version), client(version=sent_as)
    receiver.subscribe((topic, 2))

    sender.publish(topic, b"\x00\xff", qos=qos)

    found = receiver.receive_publish()
    assert (found.payload, found.qos) == (b"\x00\xff", qos)


def test_the_bytes_of_a_3_1_1_delivery(client: Open) -> None:
    receiver, sender, topic = client(version=4), client(version=4), unique("a/")
    receiver.subscribe((topic, 1))

    sender.send(mqtt.publish(topic, b"hi", qos=1, packet_id=9, version=4))

    sender.expect_bytes(b"\x40\x02\x00\x09")
    found = receiver.expect(mqtt.PUBLISH)
    assert found.packet_id
    assert found.raw == mqtt.publish(topic, b"hi", qos=1, packet_id=found.packet_id, version=4)


def test_an_empty_payload_is_a_message(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe(topic)

    one.publish(topic, b"")

    assert one.receive_publish().payload == b""


def test_a_payload_of_half_a_megabyte_arrives_whole(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 1))
    payload = bytes(range(256)) * 2_048

    sender.publish(topic, payload, qos=1)

    assert receiver.receive_publish().payload == payload


def test_a_publish_that_nobody_wants_is_acknowledged(
    client: Open, topic: str, version: int
) -> None:
    one = client(version=version)

    for qos in (1, 2):
        assert one.publish(topic, qos=qos).reason in (0, 0x10)


def test_v5_properties_reach_the_subscriber_unchanged(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    receiver.subscribe(topic)
    props = {
        "payload_format_indicator": 1,
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": b"\x00\x01",
        "user_property": [("a", "1"), ("b", "2"), ("a", "1")],
    }

    sender.publish(topic, b"x", props=props)

    assert receiver.receive_publish().properties == props


def test_messages_keep_their_order(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 2))
    expected = [f"{number}".encode() for number in range(60)]
    ids = range(1, 61)

    for qos in (0, 1, 2):
        for number, payload in zip(ids, expected, strict=True):
            sender.publish(topic, payload, qos=qos, packet_id=number)
        assert mqtt.payloads([receiver.receive_publish() for _ in expected]) == expected


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_is_sent_again_in_order(
    client: Open, topic: str, version: int, qos: int
) -> None:
    name = unique("c")
    receiver, sender = client(name, **keep(version)), client(version=version)
    receiver.subscribe((topic, qos))
    for number in (1, 2, 3):
        sender.publish(topic, b"%d" % number, qos=qos, packet_id=number)
    first = [receiver.expect(mqtt.PUBLISH) for _ in range(3)]
    receiver.close()

    again = client(name, **keep(version))

    second = [again.expect(mqtt.PUBLISH) for _ in range(3)]
    assert mqtt.payloads(second) == [b"1", b"2", b"3"]
    assert [each.packet_id for each in second] == [each.packet_id for each in first]
    assert [each.dup for each in first + second] == [False] * 3 + [True] * 3
    again.ping()


def test_what_was_acknowledged_is_not_sent_again(client: Open, topic: str, version: int) -> None:
    name = unique("c")
    receiver, sender = client(name, **keep(version)), client(version=version)
    receiver.subscribe((topic, 1))
    for number in (1, 2, 3):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number)
    first = [receiver.expect(mqtt.PUBLISH) for _ in range(3)]
    receiver.send(mqtt.ack(mqtt.PUBACK, first[1].packet_id or 0))
    receiver.ping()
    receiver.close()

    again = client(name, **keep(version))

    second = [again.expect(mqtt.PUBLISH) for _ in range(2)]
    assert mqtt.payloads(second) == [b"1", b"3"]
    again.ping()


def test_after_pubrec_only_pubrel_is_sent_again(client: Open, topic: str, version: int) -> None:
    name = unique("c")
    receiver, sender = client(name, **keep(version)), client(version=version)
    receiver.subscribe((topic, 2))
    sender.publish(topic, b"once", qos=2)
    found = receiver.expect(mqtt.PUBLISH)
    receiver.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0))
    assert receiver.expect(mqtt.PUBREL).packet_id == found.packet_id
    receiver.close()

    again = client(name, **keep(version))

    assert again.expect(mqtt.PUBREL).packet_id == found.packet_id
    again.send(mqtt.ack(mqtt.PUBCOMP, found.packet_id or 0))
    again.ping()


def test_nothing_is_sent_again_on_a_live_connection(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 1))
    sender.publish(topic, b"1", qos=1)
    first = receiver.expect(mqtt.PUBLISH)

    for _ in range(3):
        receiver.ping()

    receiver.send(mqtt.ack(mqtt.PUBACK, first.packet_id or 0))
    receiver.ping()


def test_a_repeated_qos_2_publish_is_delivered_once(client: Open, topic: str, version: int) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 2))
    for dup in (False, True, True):
        sender.send(mqtt.publish(topic, b"once", qos=2, packet_id=5, dup=dup, version=version))
        assert sender.expect(mqtt.PUBREC).packet_id == 5
    sender.send(mqtt.ack(mqtt.PUBREL, 5))
    assert sender.expect(mqtt.PUBCOMP).packet_id == 5

    sender.publish(topic, b"next", qos=2, packet_id=5)

    assert receiver.receive_publish().payload == b"once"
    assert receiver.receive_publish().payload == b"next"


def test_a_repeated_qos_2_publish_is_known_after_reconnecting(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    receiver, sender = client(version=version), client(name, **keep(version))
    receiver.subscribe((topic, 2))
    sender.send(mqtt.publish(topic, b"once", qos=2, packet_id=5, version=version))
    sender.expect(mqtt.PUBREC)
    sender.reset()

    again = client(name, **keep(version))
    again.publish(topic, b"once", qos=2, packet_id=5, dup=True)
    again.publish(topic, b"next", qos=2, packet_id=6)

    assert receiver.receive_publish().payload == b"once"
    assert receiver.receive_publish().payload == b"next"


def test_a_repeated_qos_1_publish_is_delivered_again(
    client: Open, topic: str, version: int
) -> None:
    receiver, sender = client(version=version), client(version=version)
    receiver.subscribe((topic, 1))

    for dup in (False, True):
        sender.publish(topic, b"1", qos=1, dup=dup)

    found = [receiver.receive_publish(), receiver.receive_publish()]
    assert mqtt.payloads(found) == [b"1", b"1"]
    assert not any(each.dup for each in found)


def test_packet_ids_of_both_directions_do_not_meet(client: Open, topic: str) -> None:
    one = client(version=4)
    one.subscribe((topic, 2))

    one.publish(topic, b"mine", qos=2, packet_id=1)

    assert one.receive_publish().payload == b"mine"
    one.ping()


def test_an_offline_session_gets_qos_1_and_2_in_order_but_not_qos_0(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    receiver, sender = client(name, **keep(version)), client(version=version)
    receiver.subscribe((topic, 2))
    receiver.disconnect()
    for number, qos in enumerate((1, 0, 2, 1), start=1):
        sender.publish(topic, b"%d" % number, qos=qos, packet_id=number)

    again = client(name, **keep(version))

    found = [again.receive_publish() for _ in range(3)]
    assert [(each.payload, each.qos, each.dup) for each in found] == [
        (b"1", 1, False),
        (b"3", 2, False),
        (b"4", 1, False),
    ]
    again.ping()


def test_a_subscriber_to_many_messages_loses_none_at_qos_1(client: Open, topic: str) -> None:
    receiver, sender = client(version=4), client(version=4)
    receiver.subscribe((topic, 1))
    count = 500

    sender.send(
        *(
            mqtt.publish(topic, b"%d" % number, qos=1, packet_id=number, version=4)
            for number in range(1, count + 1)
        )
    )

    found = [receiver.receive_publish() for _ in range(count)]
    assert mqtt.payloads(found) == [b"%d" % number for number in range(1, count + 1)]
    assert [sender.expect(mqtt.PUBACK).packet_id for _ in range(count)] == list(range(1, count + 1))
