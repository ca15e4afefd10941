"""What moves between members of a shared subscription, while the broker is killed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.wire import Wire

LIVES = 4
BURST = 300
SMALL = 6
"""Members that take one message at a time, and have two more wait."""
WIDE = 60_000
CONFIG = """
shards = 4
durability = "os"
[[listeners]]
address = "127.0.0.1:0"
anonymous = true
[limits]
queue_disk_bytes = 260
inflight_max = 65_000
receive_maximum = 1_000
"""


def join(server: ServerProcess, index: int, *, window: int) -> Wire:
    """A member of the group, whose session is kept."""
    member = Wire(server.port)
    props = {"session_expiry_interval": 3_600, "receive_maximum": window}
    member.connect(f"member-{index}", clean=False, props=props)
    member.subscribe(("$share/team/work", 2))
    return member


def publish_until(server: ServerProcess, name: str, numbers: range, acks: int) -> set[int]:
    """Sends all in one write and reads so many answers; the numbers that were acknowledged."""
    with Wire(server.port) as publisher:
        publisher.connect(name)
        sent = dict(enumerate(numbers, 1))
        publisher.send(
            *(
                mqtt.publish("work", b"%d" % number, qos=1 + number % 2, packet_id=packet_id)
                for packet_id, number in sent.items()
            )
        )
        return {sent[publisher.receive().packet_id or 0] for _ in range(acks)}


def take_all(member: Wire) -> list[int]:
    """Everything that a member has or waits for, to its end."""
    found: list[int] = []
    quiet = unreleased = 0
    while quiet < 2 or unreleased:
        member.send(mqtt.pingreq())
        heard = 0
        while (packet := member.receive()).kind != mqtt.PINGRESP:
            heard += 1
            if packet.kind == mqtt.PUBREL:
                unreleased -= 1
                member.send(mqtt.ack(mqtt.PUBCOMP, packet.packet_id or 0))
                continue
            found.append(int(packet.payload))
            unreleased += packet.qos == 2
            answer = mqtt.PUBREC if packet.qos == 2 else mqtt.PUBACK
            member.send(mqtt.ack(answer, packet.packet_id or 0))
        quiet = 0 if heard else quiet + 1
    return found


def test_messages_that_move_between_members_are_neither_lost_nor_doubled_by_a_crash(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(7)  # noqa: S311 -- a seed that can be repeated
    config = tmp_path / "broker.toml"
    config.write_text(CONFIG)
    server = ServerProcess(data=tmp_path / "data", config=config)
    request.addfinalizer(server.kill)
    acknowledged: set[int] = set()
    for number in range(LIVES):
        server.start()
        members = [join(server, index, window=1) for index in range(SMALL)]
        members.append(join(server, SMALL, window=WIDE))
        numbers = range(number * BURST, (number + 1) * BURST)
        acknowledged |= publish_until(server, f"writer-{number}", numbers, dice.randrange(1, BURST))
        server.kill()
        for member in members:
            member.close()

    server.start()
    found: list[int] = []
    for index in range(SMALL + 1):
        with join(server, index, window=WIDE) as member:
            found += take_all(member)
    server.kill()

    assert len(acknowledged) > BURST
    times = Counter(found)
    assert [each for each in sorted(acknowledged) if not times[each]] == []
    # One that was not acknowledged may be there or not; none of QoS 2 is there twice.
    assert [each for each, count in times.items() if count > 1 and each % 2] == []
