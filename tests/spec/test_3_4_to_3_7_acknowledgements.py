"""Sections 3.4 to 3.7 of MQTT 3.1.1 and 5.0: PUBACK, PUBREC, PUBREL and PUBCOMP.

Each test is a table: a row is one of the four packets, with a code that it has or has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
# Codes alone: such a client is told no reason strings.
TERSE = {"request_problem_information": 0}
ERRORS = (0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
"""Reason codes that refuse a PUBLISH."""


def table(rows: dict[int, Iterable[Any]]) -> list[Any]:
    """Each packet with each of its values, as parametrize takes them."""
    return [
        pytest.param(kind, value, id=f"{mqtt.NAMES[kind]}-{value:#04x}")
        for kind, values in rows.items()
        for value in values
    ]


def number(packet_id: int) -> bytes:
    """A packet identifier as it stands in the packet."""
    return packet_id.to_bytes(2, "big")


def until(kind: int, one: Wire, other: Wire, topic: str) -> int:
    """Plays an exchange until `one` has to send this packet; the packet identifier.

    PUBREL is sent by a publisher, the others by a receiver of a message of `other`.
    """
    if kind == PUBREL:
        one.send(mqtt.publish(topic, qos=2, packet_id=7))
        return one.expect(PUBREC).packet_id or 0
    qos = 1 if kind == PUBACK else 2
    one.subscribe((topic, qos))
    other.publish(topic, b"first", qos=qos)
    found = one.expect(mqtt.PUBLISH)
    if kind == PUBCOMP:
        one.send(mqtt.ack(PUBREC, found.packet_id or 0))
        one.expect(PUBREL)
    return found.packet_id or 0


# --- what the broker says -------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.parametrize(
    ("qos", "to", "answer"),
    [
        (1, "heard", b"\x40\x02\x12\x34"),
        (2, "heard", b"\x50\x02\x12\x34"),
        (1, "unheard", b"\x40\x03\x12\x34\x10"),
        (2, "unheard", b"\x50\x03\x12\x34\x10"),
        (1, "$SYS/broker/version", b"\x40\x03\x12\x34\x87"),
        (2, "$SYS/broker/version", b"\x50\x03\x12\x34\x87"),
    ],
)
def test_a_publish_is_answered_with_what_became_of_it(
    client: Open, topic: str, qos: int, to: str, answer: bytes
) -> None:
    receiver, sender = client(), client(props=TERSE)
    receiver.subscribe(f"{topic}/heard")
    name = to if to.startswith("$") else f"{topic}/{to}"

    sender.send(mqtt.publish(name, qos=qos, packet_id=0x1234))

    sender.expect_bytes(answer)


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.parametrize(
    ("qos", "answer"), [(1, b"\x40\x03\x12\x34\x97"), (2, b"\x50\x03\x12\x34\x97")]
)
def test_a_publish_for_which_a_quota_is_used_up_is_told_so(
    client: Open, start_broker: Callable[..., Broker], topic: str, qos: int, answer: bytes
) -> None:
    sender = client(port=start_broker(retained_messages=1, sys_interval_s=0).port, props=TERSE)
    sender.publish(f"{topic}/kept", b"x", retain=True)

    sender.send(mqtt.publish(f"{topic}/more", b"x", qos=qos, packet_id=0x1234, retain=True))

    sender.expect_bytes(answer)


@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\x50\x02\x12\x34", b"\x62\x03\x12\x34\x92"),
        (b"\x62\x02\x12\x34", b"\x70\x03\x12\x34\x92"),
    ],
    ids=["PUBREL", "PUBCOMP"],
)
def test_an_identifier_that_is_not_known_is_told_so(
    client: Open, sent: bytes, answer: bytes
) -> None:
    one = client(props=TERSE)

    one.send(sent)

    one.expect_bytes(answer)


@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
def test_pubcomp_of_a_released_message_is_four_bytes(client: Open, topic: str) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=0x1234))
    one.expect(PUBREC)

    one.send(b"\x62\x02\x12\x34")

    one.expect_bytes(b"\x70\x02\x12\x34")


@pytest.mark.spec("5.0", "MQTT-3.4.2-2")
@pytest.mark.spec("5.0", "MQTT-3.5.2-2")
@pytest.mark.spec("5.0", "MQTT-3.6.2-2")
@pytest.mark.spec("5.0", "MQTT-3.7.2-2")
@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (PUBACK, mqtt.publish("$SYS/not/allowed", qos=1, packet_id=7)),
        (PUBREC, mqtt.publish("$SYS/not/allowed", qos=2, packet_id=7)),
        (PUBREL, b"\x50\x02\x12\x34"),
        (PUBCOMP, b"\x62\x02\x12\x34"),
    ],
    ids=["PUBACK", "PUBREC", "PUBREL", "PUBCOMP"],
)
def test_a_reason_string_for_which_there_is_no_room_is_left_out(
    client: Open, kind: int, sent: bytes
) -> None:
    def refused(one: Wire) -> mqtt.Packet:
        one.send(sent)
        return one.expect(kind)

    expect_left_out(client, refused, what="reason_string")


# --- codes that a client sends --------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
@pytest.mark.parametrize(
    ("kind", "code"),
    table(
        {
            PUBACK: (0x01, 0x11, 0x7F, 0x81, 0x92, 0xFF),
            PUBREC: (0x01, 0x11, 0x7F, 0x81, 0x92, 0xFF),
            PUBREL: (0x01, 0x10, 0x80, 0x87, 0x91, 0xFF),
            PUBCOMP: (0x01, 0x10, 0x80, 0x87, 0x91, 0xFF),
        }
    ),
)
def test_a_code_that_the_packet_does_not_have_ends_the_connection(
    client: Open, topic: str, kind: int, code: int
) -> None:
    one = client()
    packet_id = until(kind, one, client(), topic)

    one.send(mqtt.ack(kind, packet_id, code))

    one.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.4.2-1")
@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.spec("5.0", "MQTT-3.7.2-1")
@pytest.mark.parametrize(
    ("kind", "code"),
    table({PUBACK: (0x00, 0x10, *ERRORS), PUBREC: ERRORS, PUBCOMP: (0x00, 0x92)}),
)
def test_a_code_that_ends_the_exchange_makes_room_for_the_next_message(
    client: Open, topic: str, kind: int, code: int
) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    packet_id = until(kind, receiver, sender, topic)
    sender.publish(topic, b"second", qos=1 if kind == PUBACK else 2)

    receiver.send(mqtt.ack(kind, packet_id, code))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.spec("5.0", "MQTT-3.5.2-1")
@pytest.mark.spec("5.0", "MQTT-3.6.2-1")
@pytest.mark.parametrize(("kind", "code"), table({PUBREC: (0x00, 0x10), PUBREL: (0x00, 0x92)}))
def test_a_code_that_goes_on_is_answered_with_the_next_packet(
    client: Open, topic: str, kind: int, code: int
) -> None:
    one = client()
    packet_id = until(kind, one, client(), topic)

    one.send(mqtt.ack(kind, packet_id, code))

    assert one.expect(kind + 1).packet_id == packet_id


# --- the fixed header of PUBREL -------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.6.1-1")
@pytest.mark.spec("5.0", "MQTT-3.6.1-1")
@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x04, 0x06, 0x0A, 0x0F])
def test_wrong_flags_of_pubrel_end_the_connection(client: Open, topic: str, flags: int) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=7, version=one.version))
    one.expect(PUBREC)

    one.send(bytes([0x60 | flags]), b"\x02\x00\x07")

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.6.1-1")
@pytest.mark.spec("5.0", "MQTT-3.6.1-1")
def test_the_brokers_own_pubrel_has_flags_0010(client: Open, topic: str) -> None:
    receiver = client()
    packet_id = until(PUBREC, receiver, client(), topic)

    receiver.send(b"\x50\x02", number(packet_id))

    receiver.expect_bytes(b"\x62\x02" + number(packet_id))


# --- beyond the statements ------------------------------------------------------------------------


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("tail", [b"", b"\x00", b"\x00\x00"], ids=["bare", "code", "properties"])
def test_puback_may_be_cut_short(client: Open, topic: str, tail: bytes) -> None:
    receiver, sender = client(props={"receive_maximum": 1}), client()
    packet_id = until(PUBACK, receiver, sender, topic)
    sender.publish(topic, b"second", qos=1)

    receiver.send(mqtt.packet(0x40, number(packet_id), tail))

    assert receiver.receive_publish().payload == b"second"


@pytest.mark.beyond("5.0")
def test_what_a_client_adds_to_puback_goes_no_further(client: Open, topic: str) -> None:
    receiver, sender = client(), client()
    packet_id = until(PUBACK, receiver, sender, topic)
    added = {"reason_string": "got it", "user_property": [("a", "b")]}

    receiver.send(mqtt.ack(PUBACK, packet_id, props=added))

    receiver.ping()
    sender.ping()


@pytest.mark.beyond
@pytest.mark.parametrize(
    "sent", [b"\x40\x02\x12\x34", b"\x70\x02\x12\x34"], ids=["PUBACK", "PUBCOMP"]
)
def test_an_acknowledgement_of_nothing_is_ignored(client: Open, sent: bytes) -> None:
    one = client()

    one.send(sent)

    one.ping()


@pytest.mark.beyond
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62], ids=["PUBACK", "PUBREC", "PUBREL"])
def test_identifier_0_ends_the_connection(client: Open, first: int) -> None:
    one = client()

    one.send(bytes([first]), b"\x02\x00\x00")

    one.expect_refusal(0x82)


@pytest.mark.beyond("3.1", "3.1.1")
def test_a_code_behind_a_puback_of_3_x_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(b"\x40\x03\x12\x34\x00")

    one.expect_close()


@pytest.mark.beyond
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBREC), (2, PUBCOMP)], ids=["PUBREC", "PUBCOMP"])
def test_an_acknowledgement_that_is_not_due_ends_the_connection(
    client: Open, topic: str, qos: int, kind: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, qos))
    client().publish(topic, qos=qos)
    found = receiver.expect(mqtt.PUBLISH)

    receiver.send(mqtt.ack(kind, found.packet_id or 0))

    receiver.expect_refusal(0x82)
