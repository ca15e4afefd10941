"""What every test of a statement has: its version, clients of that version, and a bystander.

A test says with its markers which statements it holds, and runs once in each version that they
name. It opens clients with `wire()` (nothing sent yet) and `client()` (CONNECT sent and accepted),
both in the version of the run unless told otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Bystander, RunningBroker, start
from tests.spec.catalogue import FOLDER, LEVELS, read_statements
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker
    from mqttcore.plugin import Plugin

VERSION_OF_LEVEL = {level: version for version, level in LEVELS.items()}


# --- markers --------------------------------------------------------------------------------------


def versions_of(node: pytest.Function) -> list[str]:
    """The versions that a test's markers name."""
    named = {mark.args[0] for mark in node.iter_markers("spec")}
    for mark in node.iter_markers("beyond"):
        named |= set(mark.args or LEVELS)
    return [version for version in LEVELS if version in named]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once in each version that its markers name."""
    if "version" in metafunc.fixturenames:
        levels = [LEVELS[version] for version in versions_of(metafunc.definition)]
        metafunc.parametrize("version", levels, indirect=True, ids=VERSION_OF_LEVEL.get)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses tests here that hold no statement, or one that does not exist."""
    known = {each.key for each in read_statements()}
    for item in items:
        if not item.path.is_relative_to(FOLDER):
            continue
        named = [mark.args for mark in item.iter_markers("spec")]
        unknown = [key for key in named if key not in known]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid}: no such statement: {unknown}")
        if not named and item.get_closest_marker("beyond") is None:
            raise pytest.UsageError(f"{item.nodeid} holds no statement: mark it spec or beyond")


@pytest.fixture
def version(request: pytest.FixtureRequest) -> int:
    """The protocol level of this run: 3 is 3.1, 4 is 3.1.1, 5 is 5.0."""
    number: int = request.param
    return number


# --- the bystander --------------------------------------------------------------------------------


class Watch:
    """The bystander of the shared broker; a new one after each that was disturbed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._bystander = Bystander(port, qos=0)

    def check(self) -> None:
        """Fails when the bystander was disturbed."""
        try:
            self._bystander.check()
        except BaseException:
            self.close()
            self._bystander = Bystander(self._port, qos=0)
            raise

    def close(self) -> None:
        """Ends the bystander."""
        self._bystander.close()


@pytest.fixture(scope="module")
def watch(broker: RunningBroker) -> Iterator[Watch]:
    """The bystander of the shared broker."""
    one = Watch(broker.port)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def others_are_unaffected(watch: Watch) -> Iterator[None]:
    """After each test the bystander is connected, gets its message, and has got nothing else."""
    yield
    watch.check()


class OwnBrokers:
    """The brokers of one test, each with a bystander."""

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self._watched: list[tuple[Broker, Bystander]] = []

    def start(
        self,
        *plugins: Plugin,
        bystander: bool = True,
        **changes: Any,  # noqa: ANN401 -- settings
    ) -> Broker:
        """Another broker."""
        running = self._running.enter_context(start(*plugins, **changes))
        if bystander:
            one = Bystander(running.port, qos=0)
            self._running.callback(one.close)
            self._watched.append((running, one))
        return running

    def finish(self) -> None:
        """Checks the bystanders, and stops what still runs."""
        with self._running:
            for running, one in self._watched:
                one.check()
                assert running.stats()["panics"] == 0


@pytest.fixture
def own_brokers() -> Iterator[OwnBrokers]:
    """Ends after the clients: a broker that stops gives those that stay a moment."""
    brokers = OwnBrokers()
    yield brokers
    brokers.finish()


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, own_brokers: OwnBrokers) -> Callable[..., Broker]:
    """Starts brokers of this test's own: `start_broker(plugin, receive_maximum=2)`.

    Each has a bystander as well, but with `bystander=False`: where the broker stops within the
    test, or lets no stranger in.
    """
    if request.config.getoption("--address"):
        pytest.skip("needs a broker of its own")
    return own_brokers.start


@pytest.fixture(scope="session")
def riddle_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with the authentication method RIDDLE, for all tests that need no more of it."""
    if request.config.getoption("--address"):
        pytest.skip("needs a broker of its own")
    from tests.spec.plugins import Riddle

    with start(Riddle()) as running:
        yield running
        assert running.stats()["panics"] == 0


@pytest.fixture
def riddle(riddle_broker: Broker) -> Iterator[Broker]:
    """The same, beside clients that must not notice."""
    one = Bystander(riddle_broker.port, qos=0)
    yield riddle_broker
    one.check()
    one.close()


# --- clients --------------------------------------------------------------------------------------


@pytest.fixture
def wire(
    broker: RunningBroker, own_brokers: OwnBrokers, version: int
) -> Iterator[Callable[..., Wire]]:
    """Opens connections without a CONNECT, of this run's version: `wire()`, `wire(port=...)`."""
    level = version
    with contextlib.ExitStack() as stack:

        def open_wire(*, version: int | None = None, port: int | None = None) -> Wire:
            return stack.enter_context(Wire(port or broker.port, version=version or level))

        yield open_wire


@pytest.fixture
def client(wire: Callable[..., Wire]) -> Callable[..., Wire]:
    """Opens connections that have sent CONNECT: `client()`, `client("id", keep=True)`.

    With `keep` the session outlives the connection, and one that is there is resumed.
    """

    def connected(
        client_id: str | None = None,
        *,
        version: int | None = None,
        port: int | None = None,
        keep: bool = False,
        clean: bool | None = None,
        will: Will | None = None,
        props: dict[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 -- passed on to Wire.connect
    ) -> Wire:
        one = wire(version=version, port=port)
        if one.version == 5 and keep:
            props = {"session_expiry_interval": 3_600, **(props or {})}
        name = unique("client") if client_id is None else client_id
        fresh = not keep if clean is None else clean
        one.connect(name, clean=fresh, will=will, props=props, **options)
        return one

    return connected
