"""`mosquitto_pub` and `mosquitto_sub` against the broker, in all three versions."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker
from mqttcore.config import Listener

from tests.conftest import RunningBroker
from tests.wire import PATIENCE_S, unique

VERSION_FLAGS = {3: "mqttv31", 4: "mqttv311", 5: "mqttv5"}

pytestmark = [
    pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")
    for name in ("mosquitto_pub", "mosquitto_sub", "stdbuf")
]


class Subscriber:
    """A `mosquitto_sub` that waits for `count` messages, no longer than `PATIENCE_S`."""

    def __init__(self, port: int, version: int, *words: str, count: int = 1) -> None:
        # Into a pipe it would print when its buffer is full; `stdbuf` has each line at once.
        command = [
            "stdbuf",
            "-oL",
            "mosquitto_sub",
            "-p",
            str(port),
            "-V",
            VERSION_FLAGS[version],
            "-d",
        ]
        command += ["-C", str(count), "-W", str(int(PATIENCE_S)), "-F", "> %q %r %t %p", *words]
        self.process = subprocess.Popen(  # noqa: S603 -- fixed words
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def lines(self) -> Iterator[str]:
        """What it prints, until it ends."""
        assert self.process.stdout is not None
        # Not `yield from`: a generator that is left early would close the pipe.
        for line in self.process.stdout:  # noqa: UP028
            yield line

    def wait_until_subscribed(self) -> None:
        """Returns when the SUBACK has come."""
        for line in self.lines():
            if line.startswith("Subscribed "):
                return
        raise AssertionError("mosquitto_sub ended before it was subscribed")

    def messages(self) -> list[str]:
        """All messages as `QOS RETAIN TOPIC PAYLOAD`, when the last has come."""
        found = [line[2:].rstrip("\n") for line in self.lines() if line.startswith("> ")]
        assert self.process.wait(PATIENCE_S) == 0
        return found

    def end(self) -> None:
        """Ends it, if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def subscribe(broker: RunningBroker) -> Iterator[Callable[..., Subscriber]]:
    """Starts subscribers, and ends those that are left."""
    with contextlib.ExitStack() as stack:

        def make(version: int, *words: str, count: int = 1) -> Subscriber:
            one = Subscriber(broker.port, version, *words, count=count)
            stack.callback(one.end)
            return one

        yield make


@pytest.fixture
def publish(broker: RunningBroker) -> Callable[..., None]:
    """Runs `mosquitto_pub`, and waits for its end."""

    def run(version: int, *words: str, given: str | None = None) -> None:
        command = ["mosquitto_pub", "-p", str(broker.port), "-V", VERSION_FLAGS[version], *words]
        subprocess.run(command, input=given, text=True, timeout=PATIENCE_S, check=True)  # noqa: S603 -- fixed words

    return run


Start = Callable[..., Subscriber]
Publish = Callable[..., None]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("receiving", [3, 4, 5])
def test_a_message_passes(
    subscribe: Start, publish: Publish, topic: str, version: int, receiving: int, qos: int
) -> None:
    receiver = subscribe(receiving, "-t", topic, "-q", str(qos))
    receiver.wait_until_subscribed()

    publish(version, "-t", topic, "-q", str(qos), "-m", "hello")

    assert receiver.messages() == [f"{qos} 0 {topic} hello"]


def test_a_hundred_lines_keep_their_order(
    subscribe: Start, publish: Publish, topic: str, version: int
) -> None:
    receiver = subscribe(version, "-t", f"{topic}/#", "-q", "2", count=100)
    receiver.wait_until_subscribed()

    lines = [f"line {number}" for number in range(100)]
    publish(version, "-t", f"{topic}/a", "-q", "2", "-l", given="\n".join(lines) + "\n")

    assert receiver.messages() == [f"2 0 {topic}/a {line}" for line in lines]


def test_a_retained_message_waits(
    subscribe: Start, publish: Publish, topic: str, version: int
) -> None:
    publish(version, "-t", topic, "-q", "1", "-m", "kept", "-r")

    assert subscribe(version, "-t", topic, "-q", "1").messages() == [f"1 1 {topic} kept"]
    publish(version, "-t", topic, "-q", "1", "-n", "-r")


def test_a_session_keeps_what_came_meanwhile(
    subscribe: Start, publish: Publish, topic: str, version: int
) -> None:
    words = ["-t", topic, "-q", "1", "-i", unique("mosq"), "-c"]
    if version == 5:
        words += ["-x", "60"]
    first = subscribe(version, *words)
    first.wait_until_subscribed()
    publish(version, "-t", topic, "-q", "1", "-m", "0")
    first.messages()

    for number in (1, 2):
        publish(version, "-t", topic, "-q", "1", "-m", str(number))

    found = subscribe(version, *words, count=2).messages()
    assert found == [f"1 0 {topic} 1", f"1 0 {topic} 2"]


def test_a_killed_subscriber_leaves_its_will(subscribe: Start, topic: str, version: int) -> None:
    watcher = subscribe(version, "-t", f"{topic}/will", "-q", "1")
    watcher.wait_until_subscribed()
    words = ["-t", f"{topic}/other", "--will-topic", f"{topic}/will", "--will-payload", "gone"]
    one = subscribe(version, *words, "--will-qos", "1")
    one.wait_until_subscribed()

    one.process.kill()

    assert watcher.messages() == [f"1 0 {topic}/will gone"]


def test_a_group_shares(subscribe: Start, publish: Publish, topic: str) -> None:
    members = [subscribe(5, "-t", f"$share/group/{topic}", "-q", "1", count=5) for _ in range(2)]
    for member in members:
        member.wait_until_subscribed()

    publish(5, "-t", topic, "-q", "1", "-l", given="".join(f"{number}\n" for number in range(10)))

    found = members[0].messages() + members[1].messages()
    assert sorted(found) == [f"1 0 {topic} {number}" for number in range(10)]


def test_properties_pass(subscribe: Start, publish: Publish, topic: str) -> None:
    receiver = subscribe(5, "-t", topic, "-F", "> %R %P %p")
    receiver.wait_until_subscribed()

    words = ["-D", "publish", "response-topic", "answers"]
    publish(5, "-t", topic, "-m", "x", *words, "-D", "publish", "user-property", "a", "1")

    assert receiver.messages() == ["answers a:1 x"]


def test_a_unix_socket_serves_mosquittos_clients(
    start_broker: Callable[..., Broker], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "mqtt.sock"
    start_broker(listeners=(Listener(address=f"unix:{path}", anonymous=True),))

    def run(program: str, *words: str) -> str:
        command = [program, "--unix", str(path), "-V", "mqttv5", "-t", "here", "-q", "1", *words]
        done = subprocess.run(  # noqa: S603 -- fixed words
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("mosquitto_pub", "-r", "-m", "over a socket")
    assert run("mosquitto_sub", "-C", "1", "-W", str(int(PATIENCE_S))) == "over a socket\n"
