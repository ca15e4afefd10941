"""Section 4.6 of MQTT 3.1.1 and 5.0: message order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
COUNT = 60
NUMBERS = range(1, COUNT + 1)
EXPECTED = [b"%d" % each for each in NUMBERS]


def numbered(topic: str, sender: Wire, qos: int) -> bytes:
    """`COUNT` messages in one go."""
    return b"".join(
        mqtt.publish(
            topic,
            b"%d" % each,
            qos=qos,
            packet_id=each if qos else None,
            version=sender.version,
        )
        for each in NUMBERS
    )


def play(one: Wire, count: int = COUNT) -> list[Packet]:
    """`count` messages with all that acknowledges them, many under way at once."""
    found: list[Packet] = []
    open_ = 0
    while len(found) < count or open_:
        each = one.receive()
        if each.kind == mqtt.PUBLISH:
            found.append(each)
            if each.qos:
                one.send(
                    mqtt.ack(mqtt.PUBACK if each.qos == 1 else mqtt.PUBREC, each.packet_id or 0)
                )
                open_ += each.qos == 2
        else:
            assert each.kind == mqtt.PUBREL
            one.send(mqtt.ack(mqtt.PUBCOMP, each.packet_id or 0))
            open_ -= 1
    return found


# --- what is sent again ---------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-1")
@pytest.mark.spec("5.0", "MQTT-4.6.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_publishes_are_sent_again_in_their_original_order(
    client: Open, topic: str, qos: int
) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, qos))
    for each in range(1, 11):
        sender.publish(topic, b"%d" % each, qos=qos, packet_id=each)
    first = [one.expect(mqtt.PUBLISH) for _ in range(10)]
    one.close()

    again = client(name, keep=True)

    second = [again.expect(mqtt.PUBLISH) for _ in range(10)]
    assert mqtt.payloads(second) == mqtt.payloads(first) == EXPECTED[:10]


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-1")
@pytest.mark.spec("5.0", "MQTT-4.6.0-1")
def test_gaps_of_what_was_acknowledged_do_not_change_the_order(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 1))
    for each in range(1, 11):
        sender.publish(topic, b"%d" % each, qos=1, packet_id=each)
    first = [one.expect(mqtt.PUBLISH) for _ in range(10)]
    one.send(*(mqtt.ack(mqtt.PUBACK, first[at].packet_id or 0) for at in (8, 0, 5, 2)))
    one.ping()
    for each in (11, 12):
        sender.publish(topic, b"%d" % each, qos=1, packet_id=each)
    for _ in range(2):
        one.expect(mqtt.PUBLISH)
    one.close()

    again = client(name, keep=True)

    found = [again.expect(mqtt.PUBLISH) for _ in range(8)]
    assert mqtt.payloads(found) == [b"2", b"4", b"5", b"7", b"8", b"10", b"11", b"12"]


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-1")
@pytest.mark.spec("5.0", "MQTT-4.6.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_sent_again_comes_ahead_of_what_waited(client: Open, topic: str, qos: int) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, qos))
    sender.send(numbered(topic, sender, qos))
    acks = [sender.receive() for _ in NUMBERS]
    # The window of the broker is 32, so the others wait behind it.
    before = [one.expect(mqtt.PUBLISH) for _ in range(32)]
    one.close()
    sender.publish(topic, b"last", qos=1, packet_id=COUNT + 1)

    again = client(name, keep=True)

    found = play(again, COUNT + 1)
    assert len(acks) == COUNT
    assert mqtt.payloads(before) == EXPECTED[:32]
    assert mqtt.payloads(found) == [*EXPECTED, b"last"]
    assert [each.dup for each in found] == [True] * 32 + [False] * (COUNT - 31)


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-4")
@pytest.mark.spec("5.0", "MQTT-4.6.0-4")
def test_pubrels_are_sent_again_in_the_order_of_their_pubrecs(client: Open, topic: str) -> None:
    name, sender = unique("c"), client()
    one = client(name, keep=True)
    one.subscribe((topic, 2))
    for each in range(1, 6):
        sender.publish(topic, qos=2, packet_id=each)
    first = [one.expect(mqtt.PUBLISH).packet_id or 0 for _ in range(5)]
    order = [first[at] for at in (3, 0, 4, 1)]
    for each in order:
        one.send(mqtt.ack(mqtt.PUBREC, each))
        one.expect(mqtt.PUBREL)
    one.close()

    again = client(name, keep=True)

    assert [again.expect(mqtt.PUBREL).packet_id for _ in order] == order
    assert again.expect(mqtt.PUBLISH).packet_id == first[2]


# --- acknowledgements -----------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-2")
@pytest.mark.spec("5.0", "MQTT-4.6.0-2")
def test_pubacks_are_in_the_order_of_the_publishes(client: Open, topic: str) -> None:
    one, other = client(), client()
    other.subscribe(f"{topic}/heard")
    order = [9, 3, 7, 1, 8, 2, 6, 5, 4, 65_535]

    one.send(
        *(
            mqtt.publish(
                f"{topic}/{'heard' if each % 2 else 'unheard'}",
                qos=1,
                packet_id=each,
                retain=each % 3 == 0,
                version=one.version,
            )
            for each in order
        )
    )

    assert [one.expect(mqtt.PUBACK).packet_id for _ in order] == order


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-3")
@pytest.mark.spec("5.0", "MQTT-4.6.0-3")
def test_pubrecs_are_in_the_order_of_the_publishes(client: Open, topic: str) -> None:
    one, other = client(), client()
    other.subscribe(f"{topic}/heard")
    order = [9, 3, 7, 1, 8, 2, 6, 5, 4, 65_535]

    one.send(
        *(
            mqtt.publish(
                f"{topic}/{'heard' if each % 2 else 'unheard'}",
                qos=2,
                packet_id=each,
                version=one.version,
            )
            for each in order
        )
    )

    assert [one.expect(mqtt.PUBREC).packet_id for _ in order] == order


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-4")
@pytest.mark.spec("5.0", "MQTT-4.6.0-4")
def test_pubrels_are_in_the_order_of_the_pubrecs(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2))
    for each in range(1, 9):
        sender.publish(topic, qos=2, packet_id=each)
    first = [one.expect(mqtt.PUBLISH).packet_id or 0 for _ in range(8)]
    order = [first[at] for at in (5, 0, 7, 2, 6, 1, 4, 3)]

    one.send(*(mqtt.ack(mqtt.PUBREC, each) for each in order))

    assert [one.expect(mqtt.PUBREL).packet_id for _ in order] == order


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-2")
@pytest.mark.spec("3.1.1", "MQTT-4.6.0-3")
@pytest.mark.spec("5.0", "MQTT-4.6.0-2")
@pytest.mark.spec("5.0", "MQTT-4.6.0-3")
@pytest.mark.parametrize(("qos", "kind"), [(1, mqtt.PUBACK), (2, mqtt.PUBREC)])
def test_a_message_that_waits_for_a_plugin_is_not_overtaken(
    client: Open, start_broker: Callable[..., Broker], qos: int, kind: int
) -> None:
    from tests.spec.plugins import ASKED_ABOUT, Gatekeeper

    keeper = Gatekeeper()
    port = start_broker(keeper, listeners=ASKED_ABOUT).port
    one, other = client(port=port), client(port=port)
    other.subscribe(("slow/#", qos), ("quick/#", qos))

    one.send(
        *(
            mqtt.publish(name, b"%d" % at, qos=qos, packet_id=at, version=one.version)
            for at, name in enumerate(("slow/x", "quick/x", "slow/x", "quick/x"), start=1)
        )
    )
    # Others do not wait for it.
    other.publish("quick/other", b"meanwhile", qos=qos, packet_id=9)
    assert other.receive_publish().payload == b"meanwhile"
    keeper.may_answer.set()

    assert [one.expect(kind).packet_id for _ in range(4)] == [1, 2, 3, 4]
    assert mqtt.payloads(play(other, 4)) == [b"1", b"2", b"3", b"4"]


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-5")
@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
@pytest.mark.spec("5.0", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_subscriber_gets_a_publishers_messages_in_their_order(
    client: Open, topic: str, qos: int
) -> None:
    receivers = [client() for _ in range(6)]
    for each in receivers:
        each.subscribe((topic, 2))
    receivers[0].subscribe((f"{topic}/#", 1))
    sender = client()

    sender.send(numbered(topic, sender, qos))

    for one in receivers:
        assert mqtt.payloads(play(one)) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_order_holds_at_the_granted_qos_too(client: Open, topic: str, granted: int) -> None:
    one, sender = client(), client()
    one.subscribe((topic, granted))

    sender.send(numbered(topic, sender, 2))

    assert mqtt.payloads(play(one)) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_receive_maximum_of_one_keeps_the_order(
    client: Open, start_broker: Callable[..., Broker], topic: str, qos: int
) -> None:
    port = start_broker(inflight_max=1).port
    one, sender = client(port=port), client(port=port)
    one.subscribe((topic, qos))

    sender.send(numbered(topic, sender, qos))

    assert mqtt.payloads([one.receive_publish() for _ in NUMBERS]) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
def test_acknowledging_backwards_keeps_the_order(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 1))
    sender.send(numbered(topic, sender, 1))

    found: list[Packet] = []
    while len(found) < COUNT:
        batch = [one.expect(mqtt.PUBLISH) for _ in range(min(32, COUNT - len(found)))]
        one.send(*(mqtt.ack(mqtt.PUBACK, each.packet_id or 0) for each in reversed(batch)))
        found += batch

    assert mqtt.payloads(found) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_from_before_and_after_a_reconnect_are_in_order(
    client: Open, topic: str, qos: int
) -> None:
    name, sender = unique("c"), client()
    client(name, keep=True).subscribe((topic, qos))

    # Ten while it is connected, ten after the takeover, and so on; it acknowledges at the end only.
    for start in range(1, COUNT + 1, 10):
        for each in range(start, start + 10):
            sender.publish(topic, b"%d" % each, qos=qos, packet_id=each)
        one = client(name, keep=True)

    assert mqtt.payloads(play(one)) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-6")
@pytest.mark.spec("5.0", "MQTT-4.6.0-5")
def test_several_publishers_do_not_disturb_each_others_order(client: Open, topic: str) -> None:
    one, senders = client(), [client() for _ in range(4)]
    one.subscribe((f"{topic}/+", 1))

    for at, sender in enumerate(senders):
        sender.send(numbered(f"{topic}/{at}", sender, 1))

    found = play(one, COUNT * len(senders))
    for at in range(len(senders)):
        assert [each.payload for each in found if each.topic == f"{topic}/{at}"] == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-5")
@pytest.mark.spec("5.0", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_order_holds_across_topics_too(client: Open, topic: str, qos: int) -> None:
    one, sender = client(), client()
    one.subscribe((f"{topic}/#", qos))

    sender.send(
        *(
            mqtt.publish(
                f"{topic}/{each * 7 % 5}",
                b"%d" % each,
                qos=qos,
                packet_id=each if qos else None,
                version=sender.version,
            )
            for each in NUMBERS
        )
    )

    assert mqtt.payloads(play(one)) == EXPECTED


@pytest.mark.spec("3.1.1", "MQTT-4.6.0-5")
@pytest.mark.spec("5.0", "MQTT-4.6.0-6")
def test_retained_messages_of_the_past_come_ahead_of_live_ones(client: Open, topic: str) -> None:
    one, sender = client(), client()
    sender.publish(topic, b"kept", qos=1, retain=True)

    one.subscribe((topic, 1))
    sender.send(numbered(topic, sender, 1))

    assert mqtt.payloads(play(one, COUNT + 1)) == [b"kept", *EXPECTED]
    client().publish(topic, retain=True)
