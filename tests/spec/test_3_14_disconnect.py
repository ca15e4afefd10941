"""Section 3.14 of MQTT 3.1.1 and 5.0: DISCONNECT, from either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.spec.room import expect_left_out
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


# --- not before CONNACK ---------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.14.0-1")
@pytest.mark.parametrize(
    "first",
    [
        b"\xc0\x00",
        b"\xe0\x00",
        b"\xf0\x00",
        b"\x82\x06\x00\x01\x00\x00\x01a\x00",
        b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x3c\x00\x00\x00",
        b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x00\x00",
    ],
    ids=["pingreq", "disconnect", "auth", "subscribe", "reserved flag", "level 6"],
)
def test_before_connack_a_refusal_is_never_a_disconnect(wire: Open, first: bytes) -> None:
    one = wire()

    one.send(first)

    try:
        assert one.receive().kind == mqtt.CONNACK
    except mqtt.ClosedByPeerError:
        return
    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.14.0-1")
def test_a_client_that_is_not_let_in_gets_no_disconnect(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), will=Will(topic="$SYS/not/allowed")))

    assert one.expect(mqtt.CONNACK).reason >= 0x80
    one.expect_close()


# --- what it must look like -----------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.14.1-1")
@pytest.mark.spec("5.0", "MQTT-3.14.1-1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_reserved_bits_of_disconnect_end_the_connection(client: Open, flags: int) -> None:
    one = client()

    one.send(bytes([0xE0 | flags, 0x00]))

    one.expect_refusal(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.14.1-1")
@pytest.mark.spec("5.0", "MQTT-3.14.1-1")
def test_a_disconnect_with_reserved_bits_does_not_discard_the_will(
    client: Open, topic: str
) -> None:
    heir = client()
    heir.subscribe(topic)
    one = client(will=Will(topic=topic, payload=b"lost"))

    one.send(b"\xe1\x00")

    one.expect_refusal(0x81)
    assert heir.receive_publish().payload == b"lost"


@pytest.mark.spec("5.0", "MQTT-3.14.2-1")
@pytest.mark.parametrize("code", [0x01, 0x10, 0x18, 0x84, 0x85, 0x91, 0xA3, 0xFF])
def test_a_code_that_disconnect_does_not_have_is_a_protocol_error(client: Open, code: int) -> None:
    one = client()

    one.send(b"\xe0\x01", bytes([code]))

    one.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.14.2-1")
@pytest.mark.parametrize(
    "code", [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99]
)
def test_every_code_of_a_clients_disconnect_ends_the_connection(client: Open, code: int) -> None:
    one = client()

    one.send(b"\xe0\x01", bytes([code]))

    one.expect_close()


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x00"], ids=["bare", "code", "properties"])
def test_a_normal_disconnect_may_be_cut_short(client: Open, topic: str, body: bytes) -> None:
    heir = client()
    heir.subscribe(topic)
    one = client(will=Will(topic=topic))

    one.send(mqtt.packet(0xE0, body))

    one.expect_close()
    heir.ping()


@pytest.mark.beyond("3.1", "3.1.1")
def test_a_disconnect_of_3_x_has_no_body(client: Open, topic: str) -> None:
    heir = client()
    heir.subscribe(topic)
    one = client(will=Will(topic=topic, payload=b"lost"))

    one.send(b"\xe0\x01\x00")

    one.expect_close()
    assert heir.receive_publish().payload == b"lost"


# --- the broker's own -----------------------------------------------------------------------------


def provoke_malformed(one: Wire) -> None:
    """0x81."""
    one.send(b"\x36\x00")


def provoke_second_connect(one: Wire) -> None:
    """0x82."""
    one.send(mqtt.connect("x"))


def provoke_bad_topic(one: Wire) -> None:
    """0x90."""
    one.send(mqtt.publish("a/+"))


def provoke_bad_alias(one: Wire) -> None:
    """0x94."""
    one.send(mqtt.publish("a", props={"topic_alias": 0xFFFF}))


def provoke_large_packet(one: Wire) -> None:
    """0x95."""
    one.send(b"\x30\xff\xff\xff\x7f")


PROVOKED = [
    (provoke_malformed, 0x81),
    (provoke_second_connect, 0x82),
    (provoke_bad_topic, 0x90),
    (provoke_bad_alias, 0x94),
    (provoke_large_packet, 0x95),
]


@pytest.mark.spec("5.0", "MQTT-3.14.2-1")
@pytest.mark.spec("5.0", "MQTT-3.14.2-2")
@pytest.mark.parametrize(("provoke", "code"), PROVOKED)
def test_a_disconnect_of_the_broker_has_its_code_and_no_session_expiry(
    client: Open, provoke: Callable[[Wire], None], code: int
) -> None:
    one = client(keep=True)

    provoke(one)

    found = one.expect(mqtt.DISCONNECT)
    assert found.reason == code
    assert found.property("session_expiry_interval") is None
    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.14.2-1")
@pytest.mark.spec("5.0", "MQTT-3.14.2-2")
def test_the_disconnect_of_a_takeover_has_its_code_and_no_session_expiry(client: Open) -> None:
    name = unique("c")
    one = client(name, keep=True)

    client(name, keep=True)

    found = one.expect(mqtt.DISCONNECT)
    assert (found.reason, found.property("session_expiry_interval")) == (0x8E, None)
    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-3.14.2-1")
@pytest.mark.spec("5.0", "MQTT-3.14.2-2")
def test_the_disconnect_of_a_stop_has_its_code_and_no_session_expiry(
    client: Open, start_broker: Callable[..., Broker]
) -> None:
    broker = start_broker(bystander=False)
    one = client(port=broker.port, keep=True)

    broker.stop(deadline=0.0)

    found = one.expect(mqtt.DISCONNECT)
    assert (found.reason, found.property("session_expiry_interval")) == (0x8B, None)


@pytest.mark.spec("5.0", "MQTT-3.14.4-2")
@pytest.mark.spec("5.0", "MQTT-3.14.4-1")
@pytest.mark.parametrize(("provoke", "code"), PROVOKED)
def test_behind_its_disconnect_the_broker_sends_nothing_and_closes(
    client: Open, topic: str, provoke: Callable[[Wire], None], code: int
) -> None:
    one, other = client(), client()
    one.subscribe(topic)

    provoke(one)
    one.send(mqtt.pingreq(), mqtt.publish(topic, b"late"), mqtt.subscribe(f"{topic}/a"))
    other.publish(topic, b"meanwhile")

    # What others publish may have been on its way before the broker saw the fault.
    while (found := one.receive()).payload == b"meanwhile":
        pass
    assert (found.kind, found.reason) == (mqtt.DISCONNECT, code)
    one.expect_close()


# --- a client that left ---------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-3.14.4-1")
@pytest.mark.spec("5.0", "MQTT-3.14.4-2")
def test_the_broker_closes_when_a_client_does_not_after_its_disconnect(client: Open) -> None:
    one = client()

    one.send(b"\xe0\x00")

    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.14.4-2")
@pytest.mark.spec("5.0", "MQTT-3.14.4-1")
def test_what_a_client_sends_behind_its_disconnect_is_not_processed(
    client: Open, topic: str
) -> None:
    heir, one = client(), client()
    heir.subscribe(topic)

    one.send(
        mqtt.publish(topic, b"before", version=one.version),
        b"\xe0\x00",
        mqtt.publish(topic, b"behind", version=one.version),
        mqtt.pingreq(),
    )

    one.expect_close()
    assert heir.receive_publish().payload == b"before"
    heir.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.14.4-3")
@pytest.mark.spec("5.0", "MQTT-3.14.4-3")
def test_disconnect_discards_the_will(client: Open, topic: str) -> None:
    heir = client()
    heir.subscribe(topic)
    one = client(will=Will(topic=topic, payload=b"lost", qos=1))

    one.send(b"\xe0\x00")

    one.expect_close()
    heir.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.14.4-3")
@pytest.mark.spec("5.0", "MQTT-3.14.4-3")
def test_a_discarded_will_is_not_published_by_the_next_end(client: Open, topic: str) -> None:
    heir, name = client(), unique("c")
    heir.subscribe(topic)
    one = client(name, keep=True, will=Will(topic=topic, payload=b"lost"))
    one.send(b"\xe0\x00")
    one.expect_close()
    again = client(name, keep=True)

    again.reset()

    client(name, clean=True).ping()
    heir.ping()


@pytest.mark.spec("5.0", "MQTT-3.14.4-3")
@pytest.mark.parametrize("code", [0x04, 0x80, 0x81, 0x93, 0x98])
def test_a_disconnect_with_another_code_publishes_the_will(
    client: Open, topic: str, code: int
) -> None:
    heir = client()
    heir.subscribe(topic)
    one = client(will=Will(topic=topic, payload=b"wanted"))

    one.send(b"\xe0\x01", bytes([code]))

    assert heir.receive_publish().payload == b"wanted"


@pytest.mark.beyond("5.0")
def test_a_disconnect_may_not_keep_a_session_that_connect_did_not_keep(client: Open) -> None:
    one = client(props={"session_expiry_interval": 0})

    one.send(mqtt.disconnect(0, props={"session_expiry_interval": 60}))

    one.expect_refusal(0x82)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.14.2-3")
@pytest.mark.parametrize(("provoke", "code"), PROVOKED)
def test_a_reason_string_for_which_there_is_no_room_is_left_out(
    client: Open, provoke: Callable[[Wire], None], code: int
) -> None:
    def provoked(one: Wire) -> mqtt.Packet:
        provoke(one)
        found = one.expect(mqtt.DISCONNECT)
        assert found.reason == code
        return found

    expect_left_out(client, provoked, what="reason_string")
