"""Section 4.5 of MQTT 3.1.1 and 5.0: an accepted message goes into each matching session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.spec("3.1.1", "MQTT-4.5.0-1")
@pytest.mark.spec("5.0", "MQTT-4.5.0-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_every_client_that_matches(client: Open, topic: str, qos: int) -> None:
    filters = ["{}/a/b", "{}/+/b", "{}/a/+", "{}/#", "+/a/b", "{}/a/b/#", "{}/+/+"]
    receivers = [client() for _ in filters]
    for one, filter_ in zip(receivers, filters, strict=True):
        one.subscribe((filter_.format(topic), qos))

    client().publish(f"{topic}/a/b", b"x", qos=qos)

    for one in receivers:
        assert one.receive_publish().payload == b"x"
        one.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.5.0-1")
@pytest.mark.spec("5.0", "MQTT-4.5.0-1")
def test_a_message_reaches_clients_of_every_version(client: Open, topic: str) -> None:
    receivers = [client(version=each) for each in (3, 4, 5)]
    for one in receivers:
        one.subscribe((topic, 1))

    client().publish(topic, b"x", qos=1)

    assert mqtt.payloads([one.receive_publish() for one in receivers]) == [b"x"] * 3


@pytest.mark.spec("3.1.1", "MQTT-4.5.0-1")
@pytest.mark.spec("5.0", "MQTT-4.5.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_goes_into_sessions_that_are_away(client: Open, topic: str, qos: int) -> None:
    names = [unique("c") for _ in range(3)]
    for name in names:
        one = client(name, keep=True)
        one.subscribe((topic, qos))
        one.disconnect()

    client().publish(topic, b"waits", qos=qos)

    for name in names:
        again = client(name, keep=True)
        found = again.receive_publish()
        assert (found.payload, found.qos, found.dup) == (b"waits", qos, False)
        again.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.5.0-1")
@pytest.mark.spec("5.0", "MQTT-4.5.0-1")
def test_what_was_acknowledged_was_in_every_session(client: Open, topic: str) -> None:
    names, sender = [unique("c") for _ in range(5)], client()
    for name in names:
        client(name, keep=True).subscribe((topic, 1))

    for packet_id in range(1, 11):
        sender.publish(topic, b"%d" % packet_id, qos=1, packet_id=packet_id)

    for name in names:
        again = client(name, keep=True)
        assert mqtt.payloads([again.receive_publish() for _ in range(10)]) == [
            b"%d" % each for each in range(1, 11)
        ]


@pytest.mark.spec("3.1.1", "MQTT-4.5.0-2")
@pytest.mark.spec("5.0", "MQTT-4.5.0-2")
def test_a_client_that_never_acknowledges_keeps_nothing_from_others(
    client: Open, topic: str
) -> None:
    deaf, other, sender = client(), client(), client()
    deaf.subscribe((topic, 1))
    other.subscribe((topic, 1))

    for packet_id in range(1, 101):
        sender.publish(topic, b"%d" % packet_id, qos=1, packet_id=packet_id)
        assert other.receive_publish().payload == b"%d" % packet_id


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_refused_reaches_nobody(
    client: Open, start_broker: Callable[..., Broker], topic: str, qos: int
) -> None:
    port = start_broker(retained_messages=1, sys_interval_s=0).port
    one, sender = client(port=port), client(port=port)
    one.subscribe((f"{topic}/#", qos))
    sender.publish(f"{topic}/kept", b"kept", retain=True)

    assert sender.publish(f"{topic}/more", b"refused", qos=qos, retain=True).reason == 0x97

    sender.publish(f"{topic}/more", b"live", qos=qos)
    assert mqtt.payloads([one.receive_publish(), one.receive_publish()]) == [b"kept", b"live"]


@pytest.mark.beyond("3.1", "3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_3_x_has_no_refusal_for_is_delivered_though_it_could_not_be_retained(
    client: Open, start_broker: Callable[..., Broker], topic: str, qos: int
) -> None:
    port = start_broker(retained_messages=1, sys_interval_s=0).port
    one, sender, late = client(port=port), client(port=port), client(port=port)
    one.subscribe((f"{topic}/#", qos))
    sender.publish(f"{topic}/kept", b"kept", retain=True)

    sender.publish(f"{topic}/more", b"live", qos=qos, retain=True)

    assert mqtt.payloads([one.receive_publish(), one.receive_publish()]) == [b"kept", b"live"]
    late.subscribe(f"{topic}/more")
    late.ping()
