"""The contract of plugins: what hooks are asked, what answers do, and that they fail closed."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar, cast

import pytest
from mqttcore import Broker, ConfigError, PluginError, Settings, StoppedError
from mqttcore.config import Listener, PluginUse, ServerLimits
from mqttcore.errors import OverloadedError
from mqttcore.plugin import (
    Allow,
    Ask,
    Deny,
    DisconnectClient,
    Event,
    Grant,
    HookStats,
    Limits,
    Login,
    Plugin,
    SessionLimits,
    SessionPolicy,
    hook,
)
from mqttcore.plugin.breaker import CircuitBreaker

from tests.eventually import eventually
from tests.wire import DISCONNECT, SUBACK, Wire, connect, pingreq, publish

BAD_CREDENTIALS, NOT_AUTHORIZED, UNAVAILABLE, BUSY = 0x86, 0x87, 0x88, 0x89
EVERYTHING = Grant(publish=["#"], subscribe=["#"])
ANONYMOUS = Listener(address="127.0.0.1:0", anonymous=True)
WIDE = ServerLimits(topic_levels=1_024, topic_bytes=65_535)
CLOSED = Listener(address="127.0.0.1:0", name="closed")

Start = Callable[..., Broker]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts brokers with plugins; nobody is anonymous."""
    running: list[Broker] = []

    def started(*plugins: Plugin, **settings: Any) -> Broker:  # noqa: ANN401 - of Settings
        broker = Broker(Settings(listeners=(CLOSED,), **settings), plugins=plugins)
        running.append(broker)
        return broker.start()

    yield started
    for broker in running:
        broker.stop()


def login_reason(broker: Broker, username: str | None = "joe", *, version: int = 5) -> int:
    """The code that a CONNECT gets."""
    with Wire(broker.port, version=version) as wire:
        return wire.connect("c", username=username, password=b"pw", reason=ANY).reason


class Anything(int):
    """Equal to every code."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


ANY = Anything()


class Decider(Plugin):
    """Answers every login with what the test handed in, or calls it."""

    answer: Any = None
    seen: Login | None = None

    @hook.authenticate(timeout=0.3)
    def login(self, login: Login) -> Allow | Deny | None:
        """Answers."""
        self.seen = login
        answer: Allow | Deny | None = self.answer(login) if callable(self.answer) else self.answer
        return answer


class AsyncDecider(Plugin):
    """The same on the event loop."""

    answer: Any = None

    @hook.authenticate(timeout=0.3)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Answers."""
        await asyncio.sleep(0)
        answer = self.answer(login) if callable(self.answer) else self.answer
        found: Allow | Deny | None = await answer if asyncio.iscoroutine(answer) else answer
        return found


Kind = TypeVar("Kind", bound=Decider | AsyncDecider)


def deciding(kind: type[Kind], answer: object) -> Kind:
    plugin = kind()
    plugin.answer = answer
    return plugin


both_workers = pytest.mark.parametrize("kind", [Decider, AsyncDecider])


# --- answers


@both_workers
def test_the_first_answer_decides(start: Start, kind: type[Decider]) -> None:
    passing, allowing = deciding(kind, None), deciding(kind, Allow(EVERYTHING))
    broker = start(passing, allowing, deciding(Decider, Deny("banned")))

    assert login_reason(broker) == 0


@both_workers
def test_when_all_pass_the_login_is_refused(start: Start, kind: type[Decider]) -> None:
    assert login_reason(start(deciding(kind, None))) == BAD_CREDENTIALS


def test_a_login_goes_from_worker_to_worker(start: Start) -> None:
    kinds: tuple[type[Decider | AsyncDecider], ...] = (AsyncDecider, Decider) * 2
    passing = [deciding(kind, None) for kind in kinds]

    assert login_reason(start(*passing, deciding(AsyncDecider, Allow(EVERYTHING)))) == 0
    assert login_reason(start(*passing)) == BAD_CREDENTIALS


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("unspecified_error", 0x80),
        ("client_identifier_not_valid", 0x85),
        ("bad_credentials", 0x86),
        ("not_authorized", 0x87),
        ("server_unavailable", 0x88),
        ("server_busy", 0x89),
        ("banned", 0x8A),
        ("topic_name_invalid", 0x90),
        ("quota_exceeded", 0x97),
    ],
)
def test_each_reason_has_its_code(start: Start, reason: Any, code: int) -> None:  # noqa: ANN401
    assert login_reason(start(deciding(Decider, Deny(reason)))) == code


def test_a_3x_client_gets_the_return_code(start: Start) -> None:
    broker = start(deciding(Decider, Deny("bad_credentials")))

    assert login_reason(broker, version=4) == 4


def test_without_a_plugin_a_user_name_is_refused_where_nobody_is_anonymous(start: Start) -> None:
    assert login_reason(start(), "joe") == NOT_AUTHORIZED


def test_without_a_plugin_anonymous_access_is_for_those_with_a_user_name_too() -> None:
    with Broker(Settings(listeners=(ANONYMOUS,))) as broker:
        assert [login_reason(broker, user) for user in ("joe", "", None)] == [0, 0, 0]


@both_workers
def test_a_user_whom_every_plugin_passes_is_anonymous_where_that_is_given(
    kind: type[Decider],
) -> None:
    plugin = deciding(kind, None)
    with Broker(Settings(listeners=(ANONYMOUS,)), plugins=[plugin]) as broker:
        with Wire(broker.port) as wire:
            wire.connect("c", username="joe", password=b"")
            assert [client.username for client in broker.clients()] == [None]
        plugin.answer = Deny("bad_credentials")
        assert login_reason(broker) == BAD_CREDENTIALS


def test_a_user_name_that_nobody_vouches_for_reaches_no_other_hook() -> None:
    class Porter(Plugin):
        seen: str | None = "not asked"

        @hook.authorize(action="publish", filter="$SYS/open")
        def may(self, ask: Ask) -> bool:
            self.seen = ask.client.username
            return True

    porter = Porter()
    broker = Broker(Settings(listeners=(ANONYMOUS,)), plugins=[porter])
    with broker, Wire(broker.port) as wire:
        wire.connect("c", username="admin", password=b"")
        assert wire.publish("$SYS/open", qos=1).reason in (0, 0x10)
    assert porter.seen is None


def test_a_login_tells_what_connect_said(start: Start) -> None:
    plugin = deciding(Decider, Allow(EVERYTHING))
    broker = start(plugin)

    with Wire(broker.port) as wire:
        wire.connect(
            "c7",
            username="joe",
            password=b"\x00secret",
            keep_alive=17,
            clean=False,
            props={"session_expiry_interval": 9, "user_property": [("a", "b"), ("a", "c")]},
        )

    seen = plugin.seen
    assert seen is not None
    assert (seen.client_id, seen.username, seen.password) == ("c7", "joe", b"\x00secret")
    assert (seen.version, seen.clean_start, seen.keep_alive) == (5, False, 17)
    assert (seen.session_expiry_interval, seen.will_topic) == (9, None)
    assert seen.user_properties == [("a", "b"), ("a", "c")]
    assert (seen.peer[0], seen.listener) == ("127.0.0.1", "closed")
    assert "secret" not in repr(seen)


def test_a_login_may_be_remembered_for_a_while(start: Start) -> None:
    asked: list[str] = []

    class Cached(Plugin):
        @hook.authenticate(cache=60)
        def login(self, login: Login) -> Allow | None:
            asked.append(f"sync {login.username}")
            return Allow(EVERYTHING) if login.username == "joe" else None

        @hook.authenticate(cache=60)
        async def login_slowly(self, login: Login) -> Allow | Deny:
            asked.append(f"async {login.username}")
            return Allow(EVERYTHING) if login.username == "jim" else Deny()

    broker = start(Cached())

    def is_asked_about(user: str) -> bool:
        before = len(asked)
        login_reason(broker, user)
        return asked[before:] != [] and asked[-1].endswith(user)

    # the answer leaves before it is remembered: the very next login may still be asked about
    eventually(lambda: not is_asked_about("joe"))
    eventually(lambda: not is_asked_about("jim") or asked[-1] == "sync jim")
    assert not is_asked_about("joe")
    assert asked.count("async joe") == 0
    assert all(is_asked_about("ann") for _ in range(3))
    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"other")
    assert asked[-1] == "sync joe"


def test_a_remembered_login_is_not_remembered_for_longer_by_being_used(start: Start) -> None:
    asked: list[str] = []

    class Cached(Plugin):
        @hook.authenticate(cache=0.3)
        def login(self, login: Login) -> Allow:
            asked.append("joe")
            return Allow(EVERYTHING)

    broker = start(Cached())

    eventually(lambda: login_reason(broker) == 0 and len(asked) > 1)


# --- grants


def test_a_grant_is_enforced_and_nothing_else_is_allowed(start: Start) -> None:
    grant = Grant(publish=["out/+"], subscribe=["in/#"], deny=["in/secret"])
    broker = start(deciding(Decider, Allow(grant)))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"")
        found = wire.subscribe(("in/a", 1), ("in/#", 1), ("in/secret", 1), ("out/a", 1), ("#", 1))
        assert found.reasons == (1, 1, NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED)
        assert wire.publish("out/a", qos=1).reason in (0x00, 0x10)
        assert wire.publish("out/a/b", qos=1, packet_id=2).reason == NOT_AUTHORIZED

        broker.publish("in/secret", b"hidden")
        broker.publish("in/open", b"shown")
        assert wire.receive_publish().payload == b"shown"


def test_a_grant_may_open_topics_that_begin_with_a_dollar(start: Start) -> None:
    grant = Grant(publish=["$SYS/mine/#"], subscribe=["$#"], deny=["$other/#"])
    broker = start(deciding(Decider, Allow(grant)))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"")
        found = wire.subscribe(("$SYS/mine/a", 1), ("$own/+", 1), ("$other/a", 1), ("a", 1))
        assert found.reasons == (1, 1, NOT_AUTHORIZED, NOT_AUTHORIZED)
        assert wire.publish("$SYS/elsewhere", qos=1).reason == NOT_AUTHORIZED
        wire.send(publish("$SYS/mine/a", b"x", qos=1, packet_id=2))
        assert wire.receive_publish().topic == "$SYS/mine/a"


def test_a_grant_limits_qos_and_session(start: Start) -> None:
    policy = SessionPolicy(limits=SessionLimits(subscriptions=1))
    grant = Grant(subscribe=["#"], limits=Limits(max_qos=0), session=policy)
    broker = start(deciding(Decider, Allow(grant)))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"")
        assert wire.subscribe(("a", 2)).reasons == (0,)
        assert wire.subscribe(("b", 0), packet_id=2).reasons == (0x97,)


def test_a_grant_may_forbid_to_resume(start: Start) -> None:
    fresh = Grant(subscribe=["#"], session=SessionPolicy(resume=False))
    broker = start(deciding(Decider, Allow(fresh)))
    for _ in range(2):
        with Wire(broker.port) as wire:
            expiry = {"session_expiry_interval": 60}
            found = wire.connect("c", clean=False, username="joe", password=b"", props=expiry)
            assert not found.session_present
            wire.disconnect()


def test_a_grant_ends_when_it_expires(start: Start) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    broker = start(deciding(Decider, Allow(Grant(expires_at=soon))))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"")
        assert wire.expect(DISCONNECT).reason == 0xA0
        wire.expect_close()


def test_a_plugin_may_put_another_user_name(start: Start) -> None:
    broker = start(deciding(Decider, Allow(EVERYTHING, username="joseph")))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"")
        assert broker.clients()[0].username == "joseph"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Grant(publish=["a/#/b"]), "MQTT-4.7.1-1"),
        (lambda: Grant(publish="a"), "is a string"),
        (lambda: Grant(deny=["$#/a"]), "MQTT-4.7.1-1"),
        (lambda: Grant(expires_at=datetime(2030, 1, 1)), "time zone"),
        (lambda: Limits(max_qos=3), "out of range"),
        (lambda: Deny(cast(Any, "because")), "allowed: unspecified_error"),
        (lambda: DisconnectClient(cast(Any, "because")), "allowed: unspecified_error"),
        (lambda: Allow(covers="a#"), "MQTT-4.7.1-1"),
    ],
)
def test_an_answer_that_cannot_be_is_refused_when_it_is_made(
    make: Callable[[], object], what: str
) -> None:
    with pytest.raises(Exception, match=what):
        make()


# --- hostile plugins


def raises(login: Login) -> None:
    raise RuntimeError("out of order")


def leaves(login: Login) -> None:
    raise SystemExit


def test_the_log_separates_the_text_of_a_refusal(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start(deciding(Decider, Deny("bad_credentials", "wrong signature")))

    assert login_reason(broker) == BAD_CREDENTIALS

    eventually(lambda: "Bad User Name or Password: wrong signature" in caplog.text)


def test_authenticate_is_written_with_or_without_parentheses(start: Start) -> None:
    class Bare(Plugin):
        @hook.authenticate
        def login(self, login: Login) -> Allow:
            return Allow(EVERYTHING)

    assert Bare.hooks["login"].timeout == 5.0
    assert login_reason(start(Bare())) == 0


@pytest.mark.parametrize(
    ("decorator", "what"),
    [
        (hook.enhanced_auth, "name the method"),
        (hook.authorize, r"hook\.authorize\(\) takes 0 positional"),
        (hook.events, "name the events"),
    ],
)
def test_a_hook_that_needs_arguments_says_so(decorator: Any, what: str) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=what):
        decorator(lambda self, told: None)


def name_of(answer: object) -> str:
    """Names an answer of a hook alike in each process: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(answer))


@both_workers
@pytest.mark.parametrize(
    "answer",
    [raises, leaves, True, 0, "allow", DisconnectClient(), Allow("everything"), Grant(), object()],  # type: ignore[arg-type]
    ids=name_of,
)
def test_a_hook_that_raises_or_answers_junk_refuses_that_client_only(
    start: Start, kind: type[Decider], answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = deciding(kind, answer)
    broker = start(plugin)

    assert login_reason(broker) == UNAVAILABLE

    assert f"{plugin.name}.login" in caplog.text
    assert "client 'c'" in caplog.text
    plugin.answer = Allow(EVERYTHING)
    assert login_reason(broker) == 0


def test_a_hook_that_hangs_refuses_and_does_not_hold_up_the_next(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def hang(login: Login) -> Allow:
        if login.username == "slow":
            release.wait()
        return Allow(EVERYTHING)

    plugin = deciding(Decider, hang)
    broker = start(plugin)
    try:
        assert login_reason(broker, "slow") == UNAVAILABLE
        assert login_reason(broker, "quick") == 0
    finally:
        release.set()

    late = f"{plugin.name}.login: client 'c': no answer within 0.3 s, refused"
    eventually(lambda: "another thread takes over" in caplog.text and late in caplog.text)


def test_a_hook_that_hangs_gives_its_thread_up_even_when_its_client_left(start: Start) -> None:
    entered, release = threading.Event(), threading.Event()

    def decide(login: Login) -> Allow:
        if login.username == "slow":
            entered.set()
            release.wait()
        return Allow(EVERYTHING)

    broker = start(deciding(Decider, decide))
    try:
        with Wire(broker.port) as wire:
            wire.send(connect("c", username="slow", password=b""))
            assert entered.wait(20)

        assert login_reason(broker, "quick") == 0
    finally:
        release.set()


def test_hooks_that_hang_for_ever_get_no_more_than_their_share_of_threads(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def hang(login: Login) -> Allow:
        release.wait()
        return Allow(EVERYTHING)

    broker = start(deciding(Decider, hang))
    try:
        for _ in range(5):
            assert login_reason(broker) == UNAVAILABLE
        eventually(lambda: "which is the limit" in caplog.text)
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("mqttcore-hooks") == 5
    finally:
        release.set()


def test_a_coroutine_that_hangs_is_cancelled(start: Start) -> None:
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    broker = start(deciding(AsyncDecider, lambda _: hang()))

    assert login_reason(broker) == UNAVAILABLE
    assert cancelled.wait(20)


def test_a_client_that_leaves_cancels_its_coroutine(start: Start) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class Patient(Plugin):
        @hook.authenticate(timeout=30)
        async def login(self, login: Login) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    broker = start(Patient())
    with Wire(broker.port) as wire:
        wire.send(connect("c", username="joe", password=b""))
        assert begun.wait(20)

    assert cancelled.wait(20)


def test_a_coroutine_that_blocks_its_loop_refuses_and_does_not_hold_up_the_end(
    start: Start,
) -> None:
    release = threading.Event()

    class Blocking(Plugin):
        @hook.authenticate(timeout=0.2)
        async def login(self, login: Login) -> None:
            release.wait()

    broker = start(Blocking())
    try:
        assert login_reason(broker) == UNAVAILABLE
        broker.stop()
        assert not release.is_set()
    finally:
        release.set()


def test_coroutines_do_not_wait_for_each_other(start: Start) -> None:
    everyone = threading.Barrier(10, timeout=20)
    gate = asyncio.Event()

    class Crowd(Plugin):
        count = 0

        @hook.authenticate()
        async def login(self, login: Login) -> Allow:
            self.count += 1
            if self.count == 9:
                gate.set()
            await gate.wait()
            return Allow(EVERYTHING)

    broker = start(Crowd())

    def one() -> None:
        everyone.wait()
        assert login_reason(broker) == 0

    threads = [threading.Thread(target=one) for _ in range(9)]
    for thread in threads:
        thread.start()
    everyone.wait()
    for thread in threads:
        thread.join(10)
    assert gate.is_set()


def test_traffic_goes_on_while_python_is_stuck(start: Start) -> None:
    release = threading.Event()

    def decide(login: Login) -> Allow:
        if login.username == "slow":
            release.wait()
        return Allow(EVERYTHING)

    broker = start(deciding(Decider, decide))
    with Wire(broker.port) as wire, Wire(broker.port) as stuck:
        wire.connect("c", username="joe", password=b"")
        wire.subscribe(("a", 1))
        stuck.send(connect("d", username="slow", password=b""))
        for _ in range(100):
            wire.send(publish("a", b"x"), pingreq())
            assert wire.receive().name == "PUBLISH"
            assert wire.receive().name == "PINGRESP"
        release.set()


def test_failures_are_one_line_a_second(caplog: pytest.LogCaptureFixture, start: Start) -> None:
    broker = start(deciding(Decider, raises))

    for _ in range(20):
        assert login_reason(broker) == UNAVAILABLE

    lines = [record for record in caplog.records if record.name == "mqttcore.plugins"]
    assert 1 <= len(lines) <= 4


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("kind", "answer", "failures"),
    [
        (Decider, raises, 20),
        (AsyncDecider, raises, 20),
        (Decider, "junk", 20),
        (AsyncDecider, "junk", 20),
        (AsyncDecider, lambda _: hangs(), 2),
    ],
)
def test_a_hook_that_keeps_failing_is_left_alone_until_it_answers_again(
    start: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Decider],
    answer: object,
    failures: int,
) -> None:
    now = [0.0]
    monkeypatch.setattr("mqttcore.plugin.breaker.FAILURES", failures)
    monkeypatch.setattr(
        "mqttcore.plugin.bound_hook.CircuitBreaker", lambda: CircuitBreaker(lambda: now[0])
    )
    caplog.set_level(logging.INFO)
    plugin = deciding(kind, answer)
    broker = start(plugin)
    for _ in range(failures):
        assert login_reason(broker) == UNAVAILABLE
    eventually(lambda: "not called for 5 s" in caplog.text)

    plugin.answer = Allow(EVERYTHING)
    assert login_reason(broker) == UNAVAILABLE
    now[0] += 5
    assert login_reason(broker) == 0

    eventually(lambda: "answers again" in caplog.text)
    assert login_reason(broker) == 0
    assert caplog.text.count("not called for 5 s") == 1


def test_each_plugin_fails_for_itself(start: Start) -> None:
    first, second = deciding(Decider, None), deciding(Decider, raises)
    broker = start(first, second)
    for _ in range(21):
        assert login_reason(broker) == UNAVAILABLE

    first.answer = Allow(EVERYTHING)

    assert login_reason(broker) == 0


def test_a_hook_that_has_too_much_to_do_is_not_left_alone(start: Start) -> None:
    def overloaded(login: Login) -> None:
        raise OverloadedError("later")

    plugin = deciding(Decider, overloaded)
    broker = start(plugin)
    for _ in range(21):
        assert login_reason(broker) == BUSY

    plugin.answer = Allow(EVERYTHING)

    assert login_reason(broker) == 0


def test_a_trial_that_has_too_much_to_do_leaves_the_trial_to_the_next(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("mqttcore.plugin.breaker.FAILURES", 1)
    monkeypatch.setattr(
        "mqttcore.plugin.bound_hook.CircuitBreaker", lambda: CircuitBreaker(lambda: now[0])
    )

    def overloaded(login: Login) -> None:
        raise OverloadedError("later")

    plugin = deciding(Decider, raises)
    broker = start(plugin)
    assert login_reason(broker) == UNAVAILABLE
    now[0] += 5
    plugin.answer = overloaded
    assert login_reason(broker) == BUSY

    plugin.answer = Allow(EVERYTHING)

    assert login_reason(broker) == 0


def test_a_trial_whose_client_leaves_leaves_the_trial_to_the_next(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("mqttcore.plugin.breaker.FAILURES", 1)
    monkeypatch.setattr(
        "mqttcore.plugin.bound_hook.CircuitBreaker", lambda: CircuitBreaker(lambda: now[0])
    )
    begun = threading.Event()

    class Patient(Plugin):
        answer: Allow | None = None

        @hook.authenticate(timeout=30)
        async def login(self, login: Login) -> Allow:
            if login.client_id == "leaves":
                begun.set()
                await asyncio.Event().wait()
            if self.answer is None:
                raise ValueError("not yet")
            return self.answer

    plugin = Patient()
    broker = start(plugin)
    assert login_reason(broker) == UNAVAILABLE
    now[0] += 5
    plugin.answer = Allow(EVERYTHING)
    with Wire(broker.port) as wire:
        wire.send(connect("leaves", username="joe", password=b""))
        assert begun.wait(20)

    eventually(lambda: login_reason(broker) == 0)


def test_the_log_says_what_a_hook_raised(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    broker = start(deciding(Decider, raises))

    assert login_reason(broker) == UNAVAILABLE

    (line,) = [record for record in caplog.records if "client 'c'" in record.getMessage()]
    assert line.getMessage().endswith("Decider.login: client 'c': raised")
    assert line.exc_info is not None
    assert line.exc_info[0] is RuntimeError


def test_a_password_is_in_no_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broker = start(deciding(Decider, raises))

    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"canary-in-the-mine", reason=UNAVAILABLE)

    assert caplog.records
    assert "canary" not in caplog.text


# --- start and stop


def test_a_plugin_is_started_and_stopped_in_order() -> None:
    calls: list[str] = []

    class Living(Plugin):
        title = ""

        async def start(self) -> None:
            calls.append(f"start {self.title}")

        async def stop(self) -> None:
            calls.append(f"stop {self.title}")

    first, second = Living(), Living()
    first.title, second.title = "1", "2"

    with Broker(Settings(listeners=(CLOSED,)), plugins=[first, second]):
        calls.append("run")

    assert calls == ["start 1", "start 2", "run", "stop 2", "stop 1"]


def test_a_plugin_that_does_not_start_stops_the_broker_from_starting() -> None:
    calls: list[str] = []

    class Good(Plugin):
        async def stop(self) -> None:
            calls.append("stopped")

    class Bad(Plugin):
        async def start(self) -> None:
            raise OSError("no database")

    broker = Broker(Settings(listeners=(CLOSED,)), plugins=[Good(), Bad()])

    with pytest.raises(PluginError, match=r"Bad did not start: no database"):
        broker.start()
    assert calls == ["stopped"]


class Observer(Plugin):
    """Starts or not as the test says, and counts what it is told."""

    error: ClassVar[Exception | None] = None
    told: ClassVar[list[str]] = []

    async def start(self) -> None:
        """Starts or not."""
        self.told.clear()
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        """Tells that it is called."""
        self.told.append("stop")

    @hook.events("connected", every=0)
    def record(self, events: Sequence[Event]) -> None:
        """Counts."""
        self.told.extend(event.kind for event in events)


class Asked(Observer):
    """An observer that decides as well."""

    @hook.authorize(action="publish", filter="#")
    def may(self, ask: Ask) -> None:
        """Passes."""


def skipping(monkeypatch: pytest.MonkeyPatch, kind: type[Plugin]) -> dict[str, Any]:
    monkeypatch.setattr("mqttcore.plugin.loading.find_class", lambda _: kind)
    return {"plugins": (PluginUse(use="observer", on_error="skip"),)}


@pytest.mark.parametrize(
    ("error", "what"), [(OSError("no database"), "no database"), (TimeoutError(), "TimeoutError")]
)
def test_an_observer_that_does_not_start_may_be_skipped(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    what: str,
) -> None:
    monkeypatch.setattr(Observer, "error", error)
    other = deciding(Decider, Allow(EVERYTHING))
    broker = start(other, **skipping(monkeypatch, Observer))

    assert login_reason(broker) == 0
    assert [stats.point for stats in broker.hook_stats()] == ["authenticate"]
    broker.stop()

    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage().endswith(
        f"Observer did not start: {what}; the broker continues without it"
    )
    assert Observer.told == []


def test_a_reload_tries_a_skipped_observer_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observer, "error", OSError("no database"))
    broker = start(deciding(Decider, Allow(EVERYTHING)), **skipping(monkeypatch, Observer))

    monkeypatch.setattr(Observer, "error", None)
    broker.reload(broker.settings)

    assert login_reason(broker) == 0
    eventually(lambda: Observer.told == ["connected"])


def test_an_observer_that_decides_as_well_may_not_be_skipped(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"on_error: 'observer' decides what clients may do"):
        start(**skipping(monkeypatch, Asked))


def test_no_thread_outlives_the_broker(start: Start) -> None:
    class Everything(Plugin):
        @hook.authenticate()
        def login(self, login: Login) -> None: ...

        @hook.authenticate()
        async def login_slowly(self, login: Login) -> None: ...

        @hook.events("connected")
        def record(self, events: Sequence[Event]) -> None: ...

    before = set(threading.enumerate())
    broker = start(Everything())
    assert login_reason(broker) == BAD_CREDENTIALS
    assert len(set(threading.enumerate()) - before) == 5
    broker.stop()

    assert set(threading.enumerate()) - before == set()


def test_a_reload_swaps_the_plugins(start: Start) -> None:
    answers: Iterator[Allow | Deny] = iter([Deny("banned"), Allow(EVERYTHING)])

    class Fresh(Plugin):
        async def start(self) -> None:
            self.answer = next(answers)

        @hook.authenticate()
        def login(self, login: Login) -> Allow | Deny:
            return self.answer

    broker = start(Fresh())
    assert login_reason(broker) == 0x8A

    broker.reload(broker.settings)

    assert login_reason(broker) == 0


def test_a_reload_does_not_wait_for_hooks_of_the_old_plugins(start: Start) -> None:
    entered, release, stopped = threading.Event(), threading.Event(), threading.Event()

    class Slow(Plugin):
        async def stop(self) -> None:
            stopped.set()

        @hook.authenticate(timeout=30)
        def login(self, login: Login) -> Allow:
            if not entered.is_set():
                entered.set()
                release.wait()
            return Allow(EVERYTHING)

    broker = start(Slow())
    with Wire(broker.port) as early:
        from tests.wire import CONNACK, connect

        early.send(connect("early", username="joe", password=b""))
        assert entered.wait(5)

        broker.reload(broker.settings)

        # the new plugins are asked, while the old ones still have an answer to give
        assert not stopped.is_set()
        assert login_reason(broker, "late") == 0
        release.set()
        assert early.expect(CONNACK).reason == 0
    assert stopped.wait(5)


def test_a_reload_that_the_engine_refuses_leaves_no_thread_of_the_new_plugins(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Living(Plugin):
        async def start(self) -> None:
            calls.append("start")

        async def stop(self) -> None:
            calls.append("stop")

        @hook.authenticate()
        def login(self, login: Login) -> None: ...

        @hook.authenticate()
        async def login_slowly(self, login: Login) -> None: ...

        @hook.events("connected")
        def record(self, events: Sequence[Event]) -> None: ...

    broker = start(Living())
    before = set(threading.enumerate())

    class Refusing:
        audit = broker._started().audit

        def reload(self, *_: object) -> None:
            raise StoppedError("refused")

    monkeypatch.setattr(broker, "_started", Refusing)
    with pytest.raises(StoppedError):
        broker.reload(broker.settings)
    assert calls == ["start", "start", "stop"]
    assert set(threading.enumerate()) - before == set()

    monkeypatch.undo()
    broker.stop()
    with pytest.raises(StoppedError):
        broker.reload(broker.settings)
    assert calls == ["start", "start", "stop", "stop"], "a stopped broker starts no plugins"


# --- numbers


def numbers(broker: Broker, method: str) -> HookStats:
    """Of the one hook of that name."""
    (found,) = [stats for stats in broker.hook_stats() if stats.hook.endswith(f".{method}")]
    return found


@both_workers
def test_calls_are_counted_by_what_became_of_them(start: Start, kind: type[Decider]) -> None:
    def busy(login: Login) -> None:
        raise OverloadedError("later")

    plugin = deciding(kind, None)
    broker = start(plugin)
    began = time.monotonic()
    for answer in [None, Deny(), busy, Allow(EVERYTHING), Allow(EVERYTHING), raises, "junk"]:
        plugin.answer = answer
        login_reason(broker)

    eventually(lambda: numbers(broker, "login").failed == 2)
    eventually(lambda: numbers(broker, "login").in_flight == 0)
    found = numbers(broker, "login")
    assert (found.hook, found.point) == (f"{plugin.name}.login", "authenticate")
    assert (found.passed, found.denied, found.allowed, found.calls) == (1, 2, 2, 7)
    assert (found.timed_out, found.shut_out, found.breaker) == (0, 0, "closed")
    # one call after the other, so in seconds they fit into the time of all
    assert 0 < found.run_s + found.wait_s < time.monotonic() - began
    assert min(found.run_s, found.wait_s) > 0


def test_a_call_that_hangs_is_counted_as_late_once_and_is_in_flight_until_it_comes_back(
    start: Start,
) -> None:
    release = threading.Event()

    def hang(login: Login) -> Allow:
        release.wait()
        return Allow(EVERYTHING)

    broker = start(deciding(Decider, hang))
    try:
        assert login_reason(broker) == UNAVAILABLE
        eventually(lambda: numbers(broker, "login").timed_out == 1)
        assert numbers(broker, "login").in_flight == 1
        assert numbers(broker, "login").run_s == 0
    finally:
        release.set()

    eventually(lambda: numbers(broker, "login").in_flight == 0)
    found = numbers(broker, "login")
    assert (found.calls, found.timed_out, found.allowed, found.failed) == (1, 1, 0, 0)
    # the time limit counts from the moment that the question is queued
    assert found.run_s + found.wait_s > 0.3


def test_a_question_that_waits_for_another_one_is_counted_as_waiting(start: Start) -> None:
    entered, release = threading.Event(), threading.Event()

    class Slow(Plugin):
        @hook.authenticate(timeout=1)
        def login(self, login: Login) -> Allow:
            if login.username == "slow":
                entered.set()
                release.wait()
            return Allow(EVERYTHING)

    broker = start(Slow())
    try:
        with Wire(broker.port) as slow, Wire(broker.port) as quick:
            slow.send(connect("a", username="slow", password=b""))
            assert entered.wait(20)
            before = numbers(broker, "login").wait_s
            quick.connect("b", username="quick", password=b"")
    finally:
        release.set()

    assert numbers(broker, "login").wait_s > before + 0.1


def test_what_is_not_called_is_counted_apart(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttcore.plugin.breaker.FAILURES", 2)
    broker = start(deciding(Decider, raises))
    for _ in range(5):
        assert login_reason(broker) == UNAVAILABLE

    eventually(lambda: numbers(broker, "login").shut_out == 3)
    found = numbers(broker, "login")
    assert (found.calls, found.failed, found.breaker) == (2, 2, "open")


@pytest.mark.parametrize("is_async", [False, True])
def test_calls_of_event_hooks_are_counted(start: Start, is_async: bool) -> None:
    class Recorder(Plugin):
        @hook.events("connected", every=0)
        def record(self, events: Sequence[Event]) -> None: ...

        @hook.events("connected", every=0)
        def spoil(self, events: Sequence[Event]) -> None:
            raise RuntimeError("disk full")

    class AsyncRecorder(Plugin):
        @hook.events("connected", every=0)
        async def record(self, events: Sequence[Event]) -> None: ...

        @hook.events("connected", every=0)
        async def spoil(self, events: Sequence[Event]) -> None:
            raise RuntimeError("disk full")

    recorder = AsyncRecorder() if is_async else Recorder()
    broker = start(deciding(Decider, Allow(EVERYTHING)), recorder)
    assert login_reason(broker) == 0

    eventually(lambda: numbers(broker, "spoil").failed == 1)
    found = numbers(broker, "record")
    assert (found.point, found.calls, found.passed, found.in_flight) == ("events", 1, 1, 0)
    assert [stats.point for stats in broker.hook_stats()] == ["authenticate", "events", "events"]


def test_a_stopped_broker_has_no_numbers() -> None:
    with pytest.raises(StoppedError):
        Broker(Settings(listeners=(CLOSED,))).hook_stats()


# --- authorize


class Porter(Plugin):
    """Lets everybody in with nothing, and answers each question with what the test handed in."""

    answer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.asks: list[Ask] = []

    @hook.authenticate()
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["granted"], deny=["door/denied"]))

    @hook.authorize(action="publish", filter="door/#", timeout=0.3, cache=0)
    def may_publish(self, ask: Ask) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        self.asks.append(ask)
        return self.answer(ask) if callable(self.answer) else self.answer

    @hook.authorize(action="subscribe", filter="door/+/state", timeout=0.3, cache=0)
    async def may_subscribe(self, ask: Ask) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        self.asks.append(ask)
        return self.answer


@pytest.fixture
def porter() -> Porter:
    return Porter()


@pytest.fixture
def visitor(start: Start, porter: Porter) -> Iterator[Wire]:
    with Wire(start(porter).port) as wire:
        wire.connect("c", username="joe", password=b"")
        yield wire


def test_only_what_the_grant_is_silent_about_is_asked(visitor: Wire, porter: Porter) -> None:
    porter.answer = True

    assert visitor.publish("granted", qos=1).reason in (0, 0x10)
    assert visitor.publish("elsewhere", qos=1, packet_id=2).reason == NOT_AUTHORIZED
    assert visitor.publish("door/denied", qos=1, packet_id=3).reason == NOT_AUTHORIZED
    assert visitor.publish("door/open", qos=1, packet_id=4, retain=True).reason in (0, 0x10)
    assert visitor.subscribe(("door/1/state", 2), ("door/#", 0)).reasons == (2, NOT_AUTHORIZED)

    assert [(ask.action, ask.topic, ask.qos, ask.retain) for ask in porter.asks] == [
        ("publish", "door/open", 1, True),
        ("subscribe", "door/1/state", 2, False),
    ]
    assert porter.asks[0].client.client_id == "c"
    assert porter.asks[0].client.username == "joe"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (False, NOT_AUTHORIZED),
        (None, NOT_AUTHORIZED),
        (Deny("quota_exceeded"), 0x97),
        (raises, NOT_AUTHORIZED),
        ("yes", NOT_AUTHORIZED),
        (1, NOT_AUTHORIZED),
        (Grant(), NOT_AUTHORIZED),
    ],
    ids=name_of,
)
def test_no_answer_but_a_yes_allows(
    visitor: Wire, porter: Porter, answer: object, code: int
) -> None:
    porter.answer = answer

    assert visitor.publish("door/open", qos=1).reason == code


def test_a_client_may_be_sent_away(visitor: Wire, porter: Porter) -> None:
    porter.answer = DisconnectClient("not_authorized")

    visitor.send(publish("door/open", b"", qos=1, packet_id=1))

    assert visitor.expect(DISCONNECT).reason == NOT_AUTHORIZED
    visitor.expect_close()


def test_an_ask_that_hangs_is_a_no(visitor: Wire, porter: Porter) -> None:
    release = threading.Event()
    porter.answer = lambda _: release.wait()
    try:
        assert visitor.publish("door/open", qos=1).reason == NOT_AUTHORIZED
    finally:
        release.set()


def test_an_ask_is_refused_at_once_while_its_hook_is_left_alone(
    visitor: Wire, porter: Porter
) -> None:
    porter.answer = raises
    for number in range(1, 21):
        assert visitor.publish("door/open", qos=1, packet_id=number).reason == NOT_AUTHORIZED

    porter.answer = True
    assert visitor.publish("door/open", qos=1, packet_id=21).reason == NOT_AUTHORIZED
    assert visitor.subscribe(("door/1/state", 2)).reasons == (2,)
    assert [ask.action for ask in porter.asks] == ["publish"] * 20 + ["subscribe"]


def test_a_wider_yes_is_not_asked_again(visitor: Wire, porter: Porter) -> None:
    porter.answer = Allow(covers="door/7/#", ttl=60)

    for number in range(1, 6):
        assert visitor.publish(f"door/7/{number}", qos=1, packet_id=number).reason in (0, 0x10)
    assert len(porter.asks) == 1

    porter.answer = False
    assert visitor.publish("door/8", qos=1, packet_id=9).reason == NOT_AUTHORIZED


def test_a_plain_yes_counts_for_its_cache_time(start: Start) -> None:
    asked: list[str] = []

    class Cached(Plugin):
        @hook.authenticate()
        def login(self, login: Login) -> Allow:
            return Allow()

        @hook.authorize(action="publish", filter="#", cache=60)
        def may(self, ask: Ask) -> bool:
            asked.append(ask.topic)
            return True

    with Wire(start(Cached()).port) as wire:
        wire.connect("c", username="joe", password=b"")
        for number in (1, 2, 3):
            assert wire.publish("a", qos=1, packet_id=number).reason in (0, 0x10)
        assert wire.publish("b", qos=1, packet_id=4).reason in (0, 0x10)

    assert asked == ["a", "b"]


def test_a_shared_subscription_is_asked_by_its_filter(visitor: Wire, porter: Porter) -> None:
    porter.answer = True

    assert visitor.subscribe(("$share/group/door/1/state", 1)).kind == SUBACK
    assert (porter.asks[0].topic, porter.asks[0].share) == ("door/1/state", "group")


def test_topics_and_filters_are_asked_about_however_long_the_configuration_allows_them(
    start: Start, porter: Porter
) -> None:
    porter.answer = True
    deep, long = "/".join(["door"] * 300), "door/" + "x" * 5_000
    shared = f"$share/group/door/{'x' * 5_000}/state"

    with Wire(start(porter, limits=WIDE).port) as wire:
        wire.connect("c", username="joe", password=b"")
        assert wire.publish(deep, qos=1).reason in (0, 0x10)
        assert wire.publish(long, qos=1, packet_id=2).reason in (0, 0x10)
        assert wire.subscribe((shared, 1), packet_id=3).reasons == (1,)

    assert [ask.topic for ask in porter.asks] == [deep, long, shared[len("$share/group/") :]]


# --- events


@pytest.mark.parametrize("is_async", [False, True])
def test_events_tell_what_happened(start: Start, is_async: bool) -> None:
    told: list[Event] = []
    enough = threading.Event()

    def take(events: Sequence[Event]) -> None:
        told.extend(events)
        if any(event.kind == "disconnected" for event in told):
            enough.set()

    class Recorder(Plugin):
        @hook.events("connected", "subscribed", "disconnected", "auth_failed", every=0)
        def record(self, events: Sequence[Event]) -> None:
            take(events)

    class AsyncRecorder(Plugin):
        @hook.events("connected", "subscribed", "disconnected", "auth_failed", every=0)
        async def record(self, events: Sequence[Event]) -> None:
            take(events)

    def decide(login: Login) -> Allow | Deny:
        return Allow(EVERYTHING) if login.username == "joe" else Deny()

    recorder = AsyncRecorder() if is_async else Recorder()
    broker = start(deciding(Decider, decide), recorder)
    assert login_reason(broker, "jim") == NOT_AUTHORIZED
    with Wire(broker.port) as wire:
        wire.connect("c1", username="joe", password=b"")
        wire.subscribe(("a/b", 0))
        wire.disconnect()

    assert enough.wait(20)
    assert [(event.kind, event.client_id, event.topic) for event in told] == [
        ("auth_failed", "c", None),
        ("connected", "c1", None),
        ("subscribed", "c1", "a/b"),
        ("disconnected", "c1", None),
    ]
    assert told[1].username == "joe"
    assert told[0].reason == NOT_AUTHORIZED
    assert abs(told[0].at - datetime.now(UTC).timestamp()) < 60


def test_an_event_hook_that_raises_is_logged_and_goes_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    calls = threading.Semaphore(0)

    class Broken(Plugin):
        @hook.events("connected", every=0)
        def record(self, events: Sequence[Event]) -> None:
            calls.release()
            raise RuntimeError("disk full")

    broker = start(deciding(Decider, Allow(EVERYTHING)), Broken())
    for _ in range(2):
        assert login_reason(broker) == 0
        assert calls.acquire(timeout=20)

    eventually(lambda: "Broken.record" in caplog.text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hook.events(),
        lambda: hook.events("conected"),  # type: ignore[arg-type]
        lambda: hook.authorize(action="read", filter="#"),  # type: ignore[arg-type]
        lambda: hook.authorize(action="publish", filter="a#"),
        lambda: hook.authenticate(timeout=0),
        lambda: hook.authenticate(cache=-1),
    ],
)
def test_a_hook_that_cannot_be_is_refused_where_it_is_written(make: Callable[[], object]) -> None:
    with pytest.raises(Exception, match=r"allowed|timeout|MQTT-4\.7\.1-1"):
        make()
