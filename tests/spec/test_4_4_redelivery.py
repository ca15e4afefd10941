"""Section 4.4 of MQTT 3.1.1 and 5.0: what is sent again, when, and when not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Wire, unique

Open = Callable[..., Wire]


def open_messages(one: Wire, sender: Wire, topic: str, qos: int, count: int) -> list[Packet]:
    """`count` messages, numbered from 1, that came and are not acknowledged."""
    one.subscribe((topic, qos))
    for packet_id in range(1, count + 1):
        sender.publish(topic, b"%d" % packet_id, qos=qos, packet_id=packet_id)
    return [one.expect(mqtt.PUBLISH) for _ in range(count)]


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
@pytest.mark.parametrize("end", ["close", "reset", "disconnect"])
@pytest.mark.parametrize("qos", [1, 2])
def test_open_messages_are_sent_again_with_their_identifiers(
    client: Open, topic: str, qos: int, end: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    first = open_messages(one, client(), topic, qos, 3)
    getattr(one, end)()

    again = client(name, keep=True)

    second = [again.expect(mqtt.PUBLISH) for _ in range(3)]
    # The same bytes but for DUP.
    assert [each.raw[0] for each in second] == [0x38 | qos << 1] * 3
    assert [each.raw[1:] for each in second] == [each.raw[1:] for each in first]
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_open_messages_are_sent_again_to_the_connection_that_takes_over(
    client: Open, topic: str
) -> None:
    name = unique("c")
    first = open_messages(client(name, keep=True), client(), topic, 1, 3)

    second = client(name, keep=True)

    assert [second.expect(mqtt.PUBLISH).packet_id for _ in first] == [
        each.packet_id for each in first
    ]
    second.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_open_releases_are_sent_again(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    first = open_messages(one, client(), topic, 2, 3)
    for each in first:
        one.send(mqtt.ack(mqtt.PUBREC, each.packet_id or 0))
        one.expect(mqtt.PUBREL)
    one.close()

    again = client(name, keep=True)

    for each in first:
        again.expect_bytes(b"\x62\x02" + (each.packet_id or 0).to_bytes(2, "big"))
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_they_are_sent_again_on_every_connection_until_they_are_acknowledged(
    client: Open, topic: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    first = open_messages(one, client(), topic, 1, 1)[0]

    for _ in range(4):
        one.close()
        one = client(name, keep=True)
        found = one.expect(mqtt.PUBLISH)
        assert (found.packet_id, found.dup) == (first.packet_id, True)

    one.acknowledge(found)
    one.ping()
    one.close()
    client(name, keep=True).ping()


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_a_message_that_never_left_has_no_dup_on_the_next_connection(
    client: Open, topic: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 1))
    one.disconnect()
    client().publish(topic, b"first sent now", qos=1)

    assert not client(name, keep=True).receive_publish().dup


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_a_new_identifier_is_none_of_those_that_are_sent_again(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    first = open_messages(one, sender, topic, 1, 5)
    one.close()

    again = client(name, keep=True)
    for packet_id in range(1, 11):
        sender.publish(topic, b"new", qos=1, packet_id=packet_id)

    found = [again.expect(mqtt.PUBLISH) for _ in range(15)]
    assert len({each.packet_id for each in found}) == 15
    assert [each.packet_id for each in found[:5]] == [each.packet_id for each in first]


@pytest.mark.spec("3.1.1", "MQTT-4.4.0-1")
@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_a_clean_start_ends_what_was_open(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    open_messages(one, client(), topic, 1, 3)
    one.close()

    client(name, clean=True).ping()


@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_sent_again_on_the_same_connection(client: Open, topic: str, qos: int) -> None:
    one, sender = client(), client()
    first = open_messages(one, sender, topic, qos, 2)

    sender.publish(topic, b"3", qos=qos)
    assert one.expect(mqtt.PUBLISH).payload == b"3"
    for _ in range(3):
        one.ping()
    one.subscribe(f"{topic}/other")

    for each in first:
        one.acknowledge(each)
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.4.0-1")
def test_an_acknowledgement_of_what_the_last_connection_sent_counts_and_repeats_nothing(
    client: Open, topic: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    first = open_messages(one, client(), topic, 1, 3)
    one.close()
    again = client(name, keep=True, props={"receive_maximum": 1})
    assert again.expect(mqtt.PUBLISH).payload == b"1"

    again.send(mqtt.ack(mqtt.PUBACK, first[1].packet_id or 0))

    again.ping()
    again.send(mqtt.ack(mqtt.PUBACK, first[0].packet_id or 0))
    assert again.receive_publish().payload == b"3"
    again.ping()


@pytest.mark.spec("5.0", "MQTT-4.4.0-2")
@pytest.mark.parametrize("code", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
@pytest.mark.parametrize(("qos", "kind"), [(1, mqtt.PUBACK), (2, mqtt.PUBREC)])
def test_an_error_acknowledgement_ends_a_message_for_good(
    client: Open, topic: str, qos: int, kind: int, code: int
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    first = open_messages(one, client(), topic, qos, 2)
    one.send(mqtt.ack(kind, first[0].packet_id or 0, code))
    one.ping()
    one.close()

    again = client(name, keep=True)

    assert again.receive_publish().payload == b"2"
    again.ping()
