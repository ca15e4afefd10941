"""Section 4.13 of MQTT 5.0 and 4.8 of 3.1.1: a violation ends the connection, and only that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]

# What no version of MQTT allows a connected client to send: what it is, the packet, and the code.
VIOLATIONS = {
    "type 0": (b"\x00\x00", 0x81),
    "a second CONNECT": (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x", 0x82),
    "CONNACK": (b"\x20\x02\x00\x00", None),
    "SUBACK": (b"\x90\x03\x00\x01\x00", None),
    "UNSUBACK": (b"\xb0\x02\x00\x01", None),
    "PINGRESP": (b"\xd0\x00", 0x82),
    "PUBLISH of QoS 3": (b"\x36\x05\x00\x01a\x00\x01", 0x81),
    "PUBLISH of QoS 0 with DUP": (b"\x38\x04\x00\x01a\x00", 0x81),
    "PUBLISH of QoS 1 and identifier 0": (b"\x32\x06\x00\x01a\x00\x00\x00", 0x82),
    "PUBLISH that is cut off in its topic": (b"\x30\x03\x00\x09a", 0x81),
    "PUBLISH that is cut off in its identifier": (b"\x32\x04\x00\x01a\x00", 0x81),
    "PUBLISH of nothing": (b"\x30\x00", 0x81),
    "PUBACK with flags": (b"\x41\x02\x00\x01", 0x81),
    "PUBACK without an identifier": (b"\x40\x00", 0x81),
    "PUBREC with flags": (b"\x52\x02\x00\x01", 0x81),
    "PUBREC of one byte": (b"\x50\x01\x00", 0x81),
    "PUBREL without flags": (b"\x60\x02\x00\x01", 0x81),
    "PUBCOMP with flags": (b"\x78\x02\x00\x01", 0x81),
    "SUBSCRIBE without flags": (b"\x80\x06\x00\x01\x00\x01a\x00", 0x81),
    "SUBSCRIBE of identifier 0": (b"\x82\x07\x00\x00\x00\x00\x01a\x00", 0x82),
    "SUBSCRIBE of nothing": (b"\x82\x00", 0x81),
    "UNSUBSCRIBE of identifier 0": (b"\xa2\x06\x00\x00\x00\x00\x01a", 0x82),
    "PINGREQ with a body": (b"\xc0\x01\x00", 0x81),
    "PINGREQ with flags": (b"\xc1\x00", 0x81),
    "a length of five bytes": (b"\x30\xff\xff\xff\xff\x01", 0x81),
    "a length above the maximum": (b"\x30\xff\xff\xff\x7f", 0x95),
}


@pytest.mark.spec("3.1.1", "MQTT-4.8.0-1")
@pytest.mark.spec("5.0", "MQTT-4.13.1-1")
@pytest.mark.spec("5.0", "MQTT-4.13.2-1")
@pytest.mark.parametrize(("packet", "code"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_ends_the_connection(client: Open, packet: bytes, code: int | None) -> None:
    one = client()

    one.send(packet)

    if code is None and one.version == 5:
        # Nothing that a server sends can be right; whether it is malformed besides is all one.
        assert one.expect(mqtt.DISCONNECT).reason in (0x81, 0x82)
        one.expect_close()
    else:
        one.expect_refusal(code or 0)


# What the properties of 5.0 make possible.
VIOLATIONS_OF_5_0 = {
    "an unknown property": (b"\x30\x06\x00\x01a\x02\x7e\x00", 0x81),
    "a property of another packet": (b"\x30\x09\x00\x01a\x05\x11\x00\x00\x00\x01", 0x81),
    "a property twice": (b"\x30\x08\x00\x01a\x04\x01\x00\x01\x00", 0x82),
    "properties that are cut off": (b"\x30\x06\x00\x01a\x09\x01\x00", 0x81),
    "a property that is cut off": (b"\x30\x05\x00\x01a\x01\x02", 0x81),
    "a boolean of 2": (b"\x30\x06\x00\x01a\x02\x01\x02", 0x82),
    "topic alias 0": (b"\x30\x07\x00\x01a\x03\x23\x00\x00", 0x94),
    "an alias that stands for nothing": (b"\x30\x06\x00\x00\x03\x23\x00\x01", 0x82),
    "an alias above the maximum": (b"\x30\x07\x00\x01a\x03\x23\xff\xff", 0x94),
    "a subscription identifier of a client": (b"\x30\x06\x00\x01a\x02\x0b\x01", 0x82),
    "a padded length": (b"\xc0\x80\x00", 0x81),
    "AUTH that nobody asked for": (b"\xf0\x02\x18\x00", 0x82),
    "bytes behind PUBACK": (b"\x40\x05\x00\x01\x00\x00\x00", 0x81),
    "bytes behind DISCONNECT": (b"\xe0\x03\x00\x00\x00", 0x81),
    "a user property that is no text": (b"\x30\x0a\x00\x01a\x06\x26\x00\x01\xff\x00\x00", 0x81),
}


@pytest.mark.spec("5.0", "MQTT-4.13.1-1")
@pytest.mark.spec("5.0", "MQTT-4.13.2-1")
@pytest.mark.parametrize(("packet", "code"), VIOLATIONS_OF_5_0.values(), ids=VIOLATIONS_OF_5_0)
def test_a_violation_of_5_0_ends_the_connection(client: Open, packet: bytes, code: int) -> None:
    one = client()

    one.send(packet)

    one.expect_refusal(code)


@pytest.mark.spec("3.1.1", "MQTT-4.8.0-1")
@pytest.mark.spec("5.0", "MQTT-4.13.1-1")
def test_what_stands_ahead_of_a_violation_counts_and_what_stands_behind_does_not(
    client: Open, topic: str
) -> None:
    one, other = client(), client()
    other.subscribe(topic)

    one.send(
        mqtt.publish(topic, b"ahead", version=one.version),
        b"\xc1\x00",
        mqtt.publish(topic, b"behind", version=one.version),
    )

    one.expect_refusal(0x81)
    assert other.receive_publish().payload == b"ahead"
    other.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.8.0-1")
@pytest.mark.spec("5.0", "MQTT-4.13.1-1")
def test_a_violation_keeps_the_session_and_publishes_the_will(client: Open, topic: str) -> None:
    name, heir = unique("c"), client()
    heir.subscribe(topic)
    one = client(name, keep=True, will=Will(topic=topic, payload=b"lost"))
    one.subscribe((f"{topic}/kept", 1))

    one.send(b"\xc1\x00")

    one.expect_refusal(0x81)
    assert heir.receive_publish().payload == b"lost"
    heir.publish(f"{topic}/kept", b"waits", qos=1)
    assert client(name, keep=True).receive_publish().payload == b"waits"


@pytest.mark.spec("5.0", "MQTT-4.13.2-1")
def test_a_client_whose_disconnect_says_an_error_is_closed(client: Open) -> None:
    one = client()

    one.send(b"\xe0\x01\x81")

    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-4.13.2-1")
def test_a_connack_that_says_an_error_is_the_end(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), will=Will(topic="$SYS/not/allowed")))
    assert one.expect(mqtt.CONNACK).reason >= 0x80
    one.send(mqtt.pingreq())

    one.expect_close()


@pytest.mark.spec("5.0", "MQTT-4.13.2-1")
def test_an_error_code_of_another_packet_ends_nothing(client: Open) -> None:
    one = client()

    assert one.publish("$SYS/not/allowed", qos=1).reason == 0x87
    assert one.publish("$SYS/not/allowed", qos=2).reason == 0x87
    assert one.subscribe("$not/allowed").reason == 0x87

    one.ping()


# --- faults of the broker's own -------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.8.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_could_not_be_decided_about_is_not_acknowledged_but_closes(
    client: Open, start_broker: Callable[..., Broker], qos: int
) -> None:
    from tests.spec.plugins import ASKED_ABOUT, Broken

    port = start_broker(Broken(), listeners=ASKED_ABOUT).port
    one, other = client(port=port), client(port=port)
    other.subscribe(("slow/#", qos))

    one.send(mqtt.publish("slow/x", b"lost?", qos=qos, packet_id=7, version=4))

    one.expect_close()
    other.ping()


@pytest.mark.beyond("3.1.1")
def test_a_message_that_could_not_be_decided_about_may_be_sent_again(
    client: Open, start_broker: Callable[..., Broker]
) -> None:
    from tests.spec.plugins import ASKED_ABOUT, Broken

    broken, name = Broken(), unique("c")
    port = start_broker(broken, listeners=ASKED_ABOUT).port
    one = client(name, keep=True, port=port)
    one.send(mqtt.publish("slow/x", b"again", qos=2, packet_id=7, version=4))
    one.expect_close()
    other = client(port=port)
    other.subscribe(("slow/#", 2))

    broken.is_mended = True
    client(name, keep=True, port=port).publish("slow/x", b"again", qos=2, packet_id=7, dup=True)

    assert other.receive_publish().payload == b"again"
    other.ping()


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_5_0_is_told_that_it_is_not_authorized(
    client: Open, start_broker: Callable[..., Broker], qos: int
) -> None:
    from tests.spec.plugins import ASKED_ABOUT, Broken

    one = client(port=start_broker(Broken(), listeners=ASKED_ABOUT).port)

    assert one.publish("slow/x", b"x", qos=qos).reason == 0x87
    one.ping()
