"""Brokers and clients for every ring of tests: each is ended by whoever started it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest

from tests import wire as mqtt
from tests.websocket import WebSocketWire
from tests.wire import VERSIONS, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker
    from mqttcore.plugin import Plugin

# Settings of every broker that the run starts.
common: dict[str, Any] = {}
VERSION_NAMES = {3: "3.1", 4: "3.1.1", 5: "5.0"}


class RunningBroker(Protocol):
    """What tests need of a broker."""

    @property
    def port(self) -> int:
        """Where it listens on the loopback."""


class ForeignBroker:
    """A broker that somebody else started: `pytest --address 127.0.0.1:1883`."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])


def pytest_addoption(parser: pytest.Parser) -> None:
    """A broker to drive instead of our own, or how many event loops ours has."""
    parser.addoption(
        "--address",
        metavar="HOST:PORT",
        help="drive a broker that runs already; tests that start one of their own are skipped",
    )
    parser.addoption(
        "--shards", type=int, default=0, metavar="N", help="event loops of each broker (one a core)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the options that every broker of the run needs, and how Spark's JVM compiles.

    A test's JVM ends before code of the second compiler pays: without it, half the CPU time.
    """
    common["shards"] = config.getoption("--shards")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def start(*plugins: Plugin, **changes: Any) -> Broker:  # noqa: ANN401 -- fields of two dataclasses
    """A broker of this process on a free port, with these plugins.

    `changes` are fields of `Settings` or of `ServerLimits`, whichever has them.
    """
    from mqttcore import Broker
    from mqttcore.config import Listener, ServerLimits, Settings

    names = {field.name for field in dataclasses.fields(ServerLimits)}
    limits = {name: changes.pop(name) for name in list(changes) if name in names}
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    settings = {"listeners": (listener,), "limits": ServerLimits(**limits)}
    return Broker(Settings(**{**settings, **common, **changes}), plugins=plugins)


def both_transports() -> tuple[Any, Any]:
    """A plain listener, then one for WebSocket."""
    from mqttcore.config import Listener

    plain = Listener(address="127.0.0.1:0", anonymous=True)
    return plain, dataclasses.replace(plain, transport="websocket")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """The broker with its defaults that most tests share; names come from `unique`."""
    address = request.config.getoption("--address")
    if address:
        yield ForeignBroker(address)
        return
    with start(listeners=both_transports()) as running:
        yield running
        # Whatever the tests did to it: no task of it may ever have panicked.
        assert running.stats()["panics"] == 0


@pytest.fixture
def websocket_port(broker: RunningBroker) -> int:
    """Where the shared broker takes WebSockets."""
    if isinstance(broker, ForeignBroker):
        pytest.skip("the broker that runs already has no WebSocket listener that we know of")
    port: int = cast("Broker", broker).addresses[1][1]
    return port


@pytest.fixture
def web(websocket_port: int) -> Iterator[Callable[..., WebSocketWire]]:
    """Opens WebSockets without a CONNECT: `web(version=4)`, `web(port=other.port)`."""
    with contextlib.ExitStack() as stack:

        def open_web(*, port: int | None = None, **options: Any) -> WebSocketWire:  # noqa: ANN401
            return stack.enter_context(WebSocketWire(port or websocket_port, **options))

        yield open_web


@pytest.fixture
def start_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Starts brokers of this test's own: `start_broker(plugin, receive_maximum=2)`."""
    if request.config.getoption("--address"):
        pytest.skip("needs a broker of its own")
    with contextlib.ExitStack() as stack:
        yield lambda *plugins, **changes: stack.enter_context(start(*plugins, **changes))


@pytest.fixture
def fresh_broker(start_broker: Callable[..., Broker]) -> Broker:
    """A broker with its defaults that no other test has touched."""
    return start_broker()


@pytest.fixture(params=VERSIONS, ids=VERSION_NAMES.get)
def version(request: pytest.FixtureRequest) -> int:
    """Each version of MQTT in turn: 3 is 3.1, 4 is 3.1.1, 5 is 5.0."""
    number: int = request.param
    return number


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Callable[..., Wire]]:
    """Opens connections without a CONNECT: `wire(version=4)`, `wire(port=other.port)`."""
    with contextlib.ExitStack() as stack:

        def open_wire(*, version: int = 5, port: int | None = None) -> Wire:
            return stack.enter_context(Wire(port or broker.port, version=version))

        yield open_wire


@pytest.fixture
def client(wire: Callable[..., Wire]) -> Callable[..., Wire]:
    """Opens connections that have sent CONNECT: `client("id", version=4, clean=False)`."""

    def connected(
        client_id: str | None = None,
        *,
        version: int = 5,
        port: int | None = None,
        **options: Any,  # noqa: ANN401 -- passed on to Wire.connect
    ) -> Wire:
        one = wire(version=version, port=port)
        one.connect(unique("client") if client_id is None else client_id, **options)
        return one

    return connected


@pytest.fixture
def topic() -> str:
    """A topic that only this test uses; levels may be added."""
    return unique("topic")


class Bystander:
    """Two clients that mind their own business on the broker under attack."""

    def __init__(self, port: int, *, qos: int = 1) -> None:
        self.qos = qos
        self.topic = unique("bystander")
        self.sender, self.receiver = Wire(port, version=4), Wire(port)
        self.sender.connect(unique("sender"))
        self.receiver.connect(unique("receiver"))
        self.receiver.subscribe((f"{self.topic}/a", qos))

    def check(self) -> None:
        """Both are still connected, nothing foreign came, and a message passes."""
        self.sender.publish(f"{self.topic}/a", b"still here", qos=self.qos)
        assert self.receiver.receive_publish().payload == b"still here"
        self.receiver.ping()
        self.sender.ping()

    def close(self) -> None:
        """Ends both."""
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def bystander(broker: RunningBroker) -> Iterator[Bystander]:
    """Fails the test when others on the shared broker felt anything of it."""
    untouched = Bystander(broker.port)
    try:
        untouched.check()
        yield untouched
        untouched.check()
    finally:
        untouched.close()


@pytest.fixture
def let_time_pass(broker: RunningBroker) -> Callable[..., None]:
    """Waits until the broker itself has counted a second and a half, or several times that.

    Its own clock says so: it closes a silent client with a keep alive of one second then.
    """

    def wait(port: int | None = None, *, times: int = 1) -> None:
        for _ in range(times):
            with Wire(port or broker.port, version=4) as silent:
                silent.send(mqtt.connect(unique("silent"), version=4, keep_alive=1))
                silent.expect(mqtt.CONNACK)
                silent.expect_close()

    return wait
