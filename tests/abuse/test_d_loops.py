"""Abuse table D: messages that come back to where they were published.

The broker has no bridge and no rules, so it publishes nothing again by itself. Its clients may:
bridges of other brokers, and programs that answer. Plugins may, when a message is published.
"""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from mqttcore.config import HttpListener
from mqttcore.plugin import Message, Plugin, Replace, hook

from benches.broker.brokers import ReportError, end, find_mosquitto, free_port, wait_until_ready
from examples.plugins.hop_count import HopCount
from tests import wire as mqtt
from tests.eventually import eventually
from tests.operations.api import Api
from tests.wire import CONNACK, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
StartBroker = Callable[..., "Broker"]
BRIDGE, NO_LOCAL = 0x80, 0x04


def bridge(wire: Open, version: int, *filters: str) -> Wire:
    """A client that says that it is a bridge, as its version can; it has subscribed."""
    one = wire(version=version)
    level = version if version == 5 else version | BRIDGE
    one.send(mqtt.connect(unique("bridge"), version=version, level=level))
    assert one.expect(CONNACK).reason == 0
    one.subscribe(*((each, NO_LOCAL if version == 5 else 0) for each in filters))
    return one


def test_d23_a_bridge_that_publishes_what_it_gets_does_not_get_it_again(
    client: Open, wire: Open, topic: str, version: int
) -> None:
    one, other = bridge(wire, version, f"{topic}/#", topic), client()
    other.subscribe(topic)

    other.publish(topic, b"first")
    found = one.receive_publish()
    one.publish(found.topic, found.payload)

    assert [other.receive_publish().payload for _ in range(2)] == [b"first", b"first"]
    one.ping()
    other.ping()


def test_d23_a_will_is_published_once(client: Open, topic: str, version: int) -> None:
    name, keep = unique("c"), {"session_expiry_interval": 60} if version == 5 else None
    will = mqtt.Will(topic=topic, payload=b"gone", qos=1)
    one = client(name, version=version, clean=False, will=will, props=keep)
    one.subscribe((topic, 1))

    one.reset()

    again = client(name, version=version, clean=False, props=keep)
    assert again.receive_publish().payload == b"gone"
    again.ping()


class Swap(Plugin):
    """Moves messages between two topics, back and forth if it were asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @hook.publish("swap/a")
    def there(self, message: Message) -> Replace:
        """To the other one."""
        self.seen.append(message.topic)
        return Replace(topic="swap/b")

    @hook.publish("swap/b")
    def back(self, message: Message) -> Replace:
        """And back."""
        self.seen.append(message.topic)
        return Replace(topic="swap/a")


def test_d23_hooks_that_move_a_message_in_a_circle_are_each_asked_once(
    start_broker: StartBroker, client: Open
) -> None:
    plugin = Swap()
    one = client(port=start_broker(plugin).port)
    one.subscribe("swap/#")

    came_out = []
    for name in ("swap/a", "swap/b"):
        one.publish(name, b"x", qos=1)
        came_out.append(one.receive_publish().topic)

    one.ping()
    assert came_out == ["swap/a", "swap/a"]
    assert plugin.seen == ["swap/a", "swap/b", "swap/b"]


class Again(Plugin):
    """Publishes each message that it sees once more, and moves wills to another topic."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.publish: Callable[[str], object] = str

    @hook.publish("again/#")
    def repeat(self, message: Message) -> None:
        """Publishes it."""
        self.seen.append(message.topic)
        self.publish(message.topic)

    @hook.will("again/#")
    def move(self, will: Message) -> Replace:
        """To a topic of the same filter."""
        self.seen.append(will.topic)
        return Replace(topic=f"{will.topic}/moved")


@pytest.fixture
def again(tmp_path: pathlib.Path, start_broker: StartBroker) -> tuple[Again, Broker]:
    """A broker with that plugin, and with the HTTP API in `tmp_path`."""
    plugin = Again()
    return plugin, start_broker(plugin, data=str(tmp_path), http=HttpListener(), sys_interval_s=0)


@pytest.mark.parametrize("way", ["program", "http"])
def test_d23_hooks_do_not_see_what_a_plugin_publishes(
    again: tuple[Again, Broker], tmp_path: pathlib.Path, client: Open, way: str
) -> None:
    plugin, broker = again
    api = Api(tmp_path)
    plugin.publish = {
        "program": lambda topic: broker.publish(topic, b"again"),
        "http": lambda topic: api.ask("POST", "/publish", {"topic": topic, "payload": "again"}),
    }[way]
    watch, one = client(port=broker.port), client(port=broker.port)
    watch.subscribe("again/#")

    one.publish("again/x", b"x", qos=1)

    payloads = [watch.receive_publish().payload for _ in range(2)]  # in any order: two shards
    assert sorted(payloads) == [b"again", b"x"]
    watch.ping()
    assert plugin.seen == ["again/x"]


def test_d23_a_hook_that_moves_a_will_is_asked_once(
    again: tuple[Again, Broker], client: Open
) -> None:
    plugin, broker = again
    watch = client(port=broker.port)
    watch.subscribe("again/#")

    client(port=broker.port, will=mqtt.Will(topic="again/x", payload=b"gone")).reset()

    assert watch.receive_publish().topic == "again/x/moved"
    watch.ping()
    assert plugin.seen == ["again/x"]


# --- a ring of bridges: another broker with several of them to this one

CONNECTION = """
connection {name}
address 127.0.0.1:{remote}
bridge_protocol_version {protocol}
notifications_local_only true
restart_timeout 1
topic bridged/# both 0
"""


@pytest.fixture
def ring(tmp_path: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a Mosquitto with several bridges for the same topics: `ring(port, bridges=2)`."""
    try:
        path = find_mosquitto()
    except ReportError as error:
        pytest.skip(str(error))
    log, file = tmp_path / "mosquitto.log", tmp_path / "mosquitto.conf"
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("wb"))

        def start(remote: int, *, bridges: int, protocol: str) -> subprocess.Popen[bytes]:
            port = free_port()
            parts = [
                CONNECTION.format(name=unique("ring"), remote=remote, protocol=protocol)
                for _ in range(bridges)
            ]
            head = f"listener {port} 127.0.0.1\nallow_anonymous true\n"
            file.write_text(head + "".join(parts))
            process = subprocess.Popen([path, "-c", str(file)], stdout=sink, stderr=sink)  # noqa: S603 -- found above
            stack.callback(end, process)
            wait_until_ready(process, port, log)
            return process

        yield start


def bridges_have_subscribed(broker: Broker, count: int) -> None:
    """Waits until each bridge has its subscription."""
    eventually(lambda: broker.stats()["subscriptions"] >= count, told=broker.stats)


def test_d23_a_hop_count_ends_a_loop_of_5_0_bridges_at_8(
    start_broker: StartBroker,
    client: Open,
    ring: Callable[..., subprocess.Popen[bytes]],
) -> None:
    broker = start_broker(HopCount())
    ring(broker.port, bridges=2, protocol="mqttv50")
    one = client(port=broker.port)
    one.subscribe("bridged/#")
    bridges_have_subscribed(broker, 4)

    one.publish("bridged/x", b"x")

    # both ways round the ring
    eventually(lambda: broker.stats()["dropped_hook"] == 2, told=broker.stats)
    hops = [one.receive_publish().property("user_property") for _ in range(1 + 2 * 7)]
    counted = sorted(str(each) for each in hops)
    assert counted == sorted(
        str([("hops", str(count))]) for count in (1, *range(2, 9), *range(2, 9))
    )
    one.ping()


@pytest.mark.parametrize("protocol", ["mqttv311", "mqttv50"])
def test_d23_a_loop_of_bridges_is_as_fast_as_its_clients_may_publish(
    start_broker: StartBroker,
    client: Open,
    ring: Callable[..., subprocess.Popen[bytes]],
    protocol: str,
) -> None:
    # three bridges: each copy that comes by one goes out by the two others
    bridges, rate, copies = 3, 50, 300
    broker = start_broker(anonymous_messages_per_second=rate, exempt_addresses=())
    ring(broker.port, bridges=bridges, protocol=protocol)
    one = client(port=broker.port)
    one.subscribe("bridged/#")
    bridges_have_subscribed(broker, 2 + bridges)

    began = time.monotonic()
    one.publish("bridged/x", b"x")
    for _ in range(copies):
        assert one.receive_publish().payload == b"x"
    took_s = time.monotonic() - began

    # what a second allows at once, then the rate
    assert took_s >= 0.9 * (copies / (bridges * rate) - 1)
