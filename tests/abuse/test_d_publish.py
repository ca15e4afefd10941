"""Abuse table D: PUBLISH and the state of QoS 1 and 2."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests import wire as mqtt
from tests.wire import ClosedByPeerError, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_d01_an_empty_topic_without_an_alias(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.publish("", b"x", version=version))

    one.expect_refusal(0x82)


@pytest.mark.parametrize("topic", ["#", "d02/+", "d02/#", "d02/a+b"])
def test_d02_a_wildcard_in_a_topic(client: Open, version: int, topic: str) -> None:
    one = client(version=version)

    one.send(mqtt.publish(topic, version=version))

    one.expect_refusal(0x90)


@pytest.mark.parametrize(
    "topic",
    ["x" * 65_535, "/" * 65_535, "x" * 4_097, "/" * 128],
    ids=["long", "deep", "4097", "129"],
)
def test_d03_a_topic_beyond_the_caps(client: Open, version: int, topic: str) -> None:
    one = client(version=version)

    one.send(mqtt.publish(topic, version=version))

    one.expect_refusal(0x90)


@pytest.mark.parametrize("topic", ["d03/" + "x" * 4_092, "/" * 127], ids=["4096", "128"])
def test_d03_a_topic_at_the_caps(client: Open, version: int, topic: str) -> None:
    one = client(version=version)
    one.subscribe(topic)

    one.publish(topic, b"x")

    assert one.receive_publish().topic == topic


@pytest.mark.parametrize(
    "topic", ["$SYS/broker/version", "$SYS", "$share/g/t", "$queue/t", "$CONTROL/x"]
)
def test_d06_the_brokers_own_topics_are_closed(client: Open, version: int, topic: str) -> None:
    one = client(version=version)

    for qos in (1, 2):
        denied = one.publish(topic, b"x", qos=qos)
        assert denied.reason == (0x87 if version == 5 else 0)

    one.ping()


@pytest.mark.parametrize("qos", [1, 2])
def test_d07_a_publish_with_packet_id_zero(
    client: Open, topic: str, version: int, qos: int
) -> None:
    one = client(version=version)

    one.send(mqtt.publish(topic, qos=qos, packet_id=0, version=version))

    one.expect_refusal(0x82)


def test_d07_a_subscribe_with_packet_id_zero(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.subscribe(topic, packet_id=0, version=version))

    one.expect_refusal(0x82)


def test_d07_an_unsubscribe_with_packet_id_zero(client: Open, topic: str, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.unsubscribe(topic, packet_id=0, version=version))

    one.expect_refusal(0x82)


def test_d08_5_0_stops_at_the_receive_maximum(client: Open, topic: str) -> None:
    one = client()

    one.send(*(mqtt.publish(topic, qos=2, packet_id=number) for number in range(1, 66)))

    for number in range(1, 65):
        assert one.expect(mqtt.PUBREC).packet_id == number
    one.expect_refusal(0x93)


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
def test_d08_3_x_may_hold_as_many_as_it_has_ids(client: Open, topic: str, version: int) -> None:
    one, receiver, count = client(version=version), client(), 2_000
    receiver.subscribe((topic, 0))

    one.send(
        *(
            mqtt.publish(topic, b"%d" % number, qos=2, packet_id=number, version=version)
            for number in range(1, count + 1)
        )
    )
    assert [one.expect(mqtt.PUBREC).packet_id for _ in range(count)] == list(range(1, count + 1))
    one.send(*(mqtt.ack(mqtt.PUBREL, number) for number in range(1, count + 1)))

    assert [one.expect(mqtt.PUBCOMP).packet_id for _ in range(count)] == list(range(1, count + 1))
    found = [int(receiver.receive_publish().payload) for _ in range(count)]
    assert found == list(range(1, count + 1))


def test_d09_the_first_of_two_with_one_id_wins(client: Open, topic: str, version: int) -> None:
    one, receiver = client(version=version), client()
    receiver.subscribe((topic, 2))

    for payload in (b"first", b"second"):
        one.send(mqtt.publish(topic, payload, qos=2, packet_id=7, version=version))
        assert one.expect(mqtt.PUBREC).packet_id == 7
    one.send(mqtt.ack(mqtt.PUBREL, 7))
    one.expect(mqtt.PUBCOMP)
    one.publish(topic, b"next", qos=2, packet_id=7)

    assert receiver.receive_publish().payload == b"first"
    assert receiver.receive_publish().payload == b"next"


def test_d11_an_unseen_message_with_dup_is_delivered(
    client: Open, topic: str, version: int
) -> None:
    one, receiver = client(version=version), client()
    receiver.subscribe((topic, 2))

    one.publish(topic, b"only the second attempt came", qos=2, dup=True)

    found = receiver.receive_publish()
    assert found.payload == b"only the second attempt came"
    assert not found.dup
    receiver.ping()


def test_d13_a_release_of_nothing(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.ack(mqtt.PUBREL, 99))

    found = one.expect(mqtt.PUBCOMP)
    assert (found.packet_id, found.reason) == (99, 0x92 if version == 5 else 0)


@pytest.mark.parametrize(
    ("qos", "kind"),
    [(2, mqtt.PUBACK), (1, mqtt.PUBREC), (2, mqtt.PUBCOMP), (1, mqtt.PUBCOMP)],
    ids=["puback-of-2", "pubrec-of-1", "pubcomp-of-2", "pubcomp-of-1"],
)
def test_d14_an_acknowledgement_of_the_wrong_kind(
    client: Open, topic: str, version: int, qos: int, kind: int
) -> None:
    name = unique("c")
    keep: dict[str, Any] = {"clean": False, "version": version}
    if version == 5:
        keep["props"] = {"session_expiry_interval": 60}
    one, sender = client(name, **keep), client()
    one.subscribe((topic, qos))
    sender.publish(topic, b"x", qos=qos)
    found = one.expect(mqtt.PUBLISH)

    one.send(mqtt.ack(kind, found.packet_id or 0))

    one.expect_refusal(0x82)
    again = client(name, **keep).expect(mqtt.PUBLISH)
    assert (again.packet_id, again.payload, again.dup) == (found.packet_id, b"x", True)


@pytest.mark.parametrize("kind", [mqtt.PUBACK, mqtt.PUBCOMP], ids=["puback", "pubcomp"])
def test_d15_an_acknowledgement_of_nothing_is_ignored(
    client: Open, version: int, kind: int
) -> None:
    one = client(version=version)

    one.send(mqtt.ack(kind, 4_711))

    one.ping()


def test_d15_a_pubrec_of_nothing_is_answered(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.ack(mqtt.PUBREC, 4_711))

    found = one.expect(mqtt.PUBREL)
    assert (found.packet_id, found.reason) == (4_711, 0x92 if version == 5 else 0)
    one.send(mqtt.ack(mqtt.PUBCOMP, 4_711))
    one.ping()


def test_d15_a_flood_of_acknowledgements_of_nothing(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(*(mqtt.ack(mqtt.PUBACK, number) for number in range(1, 1_100)))

    one.expect_refusal(0x96)


def test_d15_a_flood_of_releases_of_nothing(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(*(mqtt.ack(mqtt.PUBREL, number) for number in range(1, 1_100)))

    found = []
    with contextlib.suppress(ClosedByPeerError, ConnectionError):
        while True:
            found.append(one.receive())
    if version == 5:
        last = found.pop()
        assert (last.kind, last.reason) == (mqtt.DISCONNECT, 0x96)
    assert {packet.kind for packet in found} <= {mqtt.PUBCOMP}
    assert len(found) <= 1_001


def test_d16_a_pubrec_with_an_error_ends_the_flow(client: Open, topic: str) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 2))
    for number in (1, 2):
        sender.publish(topic, b"%d" % number, qos=2, packet_id=number)
    first = one.expect(mqtt.PUBLISH)

    one.send(mqtt.ack(mqtt.PUBREC, first.packet_id or 0, 0x97))

    assert one.receive_publish().payload == b"2"
    one.ping()


def test_d17_the_announced_receive_maximum_is_the_one_that_counts(
    start_broker: Callable[..., Broker], wire: Open, topic: str
) -> None:
    one = wire(port=start_broker(receive_maximum=2).port)
    assert one.connect(unique("c")).property("receive_maximum") == 2

    one.send(*(mqtt.publish(topic, qos=2, packet_id=number) for number in (1, 2, 3)))

    assert [one.expect(mqtt.PUBREC).packet_id for _ in range(2)] == [1, 2]
    one.expect_refusal(0x93)


def test_d17_each_connection_counts_anew(
    start_broker: Callable[..., Broker], client: Open, topic: str
) -> None:
    session = {"session_expiry_interval": 60}
    keep: dict[str, Any] = {
        "port": start_broker(receive_maximum=2).port,
        "clean": False,
        "props": session,
    }

    for _ in range(3):
        one = client("d17", **keep)
        for number in (1, 2):
            one.send(mqtt.publish(topic, qos=2, packet_id=number, dup=True))
            assert one.expect(mqtt.PUBREC).packet_id == number
        one.reset()

    one = client("d17", **keep)
    for number in (1, 2):
        one.send(mqtt.ack(mqtt.PUBREL, number))
        assert one.expect(mqtt.PUBCOMP).reason == 0
    for number in (3, 4):
        one.publish(topic, qos=2, packet_id=number)


@pytest.mark.parametrize("qos", [1, 2])
def test_d18_a_client_that_never_acknowledges_gets_no_more_than_its_receive_maximum(
    client: Open, topic: str, qos: int
) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, qos))

    for number in range(1, 31):
        sender.publish(topic, b"%d" % number, qos=qos, packet_id=number)

    assert one.expect(mqtt.PUBLISH).payload == b"1"
    one.ping()
    one.ping()


def test_d18_a_client_that_allows_everything_gets_the_brokers_limit_in_flight(
    client: Open, topic: str
) -> None:
    one, sender = client(props={"receive_maximum": 65_535}), client()
    one.subscribe((topic, 1))

    for number in range(1, 61):
        sender.publish(topic, b"%d" % number, qos=1, packet_id=number)

    for number in range(1, 33):
        assert one.expect(mqtt.PUBLISH).payload == b"%d" % number
    one.ping()


def test_d19_a_quality_above_the_maximum(
    start_broker: Callable[..., Broker], client: Open, topic: str, version: int
) -> None:
    one = client(version=version, port=start_broker(maximum_qos=1).port)
    assert one.subscribe((topic, 2)).reason == 1

    one.send(mqtt.publish(topic, qos=2, packet_id=1, version=version))

    one.expect_refusal(0x9B)


def test_d19_a_retained_message_where_none_are_kept(
    start_broker: Callable[..., Broker], client: Open, topic: str, version: int
) -> None:
    one = client(version=version, port=start_broker(retain_available=False).port)

    one.send(mqtt.publish(topic, retain=True, version=version))

    one.expect_refusal(0x9A)


def test_d24_expired_messages_block_nothing(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    one, sender = client(props={"receive_maximum": 1}), client()
    one.subscribe((topic, 1))
    sender.publish(topic, b"under way", qos=1)
    for number in (1, 2, 3):
        props = {"message_expiry_interval": 1}
        sender.publish(topic, b"short", qos=1, packet_id=number, props=props)
    sender.publish(topic, b"live", qos=1)

    let_time_pass()

    assert one.receive_publish().payload == b"under way"
    assert one.receive_publish().payload == b"live"


@pytest.mark.parametrize(
    ("name", "other"),
    [("{}//b", "{}/b"), ("{}/A", "{}/a"), ("{}/\u00e9", "{}/e\u0301"), ("/{}", "{}")],
)
def test_d25_topics_are_compared_byte_by_byte(
    client: Open, topic: str, version: int, name: str, other: str
) -> None:
    one = client(version=version)
    one.subscribe(name.format(topic))

    one.publish(other.format(topic), b"other")
    one.publish(name.format(topic), b"same")

    assert one.receive_publish().payload == b"same"
