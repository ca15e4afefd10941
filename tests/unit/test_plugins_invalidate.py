"""`invalidate`: plugins are asked again what clients may do, and a `grant` hook fails closed."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mqttcore import Broker, Settings, StoppedError
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Ask, Deny, Grant, Login, Plugin, hook

from tests.eventually import eventually
from tests.wire import DISCONNECT, Wire

NOT_AUTHORIZED, ADMINISTRATIVE = 0x87, 0x98
EVERYTHING = Grant(publish=["#"], subscribe=["#"])
CLOSED = Listener(address="127.0.0.1:0", name="closed")


class Roles(Plugin):
    """Grants everything, and after an invalidation what a test says."""

    answer: Any = None
    asked: int = 0

    @hook.authenticate(cache=60)
    def login(self, login: Login) -> Allow:
        """Lets everybody in."""
        self.asked += 1
        return Allow(EVERYTHING)

    @hook.grant(timeout=0.3)
    def present(self, login: Login) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        assert login.password is None
        return self.answer(login) if callable(self.answer) else self.answer


@pytest.fixture
def roles() -> Roles:
    return Roles()


@pytest.fixture
def broker(roles: Roles) -> Iterator[Broker]:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[roles]) as running:
        yield running


@pytest.fixture
def joe(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"pw")
        yield wire


def test_a_new_grant_ends_the_subscriptions_that_it_does_not_cover(
    broker: Broker, roles: Roles, joe: Wire
) -> None:
    joe.subscribe(("open", 0), ("secret", 0))
    roles.answer = Allow(Grant(subscribe=["open"]))

    assert broker.invalidate(username="joe") == 1

    eventually(lambda: [one.subscriptions for one in broker.clients()] == [["open"]])
    broker.publish("secret", b"1")
    broker.publish("open", b"2")
    assert joe.receive_publish().payload == b"2"


def test_a_plugin_may_invalidate_from_a_thread_of_its_own(
    broker: Broker, roles: Roles, joe: Wire
) -> None:
    roles.answer = Deny("not_authorized")

    assert roles.invalidate(client_id="c") == 1

    assert joe.expect(DISCONNECT).reason == NOT_AUTHORIZED
    joe.expect_close()


def raises(_: Login) -> None:
    raise RuntimeError("no database")


def exits(_: Login) -> None:
    raise SystemExit


@pytest.mark.parametrize(
    "answer",
    [None, True, "yes", EVERYTHING, raises, exits, Allow(EVERYTHING, username="ann")],
    ids=["pass", "true", "text", "grant", "raises", "exits", "another user"],
)
def test_no_answer_but_a_grant_keeps_a_client(
    broker: Broker, roles: Roles, joe: Wire, answer: object
) -> None:
    roles.answer = answer

    broker.invalidate(everything=True)

    assert joe.expect(DISCONNECT).reason >= 0x80
    joe.expect_close()


def test_a_grant_hook_that_hangs_disconnects_its_client(
    broker: Broker, roles: Roles, joe: Wire
) -> None:
    release = threading.Event()
    roles.answer = lambda _: release.wait()
    try:
        broker.invalidate(username="joe")

        assert joe.expect(DISCONNECT).reason >= 0x80
    finally:
        release.set()


def test_a_remembered_login_is_forgotten(broker: Broker, roles: Roles, joe: Wire) -> None:
    def logs_in() -> bool:
        before = roles.asked
        with Wire(broker.port) as wire:
            wire.connect("other", username="jim", password=b"pw")
        return roles.asked == before

    roles.answer = Allow(EVERYTHING)
    eventually(logs_in)

    broker.invalidate(client_id="nobody")

    assert not logs_in()


def test_answers_about_subscriptions_are_asked_for_again() -> None:
    class Doors(Plugin):
        allowed = True

        @hook.authenticate
        def login(self, login: Login) -> Allow:
            return Allow(Grant(subscribe=["open"]))

        @hook.grant
        async def present(self, login: Login) -> Allow:
            return Allow(Grant(subscribe=["open"]))

        @hook.authorize(action="subscribe", filter="door/#")
        def may(self, ask: Ask) -> bool:
            return self.allowed

    doors = Doors()
    with (
        Broker(Settings(listeners=(CLOSED,)), plugins=[doors]) as broker,
        Wire(broker.port) as wire,
    ):
        wire.connect("c", username="joe", password=b"")
        wire.subscribe(("door/1", 0), ("open", 0))
        doors.allowed = False

        doors.invalidate(username="joe")

        eventually(lambda: [one.subscriptions for one in broker.clients()] == [["open"]])
        assert wire.subscribe(("door/1", 0), packet_id=2).reasons == (NOT_AUTHORIZED,)


def test_without_a_grant_hook_a_client_logs_in_again() -> None:
    class Porter(Plugin):
        @hook.authenticate
        def login(self, login: Login) -> Allow:
            return Allow(EVERYTHING)

    with (
        Broker(Settings(listeners=(CLOSED,)), plugins=[Porter()]) as broker,
        Wire(broker.port) as wire,
    ):
        wire.connect("c", username="joe", password=b"")

        broker.invalidate(username="joe")

        assert wire.expect(DISCONNECT).reason == ADMINISTRATIVE


@pytest.mark.parametrize(
    "call",
    [
        lambda broker: broker.invalidate(),
        lambda broker: broker.invalidate(client_id="c", username="joe"),
        lambda broker: broker.invalidate(username="joe", everything=True),
    ],
)
def test_exactly_one_target_is_given(broker: Broker, call: Callable[[Broker], object]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        call(broker)


def test_before_the_start_there_is_nothing_to_invalidate(roles: Roles) -> None:
    assert roles.invalidate(everything=True) == 0
    with pytest.raises(StoppedError):
        Broker(Settings(listeners=(CLOSED,))).invalidate(everything=True)
