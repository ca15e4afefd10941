"""Section 3.10 of MQTT 3.1.1 and 5.0: UNSUBSCRIBE, also while messages are in flight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


# --- what an UNSUBSCRIBE must look like -----------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.10.1-1")
@pytest.mark.spec("5.0", "MQTT-3.10.1-1")
@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x06, 0x0A, 0x0F])
def test_wrong_flags_of_unsubscribe_end_the_connection(
    client: Open, topic: str, flags: int
) -> None:
    one = client()
    good = mqtt.unsubscribe(topic, version=one.version)

    one.send(bytes([0xA0 | flags]), good[1:])

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.10.3-1")
@pytest.mark.spec("5.0", "MQTT-3.10.3-1")
@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x00b"],
    ids=["ff", "cut", "overlong", "surrogate", "beyond", "null"],
)
def test_a_filter_that_is_not_utf_8_ends_the_connection(client: Open, bad: bytes) -> None:
    one = client()

    one.send(mqtt.unsubscribe(b"spec/" + bad, version=one.version))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.10.3-2")
@pytest.mark.spec("5.0", "MQTT-3.10.3-2")
def test_an_unsubscribe_without_a_filter_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(mqtt.unsubscribe(version=one.version))

    one.expect_refusal(0x82)


# --- which subscription ends ----------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-1")
@pytest.mark.spec("5.0", "MQTT-3.10.4-1")
@pytest.mark.parametrize(
    "other",
    ["{}/#", "{}/+", "{}/A", "{}/a/", "/{}/a", "{}", "{}/a ", "$share/group/{}/a"],
)
def test_a_filter_that_differs_in_one_character_ends_nothing(
    client: Open, topic: str, other: str
) -> None:
    one = client()
    one.subscribe(f"{topic}/a")

    one.unsubscribe(other.format(topic))

    one.publish(f"{topic}/a", b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-1")
@pytest.mark.spec("5.0", "MQTT-3.10.4-1")
@pytest.mark.parametrize("form", ["{}", "{}/#", "+/{}", "{}//", "$share/group/{}"])
def test_the_same_characters_end_the_subscription(client: Open, topic: str, form: str) -> None:
    one, filter_ = client(), form.format(topic)
    one.subscribe(filter_)

    one.unsubscribe(filter_)

    for name in (topic, f"{topic}/a", f"a/{topic}", f"{topic}//"):
        one.publish(name, b"x")
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-1")
@pytest.mark.spec("5.0", "MQTT-3.10.4-1")
def test_filters_are_not_normalised_before_they_are_compared(client: Open) -> None:
    one = client()
    composed, decomposed = unique("caf\u00e9/"), unique("cafe\u0301/")
    decomposed = f"cafe\u0301/{composed.partition('/')[2]}"
    one.subscribe(composed)

    one.unsubscribe(decomposed)

    one.publish(composed, b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-1")
@pytest.mark.spec("5.0", "MQTT-3.10.4-1")
def test_the_subscription_of_another_client_stays(client: Open, topic: str) -> None:
    one, other = client(), client()
    one.subscribe(topic)
    other.subscribe(topic)

    one.unsubscribe(topic)

    one.publish(topic, b"x")
    assert other.receive_publish().payload == b"x"
    one.ping()


# --- messages on their way ------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-2")
@pytest.mark.spec("5.0", "MQTT-3.10.4-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_behind_unsuback_no_message_is_added(client: Open, topic: str, qos: int) -> None:
    one, sender, sentinel = client(), client(), unique()
    one.subscribe((topic, qos), (sentinel, qos))
    sender.publish(topic, b"before", qos=qos)
    assert one.receive_publish().payload == b"before"

    one.unsubscribe(topic)

    sender.publish(topic, b"after", qos=qos)
    sender.publish(sentinel, b"end", qos=qos)
    assert one.receive_publish().payload == b"end"


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-2")
@pytest.mark.spec("5.0", "MQTT-3.10.4-2")
def test_no_message_is_added_while_others_are_in_flight(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))
    sender.publish(topic, b"in flight", qos=1)
    open_ = one.expect(mqtt.PUBLISH)

    one.unsubscribe(topic)
    sender.publish(topic, b"added", qos=1)

    one.acknowledge(open_)
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-2")
@pytest.mark.spec("5.0", "MQTT-3.10.4-2")
def test_no_message_is_added_while_the_session_is_away(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 1))
    one.unsubscribe(topic)
    one.close()

    sender.publish(topic, b"added", qos=1)

    client(name, keep=True).ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-2")
@pytest.mark.spec("5.0", "MQTT-3.10.4-2")
def test_retained_messages_of_an_ended_subscription_do_not_follow_unsuback(
    client: Open, topic: str
) -> None:
    one, sender = client(), client()
    for each in range(20):
        sender.publish(f"{topic}/{each}", b"kept", retain=True)

    one.send(
        mqtt.subscribe(f"{topic}/+", packet_id=1, version=one.version),
        mqtt.unsubscribe(f"{topic}/+", packet_id=2, version=one.version),
    )

    while one.receive().kind != mqtt.UNSUBACK:
        pass
    one.ping()
    for each in range(20):
        sender.publish(f"{topic}/{each}", retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.spec("5.0", "MQTT-3.10.4-3")
def test_a_qos_2_delivery_is_finished_behind_unsuback(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2))
    sender.publish(topic, b"x", qos=2)
    number = (one.expect(mqtt.PUBLISH).packet_id or 0).to_bytes(2, "big")

    one.unsubscribe(topic)

    one.send(b"\x50\x02", number)
    one.expect_bytes(b"\x62\x02" + number)
    one.send(b"\x70\x02", number)
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.spec("5.0", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_delivery_of_an_ended_subscription_is_sent_again_on_the_next_connection(
    client: Open, topic: str, qos: int
) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, qos))
    sender.publish(topic, b"x", qos=qos)
    first = one.expect(mqtt.PUBLISH)

    one.unsubscribe(topic)
    one.close()

    again = client(name, keep=True)
    second = again.receive_publish()
    assert (second.payload, second.packet_id, second.dup) == (b"x", first.packet_id, True)
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.spec("5.0", "MQTT-3.10.4-3")
def test_a_release_of_an_ended_subscription_is_sent_again_on_the_next_connection(
    client: Open, topic: str
) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    sender.publish(topic, b"x", qos=2)
    first = one.expect(mqtt.PUBLISH)
    one.send(mqtt.ack(mqtt.PUBREC, first.packet_id or 0))
    one.expect(mqtt.PUBREL)

    one.unsubscribe(topic)
    one.close()

    again = client(name, keep=True)
    assert again.expect(mqtt.PUBREL).packet_id == first.packet_id
    again.send(mqtt.ack(mqtt.PUBCOMP, first.packet_id or 0))
    again.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.spec("5.0", "MQTT-3.10.4-3")
def test_every_delivery_begun_is_finished_though_the_filter_is_made_again(
    client: Open, topic: str
) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))
    sender.publish(topic, b"1", qos=1)
    sender.publish(topic, b"2", qos=1)
    begun = [one.expect(mqtt.PUBLISH) for _ in range(2)]

    one.unsubscribe(topic)
    one.subscribe((topic, 1))
    sender.publish(topic, b"3", qos=1)

    fresh = one.expect(mqtt.PUBLISH)
    assert fresh.payload == b"3"
    assert fresh.packet_id not in [each.packet_id for each in begun]
    for each in (*begun, fresh):
        one.acknowledge(each)
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-2")
@pytest.mark.spec("5.0", "MQTT-3.10.4-2")
@pytest.mark.spec("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.spec("5.0", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_within_a_flood_nothing_is_added_behind_unsuback_and_all_before_it_is_finished(
    client: Open, topic: str, qos: int
) -> None:
    name, sentinel, sender = unique("c"), unique(), client()
    one = client(name, keep=True)
    one.subscribe((topic, qos), (sentinel, qos))
    flood, late = range(1, 31), range(31, 61)

    def publish(numbers: range) -> bytes:
        return b"".join(
            mqtt.publish(topic, b"%d" % each, qos=qos, packet_id=each, version=sender.version)
            for each in numbers
        )

    sender.send(publish(flood))
    first = one.expect(mqtt.PUBLISH)
    one.send(mqtt.unsubscribe(topic, packet_id=9, version=one.version))
    one.expect_besides_publishes(mqtt.UNSUBACK, 9)
    sender.send(publish(late))
    for _ in range(60):
        sender.expect(mqtt.PUBACK if qos == 1 else mqtt.PUBREC)
    sender.publish(sentinel, b"end", qos=qos, packet_id=99)

    # However many of the flood were faster: those, in their order, and none of the late ones.
    one.acknowledge(first)
    begun = [first]
    while (found := one.receive_publish()).payload != b"end":
        begun.append(found)
    assert mqtt.payloads(begun) == [b"%d" % each for each in flood[: len(begun)]]
    one.ping()
    one.close()
    client(name, keep=True).ping()


# --- the answer -----------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-4")
@pytest.mark.spec("5.0", "MQTT-3.10.4-4")
@pytest.mark.parametrize("number", [0x0001, 0x1234, 0xFFFF])
def test_unsubscribe_is_answered_by_unsuback_of_its_identifier(
    client: Open, topic: str, number: int
) -> None:
    one = client()
    one.subscribe(topic)

    one.send(mqtt.unsubscribe(topic, packet_id=number, version=one.version))

    body = b"\x00\x00" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0xB0, number.to_bytes(2, "big"), body))


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-5")
@pytest.mark.spec("5.0", "MQTT-3.10.4-5")
def test_unsubscribe_of_what_never_was_is_answered_with_its_identifier(
    client: Open, topic: str
) -> None:
    one = client()

    one.send(mqtt.unsubscribe(topic, packet_id=0x1234, version=one.version))

    body = b"\x00\x11" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0xB0, b"\x12\x34", body))


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-6")
@pytest.mark.spec("5.0", "MQTT-3.10.4-6")
def test_several_filters_end_each_and_are_answered_once(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe(f"{topic}/a", f"{topic}/b", f"{topic}/c")

    one.send(
        mqtt.unsubscribe(
            f"{topic}/a", f"{topic}/none", f"{topic}/c", packet_id=9, version=one.version
        )
    )

    body = b"\x00\x00\x11\x00" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0xB0, b"\x00\x09", body))
    for name in "abc":
        sender.publish(f"{topic}/{name}", name.encode())
    assert one.receive_publish().payload == b"b"
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.10.4-6")
@pytest.mark.spec("5.0", "MQTT-3.10.4-6")
def test_the_second_of_two_equal_filters_finds_nothing(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic)

    answer = one.unsubscribe(topic, topic)

    assert answer.reasons == ((0x00, 0x11) if one.version == 5 else ())


@pytest.mark.spec("5.0", "MQTT-3.10.4-4")
def test_an_unsubscribe_whose_answer_the_client_cannot_take_ends_the_connection(
    client: Open, topic: str
) -> None:
    one = client(props={"maximum_packet_size": 40})
    one.unsubscribe(*(f"{topic}/{each}" for each in range(35)))

    one.send(mqtt.unsubscribe(*(f"{topic}/{each}" for each in range(36))))

    one.expect_refusal(0x95)
