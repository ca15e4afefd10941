"""Hooks that hold their thread for ever: what they hold is replaced, and nobody else notices."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from mqttcore import Broker, Settings
from mqttcore.auth import hashing
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Ask, Deny, Event, Exchange, Grant, HookStats, Login, Plugin, hook

from tests.eventually import eventually
from tests.wire import AUTH, CONNACK, Wire, auth, connect, publish

NOT_AUTHORIZED, UNAVAILABLE = 0x87, 0x88
NOTHING = Grant(subscribe=["#"])
CLOSED = Listener(address="127.0.0.1:0", name="closed")

Start = Callable[..., Broker]


class Trap:
    """Holds whoever steps in, until the test lets all go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()

    def hold(self) -> None:
        """Comes back when the test is over."""
        self.entered.release()
        self.release.wait()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.release.set()


@pytest.fixture
def start(trap: Trap) -> Iterator[Start]:
    """Starts brokers with plugins; nobody is anonymous. What is held goes before they stop."""
    running: list[Broker] = []

    def started(*plugins: Plugin) -> Broker:
        broker = Broker(Settings(listeners=(CLOSED,)), plugins=plugins)
        running.append(broker)
        return broker.start()

    yield started
    trap.release.set()
    for broker in running:
        broker.stop()


class Anything(int):
    """Equal to every code."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def login_reason(broker: Broker, username: str = "joe") -> int:
    """The code that a CONNECT gets."""
    with Wire(broker.port) as wire:
        return wire.connect(username, username=username, password=b"", reason=Anything()).reason


def numbers(broker: Broker, kind: type[Plugin], method: str) -> HookStats:
    """Of one hook."""
    title = f"{kind.__qualname__}.{method}"
    (found,) = [stats for stats in broker.hook_stats() if stats.hook.endswith(title)]
    return found


# --- plugins that hang where the test says


class Hostile(Plugin):
    """Holds its thread in one hook of each kind, for clients and topics named ``evil``."""

    def __init__(self, trap: Trap) -> None:
        super().__init__()
        self.trap = trap

    def _meet(self, name: str | None) -> None:
        if name == "evil":
            self.trap.hold()


class Def(Hostile):
    """With `def` hooks."""

    @hook.authenticate(timeout=0.3)
    def login(self, login: Login) -> Allow | None:
        """Hangs, lets in, or passes."""
        self._meet(login.username)
        return Allow(NOTHING) if login.username == "friend" else None

    @hook.authorize(action="publish", filter="evil", timeout=0.3, cache=0)
    def may(self, ask: Ask) -> bool:
        """Hangs."""
        self._meet("evil")
        return True

    @hook.events("connected", every=0)
    def record(self, events: Sequence[Event]) -> None:
        """Hangs."""
        self._meet("evil" if any(event.client_id == "spy" for event in events) else None)


class AsyncDef(Hostile):
    """With `async def` hooks that block their event loop."""

    @hook.authenticate(timeout=0.3)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Hangs, lets in, or passes."""
        self._meet(login.username)
        return Allow(NOTHING) if login.username == "friend" else None

    @hook.enhanced_auth("M", timeout=0.3)
    async def talk(self, talk: Exchange) -> Allow:
        """Hangs, at once or after a challenge."""
        if await talk.challenge(b"?") == b"evil":
            self._meet("evil")
        return Allow(NOTHING)

    @hook.authorize(action="publish", filter="evil", timeout=0.3, cache=0)
    async def may(self, ask: Ask) -> bool:
        """Hangs."""
        self._meet("evil")
        return True

    @hook.events("connected", every=0)
    async def record(self, events: Sequence[Event]) -> None:
        """Hangs."""
        self._meet("evil" if any(event.client_id == "spy" for event in events) else None)


class Bystander(Plugin):
    """Decides about everybody that the hostile one passes on, and hears of all."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    @hook.authenticate()
    async def login(self, login: Login) -> Allow | None:
        """Lets in."""
        return None if login.username in ("evil", "friend") else Allow(NOTHING)

    @hook.authorize(action="publish", filter="open/+", cache=0)
    async def may(self, ask: Ask) -> bool:
        """Allows."""
        return True

    @hook.authorize(action="publish", filter="door/+", cache=0)
    def may_too(self, ask: Ask) -> bool:
        """Allows."""
        return True

    @hook.events("connected", every=0)
    async def record(self, events: Sequence[Event]) -> None:
        """Records it."""
        self.told.extend(event.client_id for event in events)


ASKS = ("may", "may_too")


def hang_login(wire: Wire) -> None:
    wire.send(connect("evil", username="evil", password=b""))


def hang_ask(wire: Wire) -> None:
    wire.connect("asker", username="asker", password=b"")
    wire.send(publish("evil", b"", qos=1, packet_id=1))


def hang_events(wire: Wire) -> None:
    wire.connect("spy", username="spy", password=b"")


def hang_exchange(wire: Wire) -> None:
    method = {"authentication_method": "M"}
    wire.send(connect("talker", props=method))
    wire.expect(AUTH)
    wire.send(auth(0x18, {**method, "authentication_data": b"evil"}))


HANGS = [
    pytest.param(kind, hang, id=f"{kind.__name__}-{hang.__name__}")
    for kind, hangs in [
        (Def, (hang_login, hang_ask, hang_events)),
        (AsyncDef, (hang_login, hang_ask, hang_events, hang_exchange)),
    ]
    for hang in hangs
]


# --- others do not notice


@pytest.mark.parametrize(("kind", "hang"), HANGS)
def test_a_hook_that_hangs_holds_up_no_other_plugin(
    start: Start, trap: Trap, kind: type[Hostile], hang: Callable[[Wire], None]
) -> None:
    bystander = Bystander()
    broker = start(bystander, kind(trap))
    with Wire(broker.port) as before, Wire(broker.port) as hung:
        before.connect("before", username="before", password=b"")
        hang(hung)
        assert trap.entered.acquire(timeout=30)

        # nothing has come back: what follows is served beside the hook that hangs
        assert login_reason(broker, "after") == 0
        assert before.publish("open/1", qos=1, packet_id=1).reason in (0, 0x10)
        assert before.publish("door/1", qos=1, packet_id=2).reason in (0, 0x10)
        eventually(lambda: {"before", "after"} <= set(bystander.told))
        assert not trap.release.is_set()

    # an answer is counted just after it is sent
    eventually(lambda: [numbers(broker, Bystander, ask).allowed for ask in ASKS] == [1, 1])
    found = [numbers(broker, Bystander, method) for method in ("login", *ASKS)]
    assert [(one.failed, one.timed_out, one.shut_out) for one in found] == [(0, 0, 0)] * 3


@pytest.mark.parametrize(("kind", "hang"), [one for one in HANGS if "events" not in str(one.id)])
def test_a_thread_that_is_held_is_replaced_for_the_other_questions_of_the_plugin(
    start: Start,
    trap: Trap,
    kind: type[Hostile],
    hang: Callable[[Wire], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = start(kind(trap), Bystander())
    with Wire(broker.port) as hung:
        hang(hung)
        assert trap.entered.acquire(timeout=30)

        assert login_reason(broker, "friend") == 0
        assert login_reason(broker, "passed-on") == 0

        assert not trap.release.is_set()
    assert caplog.text.count("another thread takes over") == 1


@pytest.mark.parametrize("kind", [Def, AsyncDef])
def test_a_hook_of_events_that_hangs_holds_up_no_login_of_its_own_plugin(
    start: Start, trap: Trap, kind: type[Hostile]
) -> None:
    broker = start(kind(trap), Bystander())
    assert login_reason(broker, "spy") == 0
    assert trap.entered.acquire(timeout=30)

    assert [login_reason(broker, "friend") for _ in range(3)] == [0, 0, 0]

    # still in its first call, within its time: no login waited for a replacement
    assert numbers(broker, kind, "record").timed_out == 0


@pytest.mark.parametrize("kind", [Def, AsyncDef])
def test_a_hook_of_events_that_hangs_is_told_later_events_by_another_thread(
    start: Start,
    trap: Trap,
    kind: type[Hostile],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(
        kind.hooks, "record", dataclasses.replace(kind.hooks["record"], timeout=0.3)
    )
    broker = start(kind(trap), Bystander())
    assert login_reason(broker, "spy") == 0
    assert trap.entered.acquire(timeout=30)

    assert login_reason(broker, "later") == 0

    eventually(lambda: numbers(broker, kind, "record").passed == 1)
    found = numbers(broker, kind, "record")
    assert (found.calls, found.timed_out, found.in_flight) == (2, 1, 1)
    assert f"{kind.__name__}.record: a hook blocks its thread" in caplog.text


@pytest.mark.parametrize("kind", [Def, AsyncDef])
def test_no_more_threads_than_its_share_are_held_by_a_hook(
    start: Start, trap: Trap, kind: type[Hostile], caplog: pytest.LogCaptureFixture
) -> None:
    broker = start(kind(trap), Bystander())
    for _ in range(4):
        assert login_reason(broker, "evil") == UNAVAILABLE
    eventually(lambda: "block 4 threads, which is the limit" in caplog.text)

    assert login_reason(broker, "evil") == UNAVAILABLE
    found = numbers(broker, kind, "login")
    assert (found.calls, found.shut_out, found.in_flight, found.breaker) == (4, 1, 4, "open")
    # the other hooks of the plugin are asked as ever
    with Wire(broker.port) as wire:
        wire.send(connect("talker", props={"authentication_method": "M"}))
        wire.receive()

    trap.release.set()
    eventually(lambda: numbers(broker, kind, "login").breaker == "closed")
    assert login_reason(broker, "friend") == 0


@pytest.mark.parametrize("kind", [Def, AsyncDef])
def test_threads_that_were_held_end_when_they_come_back(
    start: Start, trap: Trap, kind: type[Hostile]
) -> None:
    broker = start(kind(trap), Bystander())
    assert login_reason(broker, "friend") == 0
    before = len(threading.enumerate())
    assert login_reason(broker, "evil") == UNAVAILABLE
    assert login_reason(broker, "friend") == 0
    eventually(lambda: len(threading.enumerate()) == before + 1)

    trap.release.set()

    eventually(lambda: len(threading.enumerate()) == before)


# --- what belongs to an event loop


def test_a_plugin_starts_again_on_the_event_loop_that_takes_over(start: Start, trap: Trap) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    class Pooled(AsyncDef):
        async def start(self) -> None:
            loops.append(asyncio.get_running_loop())

        @hook.authenticate(timeout=0.3)
        async def login(self, login: Login) -> Allow | Deny | None:
            assert asyncio.get_running_loop() is loops[-1]
            return await super().login(login)

    broker = start(Pooled(trap))
    assert login_reason(broker, "evil") == UNAVAILABLE

    assert login_reason(broker, "friend") == 0
    assert len(set(loops)) == 2


def test_a_plugin_that_does_not_start_again_fails_closed(
    start: Start, trap: Trap, caplog: pytest.LogCaptureFixture
) -> None:
    class Once(AsyncDef):
        pool = ""

        async def start(self) -> None:
            if self.pool:
                self.pool = ""
                raise OSError("no database")
            self.pool = "open"

        @hook.authenticate(timeout=0.3)
        async def login(self, login: Login) -> Allow | Deny | None:
            self._meet(login.username)
            return Allow(NOTHING) if self.pool else Deny()

    broker = start(Once(trap))
    assert login_reason(broker, "friend") == 0
    assert login_reason(broker, "evil") == UNAVAILABLE

    assert login_reason(broker, "friend") == NOT_AUTHORIZED
    assert "did not start on its new event loop" in caplog.text


def test_start_and_stop_of_an_observer_share_the_loop_of_its_events(
    start: Start, trap: Trap
) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    class Observer(Plugin):
        async def start(self) -> None:
            loops.append(asyncio.get_running_loop())

        async def stop(self) -> None:
            loops.append(asyncio.get_running_loop())

        @hook.events("connected", every=0)
        async def record(self, events: Sequence[Event]) -> None:
            loops.append(asyncio.get_running_loop())

    broker = start(Bystander(), Observer())
    assert login_reason(broker, "joe") == 0
    eventually(lambda: len(loops) == 2)
    broker.stop()

    assert len(loops) == 3
    assert len(set(loops)) == 1


def test_coroutines_that_decide_and_those_that_are_told_have_different_loops(start: Start) -> None:
    loops: dict[str, asyncio.AbstractEventLoop] = {}

    class Both(Plugin):
        @hook.authenticate()
        async def login(self, login: Login) -> Allow:
            loops["decides"] = asyncio.get_running_loop()
            return Allow(NOTHING)

        @hook.events("connected", every=0)
        async def record(self, events: Sequence[Event]) -> None:
            loops["told"] = asyncio.get_running_loop()

    assert login_reason(start(Both()), "joe") == 0

    eventually(lambda: len(loops) == 2)
    assert loops["decides"] is not loops["told"]


# --- whose fault it is


def let_pass(broker: Broker, timeouts: int = 2) -> None:
    """Lets so many timeouts of 0.3 s pass, by the broker's own clock."""
    for _ in range(timeouts):
        assert login_reason(broker, "sleeper") == UNAVAILABLE


class Sleeper(Plugin):
    """Takes 0.3 s for a client, without holding anything."""

    @hook.authenticate(timeout=0.3)
    async def login(self, login: Login) -> None:
        """Waits."""
        if login.username == "sleeper":
            await asyncio.Event().wait()


def test_a_coroutine_on_a_loop_that_another_one_blocks_is_not_at_fault(
    start: Start, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.breaker.FAILURES", 1)
    begun = threading.Semaphore(0)

    class Patient(AsyncDef):
        @hook.authorize(action="publish", filter="slow", timeout=0.4, cache=0)
        async def may_slowly(self, ask: Ask) -> None:
            begun.release()
            await asyncio.Event().wait()

    broker = start(Patient(trap), Bystander())
    with Wire(broker.port) as slow, Wire(broker.port) as evil:
        slow.connect("slow", username="slow", password=b"")
        slow.send(publish("slow", b"", qos=1, packet_id=1))
        assert begun.acquire(timeout=30)
        hang_login(evil)
        slow.receive()
        eventually(lambda: numbers(broker, Patient, "login").timed_out == 1)
        eventually(lambda: numbers(broker, Patient, "may_slowly").timed_out == 1)

    assert numbers(broker, Patient, "may_slowly").breaker == "closed"
    assert numbers(broker, Patient, "login").breaker == "open"


def test_time_in_the_queue_of_the_next_worker_is_not_taken_from_the_hook_before(
    start: Start, trap: Trap
) -> None:
    class Passes(Plugin):
        @hook.authenticate(timeout=0.3)
        def login(self, login: Login) -> None: ...

    class Slow(Def):
        @hook.authenticate(timeout=1)
        def login(self, login: Login) -> Allow | None:
            return super().login(login)

    broker = start(Passes(), Slow(trap))
    with Wire(broker.port) as evil:
        hang_login(evil)
        assert trap.entered.acquire(timeout=30)

        assert login_reason(broker, "friend") == 0  # it waits for most of a second


def test_an_exchange_that_waits_for_a_place_has_its_whole_time_when_it_gets_one(
    start: Start, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.event_loop.CONCURRENT", 1)
    begun, go = threading.Semaphore(0), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    class Busy(AsyncDef):
        @hook.authenticate(timeout=30)
        async def login(self, login: Login) -> Allow | None:
            if login.username == "sleeper":
                return None
            loops.append(asyncio.get_running_loop())
            begun.release()
            await go.wait()
            return Allow(NOTHING)

    broker = start(Busy(trap))
    sleeping = start(Sleeper())
    method = {"authentication_method": "M"}
    with Wire(broker.port) as talker, Wire(broker.port) as other:
        talker.send(connect("talker", props=method))
        talker.expect(AUTH)
        other.send(connect("other", username="other", password=b""))
        assert begun.acquire(timeout=30)
        talker.send(auth(0x18, method))
        let_pass(sleeping)
        loops[0].call_soon_threadsafe(go.set)

        assert talker.expect(CONNACK).reason == 0
    assert numbers(broker, Busy, "talk").timed_out == 0


def test_time_in_the_queue_for_hashing_is_not_the_hooks(
    start: Start, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: ThreadPoolExecutor
    monkeypatch.setattr(hashing, "pool", lambda: pool)
    monkeypatch.setattr(hashing, "verify_password", lambda *_: True)

    class Hashing(Plugin):
        @hook.authenticate(timeout=0.3)
        async def login(self, login: Login) -> Allow | None:
            return Allow(NOTHING) if await login.password_matches("hash") else None

    broker = start(Hashing())
    sleeping = start(Sleeper())
    with ThreadPoolExecutor(1) as pool, Wire(broker.port) as wire:
        pool.submit(trap.hold)
        assert trap.entered.acquire(timeout=30)
        wire.send(connect("c", username="joe", password=b"pw"))
        let_pass(sleeping)
        trap.release.set()

        assert wire.expect(CONNACK).reason == 0
    assert numbers(broker, Hashing, "login").timed_out == 0


def test_a_password_is_not_hashed_for_a_client_that_left(
    start: Start, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    pool: ThreadPoolExecutor
    monkeypatch.setattr(hashing, "pool", lambda: pool)
    monkeypatch.setattr(hashing, "verify_password", lambda _, password: hashed.append(password))

    class Hashing(Plugin):
        @hook.authenticate(timeout=30)
        async def login(self, login: Login) -> None:
            await login.password_matches("hash")

    broker = start(Hashing())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(trap.hold)
        assert trap.entered.acquire(timeout=30)
        with Wire(broker.port) as wire:
            wire.send(connect("c", username="joe", password=b"left"))
            eventually(lambda: numbers(broker, Hashing, "login").in_flight == 1)
        eventually(lambda: numbers(broker, Hashing, "login").in_flight == 0)
        trap.release.set()

    assert hashed == []
