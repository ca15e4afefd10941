"""Section 3.1.2 of MQTT 3.1.1 and 5.0: Keep Alive, and the limits that a client of 5.0 names."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]

# --- Keep Alive ----------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("3.1.1", "MQTT-3.1.2-23")
@pytest.mark.spec("3.1.1", "MQTT-3.1.2-24")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-20")
@pytest.mark.spec("5.0", "MQTT-3.1.2-22")
@pytest.mark.spec("5.0", "MQTT-3.2.2-22")
def test_silence_for_one_and_a_half_keep_alives_is_as_if_the_network_had_failed(
    client: Open, wire: Open, version: int, topic: str
) -> None:
    watcher, busy, silent = client(), client(keep_alive=1), wire()
    watcher.subscribe(topic)
    began = time.monotonic()
    connack = silent.connect(unique("c"), keep_alive=1, will=Will(topic=topic))
    assert connack.property("server_keep_alive") is None

    with pytest.raises(TimeoutError):
        silent.receive(within_s=0.7)
    busy.send(mqtt.publish("anywhere", version=version))
    silent.expect_refusal(0x8D)

    assert time.monotonic() - began >= 1.4
    assert watcher.receive_publish().topic == topic
    busy.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.2-21")
@pytest.mark.spec("5.0", "MQTT-3.2.2-21")
def test_the_keep_alive_of_the_server_replaces_the_clients(
    start_broker: Callable[..., Broker], wire: Open
) -> None:
    one = wire(port=start_broker(keep_alive_max_s=1, bystander=False).port)

    connack = one.connect(unique("c"), keep_alive=60)

    assert connack.property("server_keep_alive") == 1
    one.expect_refusal(0x8D)


# --- Maximum Packet Size -------------------------------------------------------------------------

LIMIT = 100


def fitting(topic: str, *, qos: int, too_long: int = 0) -> bytes:
    """The payload with which a PUBLISH to `topic` has `LIMIT` bytes, and some more."""
    head = 1 + 1 + 2 + len(topic) + (2 if qos else 0) + 1
    return b"x" * (LIMIT - head + too_long)


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_of_exactly_the_clients_maximum_packet_size_is_sent(
    client: Open, topic: str, qos: int
) -> None:
    receiver = client(props={"maximum_packet_size": LIMIT})
    receiver.subscribe((topic, qos))

    client().publish(topic, fitting(topic, qos=qos), qos=qos)

    assert len(receiver.receive_publish().raw) == LIMIT


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
@pytest.mark.spec("5.0", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_one_byte_longer_is_dropped_as_if_it_had_been_sent(
    client: Open, topic: str, qos: int
) -> None:
    receiver = client(props={"maximum_packet_size": LIMIT, "receive_maximum": 1})
    other, sender = client(), client()
    for each in (receiver, other):
        each.subscribe((topic, qos))

    for _ in range(3):
        sender.publish(topic, fitting(topic, qos=qos, too_long=1), qos=qos)
    sender.publish(topic, b"small", qos=qos)

    assert [len(other.receive_publish().raw) for _ in range(3)] == [LIMIT + 1] * 3
    assert receiver.receive_publish().payload == b"small"
    receiver.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
def test_properties_count_for_the_clients_maximum_packet_size(client: Open, topic: str) -> None:
    receiver, sender = client(props={"maximum_packet_size": LIMIT}), client()
    receiver.subscribe(topic, props={"subscription_identifier": 300})
    payload = fitting(topic, qos=0)

    sender.publish(topic, payload)
    sender.publish(topic, payload[3:])
    sender.publish(topic, payload[4:], props={"payload_format_indicator": 1})

    found = receiver.receive_publish()
    assert (len(found.raw), found.payload) == (LIMIT, payload[3:])
    receiver.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
@pytest.mark.spec("5.0", "MQTT-3.1.2-25")
def test_a_retained_message_that_is_too_large_is_not_sent(client: Open, topic: str) -> None:
    receiver, sender = client(props={"maximum_packet_size": LIMIT}), client()
    sender.publish(topic, fitting(topic, qos=1, too_long=1), qos=1, retain=True)

    receiver.subscribe((topic, 1))

    receiver.ping()
    sender.publish(topic, b"", qos=1, retain=True)


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
@pytest.mark.spec("5.0", "MQTT-3.1.2-25")
def test_what_waited_or_was_in_flight_is_measured_by_the_new_connections_limit(
    client: Open, topic: str
) -> None:
    name, sender = unique("c"), client()
    old = client(name, keep=True)
    old.subscribe((topic, 2))
    for qos in (1, 2):
        sender.publish(topic, fitting(topic, qos=qos, too_long=1), qos=qos)
        old.expect(mqtt.PUBLISH)
    old.close()
    sender.publish(topic, fitting(topic, qos=1, too_long=1), qos=1)
    sender.publish(topic, b"small", qos=1)

    new = client(name, keep=True, props={"maximum_packet_size": LIMIT})

    assert new.receive_publish().payload == b"small"
    new.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
def test_an_acknowledgement_that_is_too_large_is_not_sent(client: Open, topic: str) -> None:
    one = client(props={"maximum_packet_size": 24})
    filters = [f"{topic}/{number}" for number in range(20)]

    one.send(mqtt.subscribe(*filters[:19], packet_id=1))
    assert len(one.expect(mqtt.SUBACK).raw) == 24
    one.send(mqtt.subscribe(*filters, packet_id=2))

    one.expect_refusal(0x95)


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
@pytest.mark.spec("5.0", "MQTT-3.2.0-1")
def test_a_client_that_no_connack_fits_is_closed(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), props={"maximum_packet_size": 4}), mqtt.pingreq())

    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
def test_a_client_that_only_a_refusal_fits_is_refused_and_replaces_nobody(
    client: Open, wire: Open
) -> None:
    name, one = unique("c"), wire()
    old = client(name, keep=True)

    one.send(mqtt.connect(name, clean=True, props={"maximum_packet_size": 5}))

    one.expect_bytes(bytes.fromhex("20 03 00 95 00"))
    one.expect_close()
    old.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
def test_a_refusal_that_does_not_fit_is_not_sent(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect("a+b", props={"maximum_packet_size": 4}))

    one.expect_close()


# --- Topic Alias Maximum -------------------------------------------------------------------------


def aliases(found: list[Packet]) -> set[object]:
    """The topic aliases that came."""
    came: set[object] = {each.property("topic_alias") for each in found}
    return came - {None}


@pytest.mark.spec("5.0", "MQTT-3.1.2-26")
@pytest.mark.spec("5.0", "MQTT-3.3.2-11")
@pytest.mark.parametrize("maximum", [1, 2, 65_535])
def test_the_broker_stays_within_the_clients_alias_maximum(
    client: Open, topic: str, maximum: int
) -> None:
    receiver, sender = client(props={"topic_alias_maximum": maximum}), client()
    receiver.subscribe(f"{topic}/#")
    topics = [f"{topic}/a-topic-worth-an-alias/{number}" for number in range(4)]

    for each in topics * 3:
        sender.publish(each)

    found = [receiver.receive_publish() for _ in topics * 3]
    assert aliases(found) == set(range(1, min(maximum, 4) + 1))


@pytest.mark.spec("5.0", "MQTT-3.1.2-24")
def test_an_alias_makes_no_message_too_large(client: Open, topic: str) -> None:
    long = f"{topic}/a-topic-worth-an-alias"
    limit = 1 + 1 + 2 + len(long) + 1 + 10
    receiver = client(props={"topic_alias_maximum": 5, "maximum_packet_size": limit})
    receiver.subscribe(long)
    sender = client()

    for _ in range(5):
        sender.publish(long, b"10 bytes..")

    found = [receiver.receive_publish() for _ in range(5)]
    assert {each.payload for each in found} == {b"10 bytes.."}
    assert max(len(each.raw) for each in found) <= limit


@pytest.mark.spec("5.0", "MQTT-3.1.2-27")
@pytest.mark.spec("5.0", "MQTT-3.3.2-11")
@pytest.mark.parametrize("props", [{}, {"topic_alias_maximum": 0}], ids=["absent", "0"])
def test_a_client_without_an_alias_maximum_gets_no_alias(
    client: Open, topic: str, props: dict[str, int]
) -> None:
    receiver, sender = client(props=props), client()
    receiver.subscribe(f"{topic}/#")
    long = f"{topic}/a-topic-worth-an-alias"

    for _ in range(5):
        sender.publish(long)

    found = [receiver.receive_publish() for _ in range(5)]
    assert aliases(found) == set()
    assert {each.topic for each in found} == {long}


# --- Request Response Information, Request Problem Information -----------------------------------


@pytest.mark.spec("5.0", "MQTT-3.1.2-28")
@pytest.mark.parametrize("props", [{}, {"request_response_information": 0}], ids=["absent", "0"])
def test_response_information_that_was_not_asked_for_is_not_sent(
    wire: Open, props: dict[str, int]
) -> None:
    connack = wire().connect(unique("c"), props=props)

    assert connack.property("response_information") is None


@pytest.mark.spec("5.0", "MQTT-3.1.2-29")
def test_without_problem_information_acknowledgements_explain_nothing(
    client: Open, topic: str
) -> None:
    one = client(props={"request_problem_information": 0})

    one.send(mqtt.publish("$SYS/mine", qos=1, packet_id=1))
    one.expect_bytes(bytes.fromhex("40 03 00 01 87"))
    one.send(mqtt.publish("$SYS/mine", qos=2, packet_id=2))
    one.expect_bytes(bytes.fromhex("50 03 00 02 87"))
    one.send(mqtt.ack(mqtt.PUBREL, 3))
    one.expect_bytes(bytes.fromhex("70 03 00 03 92"))
    one.send(mqtt.subscribe("$CONTROL/#", packet_id=4))
    one.expect_bytes(bytes.fromhex("90 04 00 04 00 87"))
    one.send(mqtt.unsubscribe("other", packet_id=5))

    one.expect_bytes(bytes.fromhex("b0 04 00 05 00 11"))


@pytest.mark.spec("5.0", "MQTT-3.1.2-29")
def test_without_problem_information_a_publish_keeps_its_user_properties(
    client: Open, topic: str
) -> None:
    one = client(props={"request_problem_information": 0})
    one.subscribe(topic)

    one.publish(topic, props={"user_property": [("a", "b")]})

    assert one.receive_publish().property("user_property") == [("a", "b")]
