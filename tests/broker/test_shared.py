"""Shared subscriptions: each message to one member of each group."""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests import wire as mqtt
from tests.wire import Packet, Wire, unique

Open = Callable[..., Wire]


def collect(members: Sequence[Wire], count: int) -> list[tuple[int, Packet]]:
    """`count` messages over all members, each with the index of its receiver."""
    found: list[tuple[int, Packet]] = []
    while len(found) < count:
        ready, _, _ = select.select([each.socket for each in members], [], [], mqtt.PATIENCE_S)
        assert ready, f"only {len(found)} of {count} messages came"
        for index, member in enumerate(members):
            if member.socket in ready:
                found += [(index, each) for each in member.drain()]
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_and_all_take_part(
    client: Open, topic: str, version: int, qos: int
) -> None:
    members = [client(version=version) for _ in range(3)]
    for member in members:
        assert member.subscribe((f"$share/group/{topic}", qos)).reason == qos
    sender = client(version=version)
    count = 30

    for number in range(count):
        sender.publish(topic, b"%d" % number, qos=qos)

    found = collect(members, count)
    assert sorted(int(each.payload) for _, each in found) == list(range(count))
    assert Counter(index for index, _ in found) == {0: 10, 1: 10, 2: 10}


def test_each_group_gets_each_message(client: Open, topic: str) -> None:
    members = [client() for _ in range(3)]
    for member, filter_ in zip(
        members, (f"$share/a/{topic}", f"$share/b/{topic}", topic), strict=True
    ):
        member.subscribe(filter_)

    client().publish(topic, b"x", qos=1)

    assert [each.receive_publish().payload for each in members] == [b"x"] * 3


def test_a_plain_and_a_shared_subscription_both_deliver(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": 1})
    one.subscribe(f"$share/a/{topic}", packet_id=2, props={"subscription_identifier": 2})

    client().publish(topic, b"x", qos=1)

    found = [one.receive_publish().property("subscription_identifier") for _ in range(2)]
    assert sorted(found, key=str) == [[1], [2]]
    one.ping()


def test_members_of_all_versions_share(client: Open, topic: str) -> None:
    members = [client(version=version) for version in (3, 4, 5)]
    for member in members:
        member.subscribe((f"$share/group/{topic}/#", 1))
    sender = client()

    for number in range(6):
        sender.publish(f"{topic}/{number}", qos=1)

    assert Counter(index for index, _ in collect(members, 6)) == {0: 2, 1: 2, 2: 2}


def test_a_member_that_left_gets_nothing(client: Open, topic: str) -> None:
    members = [client() for _ in range(3)]
    for member in members:
        member.subscribe((f"$share/group/{topic}", 1))
    members[0].unsubscribe(f"$share/group/{topic}")
    members[1].disconnect()
    sender = client()

    for number in range(4):
        sender.publish(topic, b"%d" % number, qos=1)

    assert len(collect(members[2:], 4)) == 4
    members[0].ping()


def test_a_member_that_is_away_is_passed_over(client: Open, topic: str) -> None:
    name = unique("c")
    away, here = client(name, version=4, clean=False), client(version=4)
    for member in (away, here):
        member.subscribe((f"$share/group/{topic}", 1))
    away.disconnect()
    sender = client()

    for number in range(4):
        sender.publish(topic, b"%d" % number, qos=1)

    assert mqtt.payloads([here.receive_publish() for _ in range(4)]) == [b"0", b"1", b"2", b"3"]
    client(name, version=4, clean=False).ping()


def test_messages_wait_when_every_member_is_away(client: Open, topic: str) -> None:
    name = unique("c")
    away = client(name, version=4, clean=False)
    away.subscribe((f"$share/group/{topic}", 1))
    away.disconnect()

    client().publish(topic, b"waits", qos=1)

    assert client(name, version=4, clean=False).receive_publish().payload == b"waits"


def test_leaving_a_group_leaves_the_plain_filter_alone(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic, f"$share/group/{topic}")

    assert one.unsubscribe(f"$share/group/{topic}").reasons == (0,)

    one.publish(topic, b"x")
    assert one.receive_publish().payload == b"x"
    one.ping()


def test_one_publisher_keeps_its_order_at_each_member(client: Open, topic: str) -> None:
    members = [client(version=4) for _ in range(2)]
    for member in members:
        member.subscribe((f"$share/group/{topic}", 1))
    sender, count = client(version=4), 40

    sender.send(
        *(
            mqtt.publish(topic, b"%d" % number, qos=1, packet_id=number, version=4)
            for number in range(1, count + 1)
        )
    )

    found = collect(members, count)
    for index in range(2):
        numbers = [int(each.payload) for at, each in found if at == index]
        assert numbers == sorted(numbers)
