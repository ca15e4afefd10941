"""Where packets begin and end is said by their headers, not by segments."""

from __future__ import annotations

from collections.abc import Callable

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


def conversation(topic: str, version: int) -> bytes:
    """A client's whole side: connect, subscribe, publish at each quality, unsubscribe, leave."""
    return b"".join(
        [
            mqtt.connect(unique("c"), version=version),
            mqtt.subscribe((topic, 0), packet_id=1, version=version),
            mqtt.publish(topic, b"0" * 200, version=version),
            mqtt.publish(topic, b"1", qos=1, packet_id=2, version=version),
            mqtt.publish(topic, b"2", qos=2, packet_id=3, version=version),
            mqtt.ack(mqtt.PUBREL, 3),
            mqtt.pingreq(),
            mqtt.unsubscribe(topic, packet_id=4, version=version),
            mqtt.disconnect(),
        ]
    )


def answers(one: Wire) -> tuple[list[int], list[bytes]]:
    """Kinds of the acknowledgements in order, and payloads in order, until the end."""
    kinds: list[int] = []
    payloads: list[bytes] = []
    while not kinds or kinds[-1] != mqtt.UNSUBACK:
        found = one.receive()
        if found.kind == mqtt.PUBLISH:
            payloads.append(found.payload)
        else:
            kinds.append(found.kind)
    one.expect_close()
    return kinds, payloads


EXPECTED = (
    [
        mqtt.CONNACK,
        mqtt.SUBACK,
        mqtt.PUBACK,
        mqtt.PUBREC,
        mqtt.PUBCOMP,
        mqtt.PINGRESP,
        mqtt.UNSUBACK,
    ],
    [b"0" * 200, b"1", b"2"],
)


def test_a_conversation_in_one_segment(wire: Open, topic: str, version: int) -> None:
    one = wire(version=version)

    one.send(conversation(topic, version))

    assert answers(one) == EXPECTED


def test_a_conversation_byte_by_byte(wire: Open, topic: str, version: int) -> None:
    one = wire(version=version)

    one.send_slowly(conversation(topic, version))

    assert answers(one) == EXPECTED


def test_a_thousand_packets_in_one_segment(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe(topic)
    expected = [b"%d" % number for number in range(1_000)]

    one.send(*(mqtt.publish(topic, payload, version=version) for payload in expected))

    assert mqtt.payloads([one.receive_publish() for _ in expected]) == expected
    one.ping()


def test_lengths_around_every_step_of_the_header(client: Open, topic: str, version: int) -> None:
    one = client(version=version)
    one.subscribe((topic, 0))
    head = len(mqtt.publish(topic, version=version)) - 2

    for length in (127, 128, 129, 16_383, 16_384, 16_385):
        payload = b"x" * (length - head)
        one.send(mqtt.publish(topic, payload, version=version))
        assert one.receive_publish().payload == payload


def test_a_header_that_waits_for_its_last_byte(client: Open, topic: str) -> None:
    one, other = client(version=4), client(version=4)
    one.subscribe(topic)
    frame = mqtt.publish(topic, b"x" * 20_000, version=4)

    for cut in (1, 2, 3, 4, 5, 100, len(frame) - 1):
        one.send(frame[:cut])
        other.ping()
        one.send(frame[cut:])
        assert len(one.receive_publish().payload) == 20_000
