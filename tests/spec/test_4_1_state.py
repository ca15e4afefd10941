"""Sections 4.1 and 4.2 of MQTT 3.1.1 and 5.0, 7 of 3.1.1: session state, and the transport."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]
Pass = Callable[..., None]


# --- 4.1: for how long ----------------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-4.1.0-1")
@pytest.mark.spec("5.0", "MQTT-4.1.0-1")
def test_subscriptions_last_as_long_as_the_session(client: Open, topic: str) -> None:
    name = unique("c")
    client(name, keep=True).subscribe((topic, 1))
    for _ in range(3):
        one = client(name, keep=True)
        one.publish(topic, b"heard", qos=1)
        assert one.receive_publish().payload == b"heard"


@pytest.mark.spec("3.1.1", "MQTT-4.1.0-1")
@pytest.mark.spec("5.0", "MQTT-4.1.0-1")
def test_messages_under_way_in_both_directions_last_as_long_as_the_session(
    client: Open, topic: str
) -> None:
    name, other = unique("c"), client()
    other.subscribe((f"{topic}/out", 2))
    one = client(name, keep=True)
    one.subscribe((f"{topic}/in", 2))
    other.publish(f"{topic}/in", b"to the client", qos=2)
    first = one.expect(mqtt.PUBLISH)
    outgoing = mqtt.publish(
        f"{topic}/out", b"from the client", qos=2, packet_id=9, version=one.version
    )
    one.send(outgoing)
    one.expect(mqtt.PUBREC)
    one.close()

    again = client(name, keep=True)

    assert again.receive_publish().packet_id == first.packet_id
    again.send(outgoing)
    assert again.expect(mqtt.PUBREC).packet_id == 9
    assert other.receive_publish().payload == b"from the client"
    other.ping()


@pytest.mark.spec("3.1.1", "MQTT-4.1.0-2")
@pytest.mark.spec("5.0", "MQTT-4.1.0-1")
def test_a_session_that_is_not_kept_lasts_as_long_as_its_connection(
    client: Open, wire: Open, topic: str
) -> None:
    name = unique("c")
    one = client(name)
    one.subscribe((topic, 2))
    for packet_id in range(1, 100):
        one.publish(topic, b"heard", qos=2, packet_id=packet_id)
        assert one.receive_publish().payload == b"heard"
    one.close()

    assert not wire().connect(name, clean=False).session_present


@pytest.mark.spec("5.0", "MQTT-4.1.0-1")
@pytest.mark.spec("5.0", "MQTT-4.1.0-2")
def test_a_session_is_dropped_when_it_is_away_for_longer_than_its_expiry(
    client: Open, wire: Open, topic: str, let_time_pass: Pass
) -> None:
    name, expiry = unique("c"), {"session_expiry_interval": 1}
    one, here = (client(each, clean=False, props=expiry) for each in (name, unique("c")))
    one.subscribe((topic, 1))
    here.subscribe((topic, 1))
    one.close()
    client().publish(topic, b"lost", qos=1)

    let_time_pass()

    again = wire()
    assert not again.connect(name, clean=False).session_present
    client().publish(topic, b"unheard", qos=1)
    again.ping()
    assert mqtt.payloads([here.receive_publish(), here.receive_publish()]) == [b"lost", b"unheard"]


@pytest.mark.spec("5.0", "MQTT-4.1.0-2")
def test_a_session_of_no_expiry_is_dropped_with_its_connection(client: Open, wire: Open) -> None:
    name = unique("c")
    client(name, clean=False).close()

    assert not wire().connect(name, clean=False).session_present


# --- 4.2 and 7.1: the transport -------------------------------------------------------------------


@pytest.mark.spec("3.1.1", "MQTT-7.1.1-1")
@pytest.mark.spec("5.0", "MQTT-4.2.0-1")
def test_tcp_carries_a_megabyte_each_way_in_order_and_without_loss(
    client: Open, topic: str
) -> None:
    one = client()
    one.subscribe((topic, 1))
    parts = [bytes([each]) * 65_536 for each in range(16)]

    for number, part in enumerate(parts, start=1):
        one.publish(topic, part, qos=1, packet_id=number)

    assert mqtt.payloads([one.receive_publish() for _ in parts]) == parts


@pytest.mark.spec("3.1.1", "MQTT-7.1.1-1")
@pytest.mark.spec("5.0", "MQTT-4.2.0-1")
def test_a_packet_may_come_in_segments_of_one_byte(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(topic)

    one.send_slowly(mqtt.publish(topic, b"slowly", version=one.version))

    assert one.receive_publish().payload == b"slowly"


# --- 7: what a conforming server is ---------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[int, int]]:
    """A broker in a process of its own: its process and its port."""
    command = [sys.executable, "-m", "mqttcore.serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 -- fixed words
        try:
            assert process.stdout is not None
            ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert ready
            yield process.pid, int(ready[1])
        finally:
            process.terminate()


@pytest.mark.spec("3.1.1", "MQTT-7.0.0-1")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_broker_connects_to_nobody(served: tuple[int, int]) -> None:
    process, port = served
    with Wire(port, version=4) as one:
        one.connect("c")
        one.publish("a/b", b"x", qos=2, retain=True)

        assert {local for local, _ in sockets_of(process)} == {port}


def sockets_of(process: int) -> set[tuple[int, int]]:
    """Local and remote port of each TCP socket that a process holds."""
    held = {
        each.readlink().name for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in held:
                local, remote = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
                found.add((local, remote))
    return found


@pytest.mark.spec("3.1.1", "MQTT-7.0.0-2")
def test_a_client_that_knows_nothing_but_the_standard_gets_everything(
    wire: Open, topic: str
) -> None:
    one, name = wire(), topic.encode()

    one.send(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
    one.expect_bytes(b"\x20\x02\x00\x00")
    one.send(mqtt.packet(0x82, b"\x00\x01", mqtt.text(name), b"\x02"))
    one.expect_bytes(b"\x90\x03\x00\x01\x02")
    one.send(mqtt.packet(0x34, mqtt.text(name), b"\x00\x02hi"))
    answers = sorted(one.receive().raw for _ in range(2))
    one.send(b"\x62\x02\x00\x02", b"\x50\x02\x00\x01")

    assert answers == [mqtt.packet(0x34, mqtt.text(name), b"\x00\x01hi"), b"\x50\x02\x00\x02"]
    assert sorted(one.receive().raw for _ in range(2)) == [
        b"\x62\x02\x00\x01",
        b"\x70\x02\x00\x02",
    ]
    one.send(b"\x70\x02\x00\x01", b"\xa2", bytes([4 + len(name)]), b"\x00\x03", mqtt.text(name))
    one.expect_bytes(b"\xb0\x02\x00\x03")
    one.send(b"\xc0\x00")
    one.expect_bytes(b"\xd0\x00")
    one.send(b"\xe0\x00")
    one.expect_close()
