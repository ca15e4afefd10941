"""Section 3.8 of MQTT 3.1.1 and 5.0: SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
NO_LOCAL, RETAIN_AS_PUBLISHED, SEND_IF_NEW, DO_NOT_SEND = 0x04, 0x08, 0x10, 0x20


# --- what a SUBSCRIBE must look like --------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.8.1-1")
@pytest.mark.spec("5.0", "MQTT-3.8.1-1")
@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x06, 0x0A, 0x0F])
def test_wrong_flags_of_subscribe_end_the_connection(client: Open, topic: str, flags: int) -> None:
    one = client()
    good = mqtt.subscribe(topic, version=one.version)

    one.send(bytes([0x80 | flags]), good[1:])

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.8.3-1")
@pytest.mark.spec("5.0", "MQTT-3.8.3-1")
@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x00b"],
    ids=["ff", "cut", "overlong", "surrogate", "beyond", "null"],
)
def test_a_filter_that_is_not_utf_8_ends_the_connection(client: Open, bad: bytes) -> None:
    one = client()

    one.send(mqtt.subscribe(b"spec/" + bad, version=one.version))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.8.3-1")
@pytest.mark.spec("5.0", "MQTT-3.8.3-1")
def test_a_filter_of_any_script_is_taken(client: Open) -> None:
    one = client()
    topic = unique("ключ/鍵/🔑/é/")

    assert one.subscribe(topic).reason == 0

    one.publish(topic, b"x")
    assert one.receive_publish().topic == topic


@pytest.mark.spec("3.1.1", "MQTT-3.8.3-3")
@pytest.mark.spec("5.0", "MQTT-3.8.3-2")
def test_a_subscribe_without_a_filter_ends_the_connection(client: Open) -> None:
    one = client()

    one.send(mqtt.subscribe(version=one.version))

    one.expect_refusal(0x82)


@pytest.mark.spec("3.1.1", "MQTT-3.8.3-3")
@pytest.mark.spec("5.0", "MQTT-3.8.3-2")
def test_a_filter_without_its_options_ends_the_connection(client: Open, topic: str) -> None:
    one = client()
    whole = mqtt.subscribe(topic, version=one.version)

    one.send(mqtt.packet(0x82, whole[2:-1]))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3-8.3-4")
@pytest.mark.parametrize("options", [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFE])
def test_a_requested_qos_that_does_not_exist_ends_the_connection(
    client: Open, topic: str, options: int
) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, options), version=4))

    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.8.3-5")
@pytest.mark.parametrize("options", [0x40, 0x80, 0xC0, 0x41])
def test_reserved_options_are_malformed(client: Open, topic: str, options: int) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, options)))

    one.expect_refusal(0x81)


@pytest.mark.spec("5.0", "MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(client: Open, topic: str) -> None:
    one = client()

    one.send(mqtt.subscribe((f"$share/group/{topic}", NO_LOCAL)))

    one.expect_refusal(0x82)


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("options", [0x03, 0x30], ids=["qos 3", "retain handling 3"])
def test_options_out_of_range_are_a_protocol_error(client: Open, topic: str, options: int) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, options)))

    one.expect_refusal(0x82)


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize(
    "listed",
    [b"\x0b\x00", b"\x0b\x01\x0b\x02", b"\x0b\x80\x80\x80\x80\x01"],
    ids=["zero", "twice", "five bytes"],
)
def test_a_wrong_subscription_identifier_ends_the_connection(
    client: Open, topic: str, listed: bytes
) -> None:
    one = client()

    one.send(mqtt.subscribe(topic, props=listed))

    assert one.expect(mqtt.DISCONNECT).reason in (0x81, 0x82)
    one.expect_close()


# --- the answer -----------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-1")
@pytest.mark.spec("5.0", "MQTT-3.8.4-1")
@pytest.mark.spec("3.1.1", "MQTT-3.8.4-2")
@pytest.mark.spec("5.0", "MQTT-3.8.4-2")
@pytest.mark.parametrize("number", [0x0001, 0x1234, 0xFFFF])
def test_subscribe_is_answered_by_suback_of_its_identifier(
    client: Open, topic: str, number: int
) -> None:
    one = client()

    one.send(mqtt.subscribe((topic, 1), packet_id=number, version=one.version))

    nothing = b"\x00" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0x90, number.to_bytes(2, "big"), nothing, b"\x01"))


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-1")
@pytest.mark.spec("5.0", "MQTT-3.8.4-1")
def test_each_of_many_subscribes_is_answered(client: Open, topic: str) -> None:
    one = client()

    one.send(
        *(
            mqtt.subscribe(f"{topic}/{each}", packet_id=each, version=one.version)
            for each in range(1, 51)
        )
    )

    assert [one.expect(mqtt.SUBACK).packet_id for _ in range(50)] == list(range(1, 51))


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-5")
@pytest.mark.spec("5.0", "MQTT-3.8.4-6")
@pytest.mark.spec("5.0", "MQTT-3.8.4-7")
def test_suback_has_the_granted_qos_of_each_filter(client: Open, topic: str) -> None:
    one = client()

    one.send(
        mqtt.subscribe((f"{topic}/a", 2), (f"{topic}/b", 0), (f"{topic}/c", 1), version=one.version)
    )

    nothing = b"\x00" if one.version == 5 else b""
    one.expect_bytes(mqtt.packet(0x90, b"\x00\x01", nothing, b"\x02\x00\x01"))


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-5")
@pytest.mark.spec("5.0", "MQTT-3.8.4-6")
@pytest.mark.spec("5.0", "MQTT-3.8.4-7")
def test_suback_says_which_filter_failed(client: Open, topic: str) -> None:
    one = client()

    answer = one.subscribe((topic, 1), ("$forbidden/of/all", 1), (f"{topic}/b", 2))

    assert answer.reasons == (1, 0x87 if one.version == 5 else 0x80, 2)


@pytest.mark.spec("5.0", "MQTT-3.8.4-7")
def test_a_broker_with_a_lower_maximum_grants_that(
    client: Open, start_broker: Callable[..., Broker], topic: str
) -> None:
    one = client(port=start_broker(maximum_qos=1).port)

    assert one.subscribe((f"{topic}/a", 0), (f"{topic}/b", 2)).reasons == (0, 1)


@pytest.mark.spec("3.1.1", "MQTT-3.8.3-2")
@pytest.mark.parametrize("filter_", ["#", "+", "spec/+/a", "spec/#"])
def test_a_broker_without_wildcards_refuses_such_filters(
    client: Open, no_wildcards: Broker, filter_: str
) -> None:
    one = client(port=no_wildcards.port)

    assert one.subscribe("spec/plain", filter_, "spec/other").reasons == (0, 0x80, 0)


@pytest.mark.beyond("5.0")
def test_a_broker_without_wildcards_has_a_code_for_it(
    client: Open, no_wildcards: Broker, topic: str
) -> None:
    one = client(port=no_wildcards.port)

    assert one.subscribe(topic, f"{topic}/+").reasons == (0, 0xA2)


@pytest.mark.spec("5.0", "MQTT-3.8.4-1")
def test_a_subscribe_whose_answer_the_client_cannot_take_ends_the_connection(
    client: Open, topic: str
) -> None:
    one = client(props={"maximum_packet_size": 40})
    one.subscribe(*(f"{topic}/{each}" for each in range(35)))

    one.send(mqtt.subscribe(*(f"{topic}/{each}" for each in range(36))))

    one.expect_refusal(0x95)


# --- several filters in one packet ----------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-4")
@pytest.mark.spec("5.0", "MQTT-3.8.4-5")
def test_several_filters_are_answered_once_and_act_each(client: Open, topic: str) -> None:
    one, sender = client(), client()

    answer = one.subscribe((f"{topic}/a", 1), (f"{topic}/b", 0))

    assert answer.reasons == (1, 0)
    for name in ("a", "b", "c"):
        sender.publish(f"{topic}/{name}", name.encode(), qos=1)
    found = [one.receive_publish(), one.receive_publish()]
    assert [(each.payload, each.qos) for each in found] == [(b"a", 1), (b"b", 0)]
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-4")
@pytest.mark.spec("5.0", "MQTT-3.8.4-5")
def test_a_filter_that_fails_harms_no_other_of_its_packet(client: Open, topic: str) -> None:
    one = client()

    one.subscribe("$forbidden/of/all", topic)

    one.publish(topic, b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-4")
@pytest.mark.spec("5.0", "MQTT-3.8.4-5")
def test_the_later_of_two_equal_filters_of_a_packet_holds(client: Open, topic: str) -> None:
    one, sender = client(), client()

    assert one.subscribe((topic, 2), (topic, 1)).reasons == (2, 1)

    sender.publish(topic, qos=2)
    assert one.receive_publish().qos == 1
    one.ping()


# --- the same filter again ------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-3")
@pytest.mark.spec("5.0", "MQTT-3.8.4-3")
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 2)])
def test_the_same_filter_again_replaces_the_subscription(
    client: Open, topic: str, before: int, after: int
) -> None:
    one, sender = client(), client()
    one.subscribe((f"{topic}/+", before))

    one.subscribe((f"{topic}/+", after))

    sender.publish(f"{topic}/a", b"once", qos=2)
    assert one.receive_publish().qos == after
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-3")
@pytest.mark.spec("5.0", "MQTT-3.8.4-3")
def test_one_unsubscribe_ends_a_subscription_that_was_made_twice(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe(topic)
    one.subscribe(topic)

    one.unsubscribe(topic)

    sender.publish(topic, b"x")
    one.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-3")
@pytest.mark.spec("5.0", "MQTT-3.8.4-4")
def test_subscribing_again_sends_the_retained_message_again(client: Open, topic: str) -> None:
    one = client()
    one.publish(topic, b"kept", retain=True)
    one.subscribe(topic)
    first = one.receive_publish()

    one.subscribe(topic)

    second = one.receive_publish()
    assert [(each.payload, each.retain) for each in (first, second)] == [(b"kept", True)] * 2
    one.publish(topic, retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-3")
@pytest.mark.spec("5.0", "MQTT-3.8.4-4")
def test_no_message_is_lost_while_a_subscription_is_replaced(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))
    count = 40

    for packet_id in range(1, count + 1):
        # Both are on their way at once: the broker may take them in either order.
        sender.send(
            mqtt.publish(
                topic, b"%d" % packet_id, qos=1, packet_id=packet_id, version=sender.version
            )
        )
        one.send(mqtt.subscribe((topic, 1), packet_id=packet_id, version=one.version))

    found: list[mqtt.Packet] = []
    answers = 0
    while len(found) < count or answers < count:
        each = one.receive()
        if each.kind == mqtt.SUBACK:
            answers += 1
            continue
        one.acknowledge(each)
        found.append(each)
    assert mqtt.payloads(found) == [b"%d" % each for each in range(1, count + 1)]


@pytest.mark.beyond("5.0")
def test_the_options_are_replaced_with_the_subscription(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, NO_LOCAL), props={"subscription_identifier": 7})
    one.publish(topic, b"unheard")

    one.subscribe((topic, 0))

    one.publish(topic, b"heard")
    found = one.receive_publish()
    assert (found.payload, found.property("subscription_identifier")) == (b"heard", None)


# --- what is delivered ----------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-6")
@pytest.mark.spec("5.0", "MQTT-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_with_the_lower_qos(
    client: Open, topic: str, published: int, granted: int
) -> None:
    one, sender = client(), client()
    one.subscribe((topic, granted))

    sender.publish(topic, b"x", qos=published)

    assert one.receive_publish().qos == min(published, granted)


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-6")
@pytest.mark.spec("5.0", "MQTT-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_comes_with_the_lower_qos(
    client: Open, topic: str, published: int, granted: int
) -> None:
    one, sender = client(), client()
    sender.publish(topic, b"x", qos=published, retain=True)

    one.subscribe((topic, granted))

    assert one.receive_publish().qos == min(published, granted)
    sender.publish(topic, retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.8.4-6")
def test_overlapping_filters_bring_one_copy_with_the_highest_qos(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((f"{topic}/#", 0), (f"{topic}/+", 2), (f"{topic}/a", 1))

    sender.publish(f"{topic}/a", b"x", qos=2)

    assert one.receive_publish().qos == 2
    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_ones_own_messages_away(client: Open, topic: str, qos: int) -> None:
    one, other = client(), client()
    one.subscribe((topic, NO_LOCAL | qos))

    one.publish(topic, b"mine", qos=qos)
    other.publish(topic, b"theirs", qos=qos)

    assert one.receive_publish().payload == b"theirs"
    one.ping()


@pytest.mark.spec("5.0", "MQTT-3.8.3-3")
def test_no_local_goes_by_the_client_identifier_not_the_connection(
    client: Open, topic: str
) -> None:
    name = unique("c")
    first = client(name, keep=True)
    first.subscribe((topic, NO_LOCAL))
    first.close()
    second = client(name, keep=True)

    second.publish(topic, b"mine")
    client().publish(topic, b"theirs")

    assert second.receive_publish().payload == b"theirs"


@pytest.mark.spec("5.0", "MQTT-3.8.3-3")
def test_no_local_speaks_for_its_own_filter_only(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((f"{topic}/#", NO_LOCAL | 2), props={"subscription_identifier": 1})
    one.subscribe((f"{topic}/+", 1), props={"subscription_identifier": 2})

    one.publish(f"{topic}/a", b"mine", qos=2)

    found = one.receive_publish()
    assert (found.qos, found.property("subscription_identifier")) == (1, [2])
    one.ping()


# --- retained messages at subscribe ---------------------------------------------------------------


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize(
    ("handling", "times"), [(0x00, 2), (SEND_IF_NEW, 1), (DO_NOT_SEND, 0)], ids=["0", "1", "2"]
)
def test_retain_handling_says_when_retained_messages_are_sent(
    client: Open, topic: str, handling: int, times: int
) -> None:
    one, sentinel = client(), unique()
    one.publish(topic, b"kept", retain=True)
    one.subscribe(sentinel)

    one.subscribe((topic, handling))
    one.subscribe((topic, handling))

    one.publish(sentinel, b"end")
    found = [one.receive_publish() for _ in range(times + 1)]
    assert mqtt.payloads(found) == [b"kept"] * times + [b"end"]
    one.publish(topic, retain=True)


@pytest.mark.beyond("5.0")
def test_a_filter_that_was_ended_is_new_for_retain_handling_1(client: Open, topic: str) -> None:
    one = client()
    one.publish(topic, b"kept", retain=True)
    one.subscribe((topic, SEND_IF_NEW))
    one.receive_publish()
    one.unsubscribe(topic)

    one.subscribe((topic, SEND_IF_NEW))

    assert one.receive_publish().payload == b"kept"
    one.publish(topic, retain=True)


@pytest.mark.beyond("5.0")
def test_a_resumed_subscription_is_not_new_for_retain_handling_1(client: Open, topic: str) -> None:
    name = unique("c")
    client().publish(topic, b"kept", retain=True)
    first = client(name, keep=True)
    first.subscribe((topic, SEND_IF_NEW))
    first.receive_publish()
    first.close()
    second = client(name, keep=True)

    second.subscribe((topic, SEND_IF_NEW))

    second.ping()
    second.publish(topic, retain=True)


@pytest.mark.beyond
def test_suback_comes_before_the_retained_messages_of_its_filter(client: Open, topic: str) -> None:
    one = client()
    one.publish(topic, b"kept", retain=True)

    one.send(mqtt.subscribe(topic, version=one.version))

    one.expect(mqtt.SUBACK)
    assert one.receive_publish().payload == b"kept"
    one.publish(topic, retain=True)


@pytest.fixture
def no_wildcards(start_broker: Callable[..., Broker]) -> Broker:
    """A broker that has no wildcard subscriptions."""
    return start_broker(wildcard_subscription_available=False)
