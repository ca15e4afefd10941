"""Threads of plugins, without a broker; and what a `Grant` refuses."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import pytest
from mqttcore._core import Question
from mqttcore.plugin import Allow, Event, Grant, Limits, Login, Plugin, hook
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.breaker import FAILURES, HELD_MAX, OPEN_S
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.workers import CallThread, EventWorker, SyncHookWorker

from tests.clock import Clock


def threads_of(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


def test_a_call_is_waited_for_as_long_as_it_may_take() -> None:
    before = threads_of("mqttcore-events")
    calls = CallThread()
    (thread,) = threads_of("mqttcore-events") - before
    held, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        held.set()
        release.wait()

    assert thread.daemon
    calls.call(lambda: None, timeout=20.0)
    assert not calls.is_stuck()
    with pytest.raises(TimeoutError):
        calls.call(hang, timeout=0.0)
    assert held.wait(20)
    assert calls.is_stuck()
    calls.retire(ended.set)
    assert not ended.is_set()
    release.set()

    assert ended.wait(20)
    assert not calls.is_stuck()
    thread.join(20)
    assert not thread.is_alive()


def test_a_call_that_raises_is_over() -> None:
    calls = CallThread()

    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: cast("None", 1 / 0), timeout=20.0)

    assert not calls.is_stuck()
    calls.stop()


class NoQuestions:
    """Queues that are closed."""

    def take(self, _number: int, _limit: int) -> None:
        """Nothing comes."""


class Asked:
    """A question that is the same as itself alone."""

    def is_same(self, other: object) -> bool:
        """Whether it is this one."""
        return other is self


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_thread_is_retired_by_the_question_that_holds_it_alone(*, is_its_own: bool) -> None:
    worker = SyncHookWorker(cast("Any", NoQuestions()), 0, cast("Chain", None))
    worker.join()
    first, other = cast("Question", Asked()), cast("Question", Asked())
    hook = cast("BoundHook", object())

    assert not worker.retire_if_held_by(first, hook), "nothing runs"
    worker._current = first

    assert worker.retire_if_held_by(first if is_its_own else other, hook) is is_its_own
    assert worker._culprit is (hook if is_its_own else None)


class Batches:
    """Queues that hand these questions out, and then the end."""

    def __init__(self, *batches: list[object]) -> None:
        self.batches = list(batches)
        self.takes: list[tuple[int, int]] = []
        self.given_back: list[tuple[int, list[object]]] = []
        self.thread = threading.current_thread()

    def take(self, number: int, limit: int) -> list[object] | None:
        """The next batch."""
        self.takes.append((number, limit))
        self.thread = threading.current_thread()
        return self.batches.pop(0) if self.batches else None

    def give_back(self, number: int, questions: list[object]) -> None:
        """Notes."""
        self.given_back.append((number, questions))


@dataclass(eq=False)
class Refusable(Asked):
    """A question that notes what becomes of it."""

    number: int
    point: str = "authenticate"
    method: None = None
    position: int = 0
    waited: float = 0.0
    fate: list[str] = field(default_factory=list)

    @property
    def subject(self) -> int:
        """Its number."""
        return self.number

    def start(self, title: str, timeout: float) -> bool:
        """Begins."""
        self.fate.append(f"{title.rpartition('.')[2]} {timeout:g}")
        return True

    def advance(self) -> bool:
        """The next hook is asked."""
        self.position += 1
        return True

    def leave_undecided(self) -> None:
        """No hook is left."""
        self.fate.append("undecided")


class Held(Plugin):
    """Its first hook holds the thread for one question, until the test lets it go."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.held, self.release = threading.Event(), threading.Event()

    @hook.authenticate()
    def first(self, subject: object) -> None:
        """Hangs, and passes."""
        if subject == self.number:
            self.held.set()
            self.release.wait()

    @hook.authenticate(timeout=7.0)
    def second(self, subject: object) -> None:
        """Passes."""


def test_questions_are_asked_batch_by_batch() -> None:
    first, second, third = (Refusable(number) for number in range(3))
    queues = Batches([first, second], [third])

    worker = SyncHookWorker(cast("Any", queues), 0, Chain([Held(9)]))
    worker._thread.join(20)

    assert [one.fate for one in (first, second, third)] == [
        ["first 5", "second 7", "undecided"]
    ] * 3
    assert queues.takes == [(0, 64)] * 3
    assert (queues.thread.name, queues.thread.daemon) == ("mqttcore-hooks", True)
    assert not worker.retire_if_held_by(cast("Question", third), cast("BoundHook", None))
    assert queues.given_back == []


def test_a_thread_that_was_held_gives_back_what_it_did_not_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqttcore.plugin.workers.JOIN_S", 0.0)
    questions: list[object] = [Refusable(number) for number in range(4)]
    queues, plugin = Batches(questions, [Refusable(5)]), Held(1)
    chain = Chain([plugin])
    (bound, _) = chain.logins

    worker = SyncHookWorker(cast("Any", queues), 0, chain)
    assert plugin.held.wait(20)
    bound.breaker.hold()
    assert worker.retire_if_held_by(cast("Question", questions[1]), bound)
    worker.join()  # it does not wait for the hook
    assert worker._thread.is_alive()
    plugin.release.set()
    worker._thread.join(20)

    assert not worker._thread.is_alive()
    assert queues.given_back == [(0, questions[2:])]
    assert queues.takes == [(0, 64)]
    assert bound.breaker.hold() == 1


class Asking:
    """A question about one login, which notes what becomes of it."""

    point, method, position, waited, age = "authenticate", None, 0, 0.0, 0.0
    client = subject = Login(client_id="c", username="u", password=b"p")
    is_trial = False

    def __init__(self) -> None:
        self.fate: list[object] = []

    def start(self, _title: str, _timeout: float) -> bool:
        """Begins."""
        return True

    def answer(self, answer: object, *, cache: float = 0.0) -> bool:
        """Takes an answer."""
        self.fate.append(answer)
        return True

    def refuse(self) -> bool:
        """Refuses."""
        self.fate.append("refused")
        return True


class Deciding(Plugin):
    """Says yes for a minute, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    @hook.authenticate(cache=60.0)
    def login(self, _login: Login) -> Allow:
        """Decides."""
        self.calls += 1
        if self.error is not None:
            raise self.error
        return Allow()


def ask_all(plugin: Deciding, *questions: Asking, held: int = 0) -> BoundHook:
    chain = Chain([plugin])
    for _ in range(held):
        chain.logins[0].breaker.hold()
    worker = SyncHookWorker(cast("Any", Batches(list(questions))), 0, chain)
    worker._thread.join(20)
    assert not worker._thread.is_alive()
    return chain.logins[0]


def test_a_function_that_raises_is_logged_and_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    plugin, questions = Deciding(OSError("no disk")), [Asking(), Asking()]

    bound = ask_all(plugin, *questions)

    assert [one.fate for one in questions] == [["refused"], ["refused"]]
    assert (plugin.calls, bound.stats().failed) == (2, 2)
    first = caplog.records[0]
    assert first.getMessage() == f"plugin {bound.title}: client 'c': raised"
    assert first.exc_info is not None
    assert first.exc_info[1] is plugin.error


def test_a_function_is_not_asked_what_it_said_a_moment_ago() -> None:
    plugin, questions = Deciding(), [Asking(), Asking()]

    bound = ask_all(plugin, *questions)

    assert [one.fate for one in questions] == [[Allow()], [Allow()]]
    assert (plugin.calls, bound.stats().allowed) == (1, 1)


def test_a_function_that_holds_its_threads_is_not_asked() -> None:
    plugin, questions = Deciding(), [Asking(), Asking()]

    bound = ask_all(plugin, *questions, held=HELD_MAX)

    assert [one.fate for one in questions] == [["refused"], ["refused"]]
    assert (plugin.calls, bound.stats().shut_out) == (0, 2)


@dataclass
class Happened:
    """An event of a kind."""

    kind: str


class Telling:
    """Queues that tell these batches, and then the end."""

    def __init__(self, *batches: list[Happened], dropped: int = 0) -> None:
        self.batches = list(batches)
        self.dropped = dropped
        self.limits: set[tuple[int, float]] = set()
        self.numbers: set[int] = set()
        self.thread = threading.current_thread()

    def events(self, number: int, limit: int, wait_s: float) -> list[Happened] | None:
        """The next batch."""
        self.numbers.add(number)
        self.limits.add((limit, wait_s))
        self.thread = threading.current_thread()
        return self.batches.pop(0) if self.batches else None

    def take_dropped_events(self, number: int) -> int:
        """How many were not told."""
        self.numbers.add(number)
        dropped, self.dropped = self.dropped, 0
        return dropped


class Observer(Plugin):
    """Notes what it is told, and raises where that is asked for."""

    def __init__(self) -> None:
        super().__init__(Plugin.Config())
        self.told: list[list[str]] = []
        self.error: Exception | None = None

    @hook.events("connected", "disconnected", batch=2, every=0.5)
    def tell(self, events: Sequence[Event]) -> None:
        """Is told."""
        self.told.append([event.kind for event in events])
        if self.error is not None:
            raise self.error


def told_all(worker: EventWorker) -> None:
    """Waits for the end of what it tells."""
    worker._thread.join(20)
    worker.join()


def tell_all(observer: Observer, queues: Telling, *, held: int = 0) -> BoundHook:
    chain = Chain([observer])
    for _ in range(held):
        chain.events[0].breaker.hold()
    before = threads_of("mqttcore-events")

    def no_loop() -> Any:  # noqa: ANN401 -- never called
        raise AssertionError("no hook is a coroutine")

    told_all(EventWorker(cast("Any", queues), 7, chain.events, chain, new_loop=no_loop))
    assert threads_of("mqttcore-events") <= before
    return chain.events[0]


def test_events_are_told_by_their_kind_in_batches(caplog: pytest.LogCaptureFixture) -> None:
    observer = Observer()
    five = [Happened(kind) for kind in ("connected", "other", "disconnected", "connected")]
    queues = Telling(five, [Happened("other")], dropped=3)

    bound = tell_all(observer, queues)

    assert observer.told == [["connected", "disconnected"], ["connected"]]
    assert (queues.limits, queues.numbers) == ({(2, 0.5)}, {7})
    assert (queues.thread.name, queues.thread.daemon) == ("mqttcore-events", True)
    assert (bound.stats().calls, bound.stats().passed) == (2, 2)
    (record,) = caplog.records
    owner = bound.title.rpartition(".")[0]
    told = f"plugin {owner}: 3 events were dropped: its hooks are too slow"
    assert record.getMessage() == told


def test_a_hook_of_events_that_raises_is_logged_and_told_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Observer()
    observer.error = OSError("no disk")
    batches = [[Happened("connected")] for _ in range(2)]

    bound = tell_all(observer, Telling(*batches))

    first = caplog.records[0]
    assert first.getMessage() == f"plugin {bound.title}: client -: raised an exception for 1 events"
    assert first.exc_info is not None
    assert first.exc_info[1] is observer.error
    assert (bound.stats().failed, len(observer.told)) == (2, 2)


def test_a_hook_of_events_that_holds_its_threads_is_told_nothing() -> None:
    observer = Observer()

    bound = tell_all(observer, Telling([Happened("connected")]), held=HELD_MAX)

    assert not observer.told
    assert (bound.stats().shut_out, bound.stats().calls) == (1, 0)


def test_a_hook_of_events_that_raises_a_timeout_itself_holds_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Observer()
    observer.error = TimeoutError("no answer of the database")

    bound = tell_all(observer, Telling([Happened("connected")], [Happened("disconnected")]))

    assert observer.told == [["connected"], ["disconnected"]]
    assert bound.stats().timed_out == 2
    assert "blocks its thread" not in caplog.text
    assert bound.breaker.hold() == 1


def test_a_hook_of_events_whose_breaker_is_open_is_told_when_it_is_on_trial() -> None:
    observer, clock = Observer(), Clock()
    chain = Chain([observer])
    (bound,) = chain.events
    bound.breaker._clock = clock
    for _ in range(FAILURES):
        bound.breaker.fail()

    class Turning(Telling):
        def take_dropped_events(self, number: int) -> int:
            clock.now += OPEN_S / 2
            return super().take_dropped_events(number)

    queues = Turning(*([Happened("connected")] for _ in range(2)))
    told_all(EventWorker(cast("Any", queues), 0, chain.events, chain, new_loop=lambda: Loop()))

    assert observer.told == [["connected"]]
    assert (bound.stats().shut_out, bound.stats().passed) == (1, 1)


class Loop:
    """Runs coroutines of hooks of events where it is called."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.timeouts: list[float] = []
        self.retired: list[Callable[[], None]] = []

    def call(self, make: Callable[[], Coroutine[Any, Any, None]], *, timeout: float) -> None:
        """Runs one, or takes too long."""
        self.timeouts.append(timeout)
        if self.is_held:
            raise TimeoutError
        asyncio.run(make())

    def is_stuck(self) -> bool:
        """Whether the test says so."""
        return self.is_held

    def retire(self, at_end: Callable[[], None]) -> None:
        """Notes."""
        self.retired.append(at_end)


class AsyncObserver(Plugin):
    """Notes what its coroutine is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[list[str]] = []

    @hook.events("connected", every=0)
    async def tell_loop(self, events: Sequence[Event]) -> None:
        """Is told."""
        self.told.append([event.kind for event in events])


class BothObserver(AsyncObserver):
    """Has a `def` hook as well."""

    @hook.events("connected", "disconnected", every=0)
    def tell(self, events: Sequence[Event]) -> None:
        """Is told."""
        self.told.append([event.kind for event in events])


def test_each_hook_of_events_is_told_by_the_thread_of_its_kind() -> None:
    observer, loop = BothObserver(), Loop()
    chain = Chain([observer])
    queues = Telling([Happened("connected"), Happened("disconnected")])

    worker = EventWorker(cast("Any", queues), 0, chain.events, chain, new_loop=lambda: loop)
    told_all(worker)

    assert observer.told == [["connected"], ["connected", "disconnected"]]
    assert loop.timeouts == [chain.events[0].mark.timeout]
    assert [one.stats().passed for one in chain.events] == [1, 1]


def test_a_loop_of_events_that_is_held_is_replaced() -> None:
    observer = AsyncObserver()
    chain = Chain([observer])
    loops = [Loop(is_held=True), Loop()]
    left = list(loops)
    queues = Telling([Happened("connected")], [Happened("connected")])

    def new_loop() -> Loop:
        return left.pop(0)

    worker = EventWorker(cast("Any", queues), 0, chain.events, chain, new_loop=new_loop)
    told_all(worker)

    (bound,) = chain.events
    assert worker._calls is None, "no hook is a function"
    assert observer.told == [["connected"]]
    assert (bound.stats().timed_out, bound.stats().passed) == (1, 1)
    assert loops[0].retired == [bound.breaker.let_go]
    assert (left, loops[1].retired, bound.breaker.hold()) == ([], [], 2)


def test_threads_that_are_held_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttcore.plugin.workers.JOIN_S", 0.0)
    held, release = threading.Event(), threading.Event()

    class Holding(Telling):
        def events(self, _number: int, _limit: int, _wait_s: float) -> None:
            held.set()
            release.wait()

    chain = Chain([Observer()])
    worker = EventWorker(cast("Any", Holding()), 0, chain.events, chain, new_loop=lambda: Loop())
    calls = worker._calls
    assert calls is not None
    assert held.wait(20)
    with pytest.raises(TimeoutError):
        calls.call(lambda: cast("None", release.wait()), timeout=0.0)

    worker.join()

    assert worker._thread.is_alive()
    assert calls._thread.is_alive()
    release.set()
    calls._thread.join(20)
    worker._thread.join(20)
    assert not calls._thread.is_alive()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"publish": "a/#"}, "publish is a string, but must be a list: write ['a/#']"),
        ({"subscribe": "a/#"}, "subscribe is a string, but must be a list: write ['a/#']"),
        ({"deny": "a/#"}, "deny is a string, but must be a list: write ['a/#']"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at has no time zone"),
        ({"durability": "disk"}, "durability is 'disk': one of memory, os, fsync"),
        ({"queue_policy": "keep"}, "queue_policy is 'keep': one of drop, refuse"),
    ],
)
def test_a_grant_says_what_is_wrong_with_it(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Grant(**fields)
    assert str(caught.value) == why


@pytest.mark.parametrize("fields", [{"durability": "os"}, {"queue_policy": "refuse"}])
def test_a_grant_takes_the_values_that_it_knows(fields: dict[str, Any]) -> None:
    (name,) = fields
    assert getattr(Grant(**fields), name) == fields[name]


def test_limits_say_all_that_is_wrong_with_them() -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Limits(max_qos=3, messages_per_second=0)
    assert str(caught.value) == (
        "Limits: max_qos: 3 is out of range; allowed: 0 to 2; "
        "Limits: messages_per_second: 0 is out of range; allowed: 1 to 4_294_967_295"
    )
