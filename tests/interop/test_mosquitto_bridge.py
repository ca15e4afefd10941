"""A Mosquitto broker whose bridge connects to the broker."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from benches.broker.brokers import ReportError, end, find_mosquitto, free_port, wait_until_ready
from tests.conftest import RunningBroker
from tests.wire import Wire, payloads, unique

PROTOCOLS = {3: "mqttv31", 4: "mqttv311", 5: "mqttv50"}


@pytest.fixture
def start_bridge(
    broker: RunningBroker, tmp_path: pathlib.Path
) -> Iterator[Callable[[int, str], int]]:
    """Starts a Mosquitto that exchanges a topic's messages with the broker; returns its port."""
    try:
        path = find_mosquitto()
    except ReportError as error:
        pytest.skip(str(error))
    log, file = tmp_path / "mosquitto.log", tmp_path / "mosquitto.conf"
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("wb"))

        def start(version: int, topic: str) -> int:
            port = free_port()
            file.write_text(
                CONFIG.format(
                    port=port,
                    name=unique("bridge"),
                    remote=broker.port,
                    topic=topic,
                    protocol=PROTOCOLS[version],
                )
            )
            process = subprocess.Popen([path, "-c", str(file)], stdout=sink, stderr=sink)  # noqa: S603 -- found above
            stack.callback(end, process)
            wait_until_ready(process, port, log)
            return port

        yield start


CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
connection {name}
address 127.0.0.1:{remote}
bridge_protocol_version {protocol}
notifications_local_only true
restart_timeout 1
topic {topic}/# both 1
"""


def test_a_bridge_passes_messages_both_ways_once_and_keeps_their_retain_flags(
    broker: RunningBroker, start_bridge: Callable[[int, str], int], topic: str, version: int
) -> None:
    bridged = start_bridge(version, topic)
    with Wire(broker.port, version=4) as here, Wire(bridged, version=4) as there:
        for client in (here, there):
            client.connect(unique("c"))
            client.subscribe((f"{topic}/#", 1))
        # It comes as soon as the bridge has subscribed.
        here.publish(f"{topic}/first", b"first", qos=1, retain=True)
        assert there.receive_publish().payload == b"first"
        here.receive_publish()

        there.publish(f"{topic}/b", b"from there", qos=1, retain=True)
        there.receive_publish()
        assert here.receive_publish().payload == b"from there"
        here.publish(f"{topic}/a", b"from here", qos=1, retain=True)
        here.receive_publish()

        # No copy of "from there" came back in front of it.
        assert there.receive_publish().payload == b"from here"
        with Wire(bridged, version=4) as late:
            late.connect(unique("c"))
            late.subscribe((f"{topic}/#", 1))
            kept = [late.receive_publish() for _ in range(3)]
        assert sorted(payloads(kept)) == [b"first", b"from here", b"from there"]
        assert all(each.retain for each in kept)
        for name in ("first", "a", "b"):
            here.publish(f"{topic}/{name}", retain=True, qos=1)
