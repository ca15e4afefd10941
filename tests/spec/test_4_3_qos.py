"""Section 4.3 of MQTT 3.1.1 and 5.0: the delivery protocols, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
# Codes alone: such a client is told no reason strings.
TERSE = {"request_problem_information": 0}
Pass = Callable[..., None]


def number(found: Packet) -> bytes:
    """The packet identifier as it stands in the packet."""
    return (found.packet_id or 0).to_bytes(2, "big")


# --- QoS 0 ----------------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.3.1-1")
@pytest.mark.spec("5.0", "MQTT-4.3.1-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_sent_at_qos_0_has_qos_0_and_dup_0(client: Open, topic: str, qos: int) -> None:
    one = client()
    one.subscribe((topic, 0))

    client().publish(topic, b"x", qos=qos)

    nothing = b"\x00" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0x30, mqtt.text(topic), nothing, b"x"))


@pytest.mark.spec("3.1.1", "MQTT-4.3.1-1")
@pytest.mark.spec("5.0", "MQTT-4.3.1-1")
def test_a_message_of_qos_0_is_sent_once_whatever_becomes_of_the_connection(
    client: Open, topic: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 0))
    client().publish(topic, b"x")
    one.expect(mqtt.PUBLISH)
    one.close()

    client(name, keep=True).ping()


# --- QoS 1, the broker as sender ------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-1")
def test_each_new_message_of_qos_1_has_an_identifier_that_is_not_in_use(
    client: Open, topic: str
) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))

    for packet_id in range(1, 21):
        sender.publish(topic, qos=1, packet_id=packet_id)

    used = [one.expect(mqtt.PUBLISH).packet_id for _ in range(20)]
    assert len(set(used)) == 20
    assert 0 not in used


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-1")
def test_an_identifier_that_is_never_acknowledged_is_never_used_again(
    client: Open, topic: str
) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))
    sender.publish(topic, b"open", qos=1)
    held = one.expect(mqtt.PUBLISH).packet_id

    for packet_id in range(1, 101):
        sender.publish(topic, qos=1, packet_id=packet_id)
        assert one.receive_publish().packet_id != held


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-2")
@pytest.mark.parametrize("dup", [False, True])
def test_a_message_of_qos_1_is_first_sent_with_dup_0(client: Open, topic: str, dup: bool) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))

    sender.publish(topic, b"x", qos=1, dup=dup)

    found = one.expect(mqtt.PUBLISH)
    nothing = b"\x00" if one.version == 5 else b""
    assert found.raw == mqtt.packet(0x32, mqtt.text(topic), number(found), nothing, b"x")


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-3")
def test_a_message_of_qos_1_is_open_until_its_puback(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 1))
    for each in (b"1", b"2"):
        sender.publish(topic, each, qos=1)
    first, second = one.expect(mqtt.PUBLISH), one.expect(mqtt.PUBLISH)
    one.send(b"\x40\x02", number(first))
    one.ping()
    one.close()

    again = client(name, keep=True)

    found = again.receive_publish()
    assert (found.payload, found.packet_id, found.dup) == (b"2", second.packet_id, True)
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-3")
def test_a_puback_of_another_identifier_leaves_the_message_open(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 1))
    client().publish(topic, b"x", qos=1)
    found = one.expect(mqtt.PUBLISH)
    one.send(mqtt.ack(mqtt.PUBACK, (found.packet_id or 0) + 1))
    one.ping()
    one.close()

    assert client(name, keep=True).receive_publish().payload == b"x"


# --- QoS 1, the broker as receiver ----------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-2")
@pytest.mark.spec("5.0", "MQTT-4.3.2-4")
@pytest.mark.parametrize("packet_id", [0x0001, 0x0100, 0xFFFF])
def test_a_message_of_qos_1_is_answered_by_puback_of_its_identifier(
    client: Open, topic: str, packet_id: int
) -> None:
    one = client()
    client().subscribe(topic)

    one.send(mqtt.publish(topic, b"x", qos=1, packet_id=packet_id, version=one.version))

    found = one.expect(mqtt.PUBACK)
    assert found.raw[2:4] == packet_id.to_bytes(2, "big")
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-2")
@pytest.mark.spec("5.0", "MQTT-4.3.2-5")
@pytest.mark.parametrize("dup", [False, True])
def test_behind_puback_the_same_identifier_means_a_new_message(
    client: Open, topic: str, dup: bool
) -> None:
    one, other = client(), client()
    other.subscribe((topic, 1))
    one.publish(topic, b"first", qos=1, packet_id=7)

    one.publish(topic, b"second", qos=1, packet_id=7, dup=dup)

    assert mqtt.payloads([other.receive_publish(), other.receive_publish()]) == [
        b"first",
        b"second",
    ]


# --- QoS 2, the broker as sender ------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-1")
def test_each_new_message_of_qos_2_has_an_identifier_that_is_not_in_use(
    client: Open, topic: str
) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2))

    for packet_id in range(1, 21):
        sender.publish(topic, qos=2, packet_id=packet_id)

    used = [one.expect(mqtt.PUBLISH).packet_id for _ in range(20)]
    assert len(set(used)) == 20
    assert 0 not in used


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-1")
def test_an_identifier_whose_release_is_open_is_not_used_again(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2))
    sender.publish(topic, b"open", qos=2)
    held = one.expect(mqtt.PUBLISH)
    one.send(b"\x50\x02", number(held))
    one.expect(mqtt.PUBREL)

    for packet_id in range(1, 101):
        sender.publish(topic, qos=1, packet_id=packet_id)
        assert one.receive_publish().packet_id != held.packet_id


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-2")
def test_a_message_of_qos_2_is_first_sent_with_dup_0(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2))

    sender.publish(topic, b"x", qos=2, dup=True)

    found = one.expect(mqtt.PUBLISH)
    nothing = b"\x00" if one.version == 5 else b""
    assert found.raw == mqtt.packet(0x34, mqtt.text(topic), number(found), nothing, b"x")


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-3")
def test_a_message_of_qos_2_is_open_until_its_pubrec(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    for each in (b"1", b"2"):
        sender.publish(topic, each, qos=2)
    first, second = one.expect(mqtt.PUBLISH), one.expect(mqtt.PUBLISH)
    one.send(b"\x50\x02", number(first))
    one.expect(mqtt.PUBREL)
    one.close()

    again = client(name, keep=True)

    again.expect_bytes(b"\x62\x02" + number(first))
    found = again.expect(mqtt.PUBLISH)
    assert (found.payload, found.packet_id, found.dup) == (b"2", second.packet_id, True)
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-4")
def test_pubrec_is_answered_by_pubrel_of_its_identifier(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = one.expect(mqtt.PUBLISH)

    one.send(b"\x50\x02", number(found))

    one.expect_bytes(b"\x62\x02" + number(found))


@pytest.mark.spec("5.0", "MQTT-4.3.3-4")
def test_an_error_pubrec_is_not_answered(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, 2))
    client().publish(topic, qos=2)

    one.send(b"\x50\x03", number(one.expect(mqtt.PUBLISH)), b"\x80")

    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-5")
def test_a_release_is_open_until_its_pubcomp(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    client().publish(topic, qos=2)
    found = one.expect(mqtt.PUBLISH)
    one.send(b"\x50\x02", number(found))
    one.expect(mqtt.PUBREL)
    for _ in range(2):
        one.close()
        one = client(name, keep=True)
        one.expect_bytes(b"\x62\x02" + number(found))

    one.send(b"\x70\x02", number(found))

    one.ping()
    one.close()
    client(name, keep=True).ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-6")
def test_behind_pubrel_the_message_is_not_sent_again(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    client().publish(topic, b"once", qos=2)
    found = one.expect(mqtt.PUBLISH)
    one.send(b"\x50\x02", number(found))
    one.expect(mqtt.PUBREL)
    one.close()

    again = client(name, keep=True)

    again.expect_bytes(b"\x62\x02" + number(found))
    again.send(b"\x50\x02", number(found))
    again.expect_bytes(b"\x62\x02" + number(found))
    again.send(b"\x70\x02", number(found))
    again.ping()


@pytest.mark.spec("5.0", "MQTT-4.3.3-7")
@pytest.mark.spec("5.0", "MQTT-4.3.3-13")
def test_neither_side_of_a_handshake_ends_when_its_message_expires(
    client: Open, topic: str, let_time_pass: Pass
) -> None:
    name, sender, expiry = unique("c"), client(), {"message_expiry_interval": 1}
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    sender.send(mqtt.publish(topic, b"kept", qos=2, packet_id=9, props=expiry))
    assert sender.expect(mqtt.PUBREC).packet_id == 9
    first = one.expect(mqtt.PUBLISH)
    one.close()

    let_time_pass()

    again = client(name, keep=True)
    second = again.receive_publish()
    assert (second.payload, second.packet_id, second.dup) == (b"kept", first.packet_id, True)
    sender.send(mqtt.publish(topic, b"kept", qos=2, packet_id=9, dup=True, props=expiry))
    assert sender.expect(mqtt.PUBREC).packet_id == 9
    sender.send(b"\x62\x02\x00\x09")
    sender.expect_bytes(b"\x70\x02\x00\x09")
    again.ping()


# --- QoS 2, the broker as receiver ----------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-8")
@pytest.mark.parametrize("packet_id", [0x0001, 0x0100, 0xFFFF])
def test_a_message_of_qos_2_is_answered_by_pubrec_of_its_identifier(
    client: Open, topic: str, packet_id: int
) -> None:
    one = client()

    one.send(mqtt.publish(topic, b"x", qos=2, packet_id=packet_id, version=one.version))

    found = one.expect(mqtt.PUBREC)
    assert found.raw[2:4] == packet_id.to_bytes(2, "big")
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.3.3-9")
def test_behind_an_error_pubrec_the_same_identifier_means_a_new_message(
    client: Open, topic: str
) -> None:
    one, other = client(props=TERSE), client()
    other.subscribe((topic, 2))
    one.send(mqtt.publish("$SYS/not/allowed", b"refused", qos=2, packet_id=7))
    one.expect_bytes(b"\x50\x03\x00\x07\x87")

    one.send(mqtt.publish(topic, b"new", qos=2, packet_id=7))

    one.expect_bytes(b"\x50\x02\x00\x07")
    assert other.receive_publish().payload == b"new"


@pytest.mark.spec("5.0", "MQTT-4.3.3-9")
def test_behind_an_error_pubrec_nothing_is_left_to_release(client: Open) -> None:
    one = client(props=TERSE)
    one.send(mqtt.publish("$SYS/not/allowed", b"refused", qos=2, packet_id=7))
    one.expect_bytes(b"\x50\x03\x00\x07\x87")

    one.send(b"\x62\x02\x00\x07")

    one.expect_bytes(b"\x70\x03\x00\x07\x92")


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-10")
@pytest.mark.parametrize("dup", [False, True])
def test_a_repeat_ahead_of_pubrel_is_answered_and_not_delivered(
    client: Open, topic: str, dup: bool
) -> None:
    one, other = client(), client()
    other.subscribe((topic, 2))
    one.send(mqtt.publish(topic, b"once", qos=2, packet_id=7, version=one.version))
    one.expect(mqtt.PUBREC)

    for _ in range(3):
        one.send(mqtt.publish(topic, b"once", qos=2, packet_id=7, dup=dup, version=one.version))
        one.expect_bytes(b"\x50\x02\x00\x07")

    assert other.receive_publish().payload == b"once"
    other.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-10")
def test_a_repeat_on_the_next_connection_is_not_delivered(client: Open, topic: str) -> None:
    name, other = unique("c"), client()
    other.subscribe((topic, 2))
    one = client(name, keep=True)
    one.send(mqtt.publish(topic, b"once", qos=2, packet_id=7, version=one.version))
    one.expect(mqtt.PUBREC)
    one.reset()

    again = client(name, keep=True)
    again.publish(topic, b"once", qos=2, packet_id=7, dup=True)

    again.publish(topic, b"next", qos=2, packet_id=8)
    assert mqtt.payloads([other.receive_publish(), other.receive_publish()]) == [b"once", b"next"]


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-10")
def test_a_message_that_says_dup_and_was_never_seen_is_delivered(client: Open, topic: str) -> None:
    one, other = client(), client()
    other.subscribe((topic, 2))

    one.publish(topic, b"first attempt was lost", qos=2, packet_id=7, dup=True)

    found = other.receive_publish()
    assert (found.payload, found.dup) == (b"first attempt was lost", False)


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-11")
def test_pubrel_is_answered_by_pubcomp_of_its_identifier(client: Open, topic: str) -> None:
    one = client()
    one.send(mqtt.publish(topic, qos=2, packet_id=0xFFFF, version=one.version))
    one.expect(mqtt.PUBREC)

    one.send(b"\x62\x02\xff\xff")

    one.expect_bytes(b"\x70\x02\xff\xff")


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-11")
def test_a_repeated_pubrel_is_answered_by_pubcomp_too(client: Open, topic: str) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.send(mqtt.publish(topic, qos=2, packet_id=7, version=one.version))
    one.expect(mqtt.PUBREC)
    one.send(b"\x62\x02\x00\x07")
    one.expect(mqtt.PUBCOMP)
    one.close()

    again = client(name, keep=True)
    again.send(b"\x62\x02\x00\x07")

    assert again.expect(mqtt.PUBCOMP).packet_id == 7


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-11")
def test_a_release_on_the_next_connection_is_answered_by_pubcomp(client: Open, topic: str) -> None:
    name, other = unique("c"), client()
    other.subscribe((topic, 2))
    one = client(name, keep=True)
    one.send(mqtt.publish(topic, b"once", qos=2, packet_id=7, version=one.version))
    one.expect(mqtt.PUBREC)
    one.reset()

    again = client(name, keep=True)
    again.send(b"\x62\x02\x00\x07")

    again.expect_bytes(b"\x70\x02\x00\x07")
    assert other.receive_publish().payload == b"once"
    other.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.spec("5.0", "MQTT-4.3.3-12")
@pytest.mark.parametrize("dup", [False, True])
def test_behind_pubcomp_the_same_identifier_means_a_new_message(
    client: Open, topic: str, dup: bool
) -> None:
    one, other = client(), client()
    other.subscribe((topic, 2))
    one.publish(topic, b"first", qos=2, packet_id=7)

    one.publish(topic, b"second", qos=2, packet_id=7, dup=dup)

    assert mqtt.payloads([other.receive_publish(), other.receive_publish()]) == [
        b"first",
        b"second",
    ]


@pytest.mark.beyond("5.0")
def test_properties_of_acknowledgements_change_nothing_about_the_exchange(
    client: Open, topic: str
) -> None:
    one, other = client(), client()
    other.subscribe((topic, 2))
    words = {"reason_string": "as you wish", "user_property": [("a", "1"), ("a", "2")]}

    one.send(mqtt.publish(topic, b"x", qos=2, packet_id=7))
    one.expect_bytes(b"\x50\x02\x00\x07")
    one.send(mqtt.ack(mqtt.PUBREL, 7, props=words))
    one.expect_bytes(b"\x70\x02\x00\x07")

    found = other.expect(mqtt.PUBLISH)
    other.send(mqtt.ack(mqtt.PUBREC, found.packet_id or 0, props=words))
    other.expect_bytes(b"\x62\x02" + number(found))
    other.send(mqtt.ack(mqtt.PUBCOMP, found.packet_id or 0, props=words))
    other.ping()
    one.ping()


@pytest.mark.beyond
def test_identifiers_of_the_two_directions_do_not_meet(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, 2))
    one.send(mqtt.publish(topic, b"mine", qos=2, packet_id=1, version=one.version))
    came = {found.kind: found for found in (one.receive(), one.receive())}
    assert came[mqtt.PUBLISH].packet_id == came[mqtt.PUBREC].packet_id == 1

    one.send(b"\x62\x02\x00\x01", b"\x50\x02\x00\x01")

    assert {one.receive().raw, one.receive().raw} == {b"\x70\x02\x00\x01", b"\x62\x02\x00\x01"}
    one.send(b"\x70\x02\x00\x01")
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.3.2-1")
@pytest.mark.spec("3.1.1", "MQTT-4.3.3-1")
@pytest.mark.spec("5.0", "MQTT-4.3.2-1")
@pytest.mark.spec("5.0", "MQTT-4.3.3-1")
def test_identifiers_wrap_and_are_neither_0_nor_those_that_are_still_in_use(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    port, batch = start_broker(inflight_max=402).port, range(1, 401)
    one, sender = client(port=port), client(port=port, version=4)
    one.subscribe((topic, 2))
    sender.publish(topic, b"not acknowledged", qos=1)
    sender.publish(topic, b"not completed", qos=2)
    open_ = {(one.expect(mqtt.PUBLISH).packet_id or 0): each for each in ("puback", "pubcomp")}
    one.send(mqtt.ack(mqtt.PUBREC, list(open_)[1]))
    one.expect(mqtt.PUBREL)
    burst = b"".join(mqtt.publish(topic, qos=1, packet_id=each, version=4) for each in batch)
    last, wrapped = 0, False

    for _ in range(165):
        sender.send(burst)
        found = [one.expect(mqtt.PUBLISH).packet_id or 0 for _ in batch]
        one.send(*(mqtt.ack(mqtt.PUBACK, each) for each in found))
        assert len({0, *open_, *found}) == 1 + len(open_) + len(batch)
        wrapped, last = wrapped or min(found) < last, max(found)
        for _ in batch:
            sender.expect(mqtt.PUBACK)

    assert wrapped
