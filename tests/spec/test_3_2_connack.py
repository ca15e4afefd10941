"""Section 3.2 of MQTT 3.1.1 and 5.0: CONNACK, and the limits that it announces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.plugin import Limits

from tests import wire as mqtt
from tests.spec.plugins import Doorkeeper
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
Start = Callable[..., "Broker"]

# --- 3.2.0: the first packet, and only once -------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.2.0-1")
@pytest.mark.spec("5.0", "MQTT-3.2.0-1")
def test_connack_comes_before_everything_that_waits(
    client: Open, wire: Open, version: int, topic: str
) -> None:
    name, sender = unique("c"), client()
    old = client(name, keep=True)
    old.subscribe((topic, 2))
    sender.publish(topic, qos=2)
    old.send(mqtt.ack(mqtt.PUBREC, old.expect(mqtt.PUBLISH).packet_id or 0))
    old.expect(mqtt.PUBREL)
    sender.publish(topic, qos=1)
    old.close()
    sender.publish(topic, qos=1)

    new = wire()
    new.send(
        mqtt.connect(name, clean=False, version=version),
        mqtt.pingreq(),
        mqtt.publish("other", qos=1, packet_id=1, version=version),
    )

    kinds = [new.receive().kind for _ in range(6)]
    assert kinds[0] == mqtt.CONNACK
    assert sorted(kinds[1:]) == sorted(
        [mqtt.PUBREL, mqtt.PUBLISH, mqtt.PUBLISH, mqtt.PINGRESP, mqtt.PUBACK]
    )


@pytest.mark.spec("5.0", "MQTT-3.2.0-2")
def test_there_is_one_connack_for_a_connection(client: Open) -> None:
    one = client(unique("c"))

    one.send(mqtt.connect(unique("c")), mqtt.connect(unique("c")))

    assert [each.kind for each in one.receive_until_close()] == [mqtt.DISCONNECT]


# --- 3.2.2: acknowledge flags and session present -------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.2.2-1")
@pytest.mark.spec("5.0", "MQTT-3.2.2-2")
@pytest.mark.spec("5.0", "MQTT-3.2.2-3")
def test_the_acknowledge_flags_say_whether_state_existed_and_nothing_else(wire: Open) -> None:
    name, flags = unique("c"), []

    for clean in (False, False, True, False):
        one = wire()
        connack = one.connect(name, clean=clean, props={"session_expiry_interval": 60})
        flags.append(connack.raw[2])
        one.close()

    assert flags == [0, 1, 0, 1]


@pytest.mark.spec("3.1.1", "MQTT-3.2.2-1")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-2")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-3")
def test_session_present_says_whether_state_existed(wire: Open) -> None:
    name, connacks = unique("c"), []

    for clean in (False, False, True, False):
        one = wire()
        connacks.append(one.connect(name, clean=clean).raw)
        one.close()

    new, resumed = bytes.fromhex("20 02 00 00"), bytes.fromhex("20 02 01 00")
    assert connacks == [new, resumed, new, new]


@pytest.mark.spec("3.1.1", "MQTT-3.2.2-4")
@pytest.mark.spec("3.1.1", "MQTT-3.2.2-5")
@pytest.mark.spec("5.0", "MQTT-3.2.2-6")
@pytest.mark.spec("5.0", "MQTT-3.2.2-7")
def test_a_refusal_has_no_session_present_and_closes(
    start_broker: Start, client: Open, wire: Open, version: int
) -> None:
    port = start_broker(Doorkeeper()).port
    client("kept", keep=True, port=port).disconnect()
    one = wire(port=port)

    one.send(
        mqtt.connect("kept", clean=False, version=version, username="j", password=b"wrong"),
        mqtt.pingreq(),
    )

    one.expect_bytes(bytes.fromhex("20 03 00 87 00" if version == 5 else "20 02 00 05"))
    one.expect_close()


# What CONNACK of 5.0 may say, section 3.2.2.2.
LISTED = {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}

REFUSED: dict[str, dict[str, Any]] = {
    "malformed": {"flags": 0x03},
    "protocol error": {"props": b"\x21\x00\x00"},
    "version": {"level": 6},
    "identifier": {"client_id": "a+b"},
    "method": {"props": {"authentication_method": "none"}},
    "will topic": {"will": Will(topic="a/#")},
    "will right": {"will": Will(topic="$SYS/x")},
    "too many properties": {"props": {"user_property": [("a", "b")] * 65}},
    "too large": {"username": "x" * 9_000, "password": b""},
}


@pytest.mark.spec("5.0", "MQTT-3.2.2-8")
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_has_a_listed_reason(wire: Open, fields: dict[str, Any]) -> None:
    one = wire()

    one.send(mqtt.connect(**{"client_id": "x", **fields}))

    assert one.expect(mqtt.CONNACK).reason in LISTED - {0x00}
    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.2.2-6")
@pytest.mark.parametrize(
    "will", [Will(topic="a/#"), Will(topic="a", qos=2), Will(topic="a", retain=True)]
)
def test_what_no_return_code_fits_is_closed_without_a_connack(
    start_broker: Start, wire: Open, will: Will
) -> None:
    port = start_broker(maximum_qos=1, retain_available=False).port
    one = wire(port=port)

    one.send(mqtt.connect("x", version=4, will=will))

    one.expect_close()


# --- 3.2.2: announced limits ----------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.2.2-9")
@pytest.mark.parametrize("highest", [0, 1])
def test_a_limited_qos_is_announced(start_broker: Start, wire: Open, highest: int) -> None:
    port = start_broker(maximum_qos=highest).port

    connack = wire(port=port).connect("x")

    assert connack.property("maximum_qos") == highest


@pytest.mark.spec("5.0", "MQTT-3.2.2-9")
def test_a_qos_that_is_limited_for_one_client_is_announced_to_it(
    start_broker: Start, wire: Open
) -> None:
    port = start_broker(Doorkeeper(limits=Limits(max_qos=1))).port

    limited = wire(port=port).connect("x", username="joe", password=b"open")
    other = wire(port=port).connect("y")

    assert limited.property("maximum_qos") == 1
    assert other.property("maximum_qos") is None


@pytest.mark.spec("5.0", "MQTT-3.2.2-9")
def test_the_whole_range_of_qos_is_not_announced(wire: Open) -> None:
    assert wire().connect(unique("c")).property("maximum_qos") is None


@pytest.mark.spec("5.0", "MQTT-3.2.2-10")
@pytest.mark.parametrize("highest", [0, 1])
def test_any_qos_may_be_asked_for_and_less_is_granted(
    start_broker: Start, client: Open, topic: str, highest: int
) -> None:
    one = client(port=start_broker(maximum_qos=highest).port)

    found = one.subscribe(*[(f"{topic}/{qos}", qos) for qos in range(3)])

    assert found.reasons == tuple(min(qos, highest) for qos in range(3))
    one.publish(f"{topic}/2", b"x", qos=highest)
    assert one.receive_publish().qos == highest


@pytest.mark.spec("5.0", "MQTT-3.2.2-11")
@pytest.mark.parametrize(("highest", "sent"), [(0, 1), (0, 2), (1, 2)])
def test_a_publish_above_the_maximum_qos_ends_the_connection(
    start_broker: Start, client: Open, topic: str, highest: int, sent: int
) -> None:
    port = start_broker(maximum_qos=highest).port
    watcher, one = client(port=port), client(port=port)
    watcher.subscribe((topic, 2))

    one.send(mqtt.publish(topic, qos=sent, packet_id=1))

    one.expect_refusal(0x9B)
    watcher.ping()


@pytest.mark.spec("5.0", "MQTT-3.2.2-12")
@pytest.mark.parametrize(("highest", "will_qos"), [(0, 1), (0, 2), (1, 2)])
def test_a_will_above_the_maximum_qos_is_refused(
    start_broker: Start, client: Open, wire: Open, topic: str, highest: int, will_qos: int
) -> None:
    port = start_broker(maximum_qos=highest).port
    watcher, one = client(port=port), wire(port=port)
    watcher.subscribe(topic)

    one.send(mqtt.connect("x", will=Will(topic=topic, qos=will_qos)))

    one.expect_no_entry(0x9B)
    watcher.ping()


@pytest.mark.spec("5.0", "MQTT-3.2.2-12")
def test_a_will_above_the_qos_of_one_clients_limits_is_refused(
    start_broker: Start, wire: Open
) -> None:
    one = wire(port=start_broker(Doorkeeper(limits=Limits(max_qos=1))).port)

    will = Will(topic="a", qos=2)
    one.connect("x", username="joe", password=b"open", will=will, reason=0x9B)

    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.2.2-12")
def test_a_will_of_exactly_the_maximum_qos_is_accepted(
    start_broker: Start, client: Open, topic: str
) -> None:
    port = start_broker(maximum_qos=1).port
    watcher = client(port=port)
    watcher.subscribe((topic, 2))

    client(port=port, will=Will(topic=topic, qos=1)).close()

    assert watcher.receive_publish().qos == 1


@pytest.mark.spec("5.0", "MQTT-3.2.2-13")
def test_a_retained_will_is_refused_where_retain_is_not_available(
    start_broker: Start, client: Open, wire: Open, topic: str
) -> None:
    port = start_broker(retain_available=False).port
    watcher, one = client(port=port), wire(port=port)
    watcher.subscribe(topic)

    one.send(mqtt.connect("x", will=Will(topic=topic, retain=True)))

    one.expect_no_entry(0x9A)
    watcher.ping()


@pytest.mark.spec("5.0", "MQTT-3.2.2-14")
def test_a_retained_publish_ends_the_connection_where_retain_is_not_available(
    start_broker: Start, client: Open, wire: Open, topic: str
) -> None:
    port = start_broker(retain_available=False).port
    watcher, one = client(port=port), wire(port=port)
    watcher.subscribe(topic)
    assert one.connect("x").property("retain_available") == 0

    one.send(mqtt.publish(topic, retain=True))

    one.expect_refusal(0x9A)
    watcher.ping()


@pytest.mark.spec("5.0", "MQTT-3.2.2-15")
@pytest.mark.parametrize("too_long", [0, 1])
@pytest.mark.parametrize("most", [100, 1_024])
def test_a_packet_above_the_servers_maximum_packet_size_ends_the_connection(
    start_broker: Start, wire: Open, most: int, too_long: int
) -> None:
    one = wire(port=start_broker(maximum_packet_size=most).port)
    assert one.connect("x").property("maximum_packet_size") == most
    length = most + too_long - 1 - (1 if most < 128 else 2)

    one.send(b"\x30", mqtt.var_int(length), b"\x00\x01a\x00", b"x" * (length - 4))

    if too_long:
        one.expect_refusal(0x95)
    else:
        one.ping()


@pytest.mark.spec("5.0", "MQTT-3.2.2-17")
def test_an_alias_above_the_servers_maximum_ends_the_connection(wire: Open, topic: str) -> None:
    one = wire()
    maximum = one.connect(unique("c")).property("topic_alias_maximum")
    assert isinstance(maximum, int)

    one.publish(topic, props={"topic_alias": maximum})
    one.send(mqtt.publish(topic, props={"topic_alias": maximum + 1}))

    one.expect_refusal(0x94)


@pytest.mark.spec("5.0", "MQTT-3.2.2-18")
def test_any_alias_ends_the_connection_where_none_is_offered(
    start_broker: Start, wire: Open
) -> None:
    one = wire(port=start_broker(topic_alias_maximum=0).port)
    assert one.connect("x").property("topic_alias_maximum") is None

    one.send(mqtt.publish("a", props={"topic_alias": 1}))

    one.expect_refusal(0x94)


@pytest.mark.spec("5.0", "MQTT-3.2.2-19")
@pytest.mark.parametrize(
    ("limit", "connack"),
    [
        (None, "20 0b 00 87 08 1f 00 05 73 6f 72 72 79"),
        (13, "20 0b 00 87 08 1f 00 05 73 6f 72 72 79"),
        (12, "20 03 00 87 00"),
        (5, "20 03 00 87 00"),
    ],
)
def test_a_reason_string_that_would_be_too_large_is_left_out_of_connack(
    start_broker: Start, wire: Open, limit: int | None, connack: str
) -> None:
    one = wire(port=start_broker(Doorkeeper("sorry")).port)
    props = {} if limit is None else {"maximum_packet_size": limit}

    one.send(mqtt.connect("x", username="joe", password=b"wrong", props=props))

    one.expect_bytes(bytes.fromhex(connack))
    one.expect_close()
