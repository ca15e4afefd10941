"""`PluginWorkers`: the threads of one plugin and what replaces them, without a broker."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from mqttcore._core import HookQueues, Question
from mqttcore.errors import PluginError
from mqttcore.plugin import Plugin, hook, plugin_workers
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.loop_thread import LoopThread
from mqttcore.plugin.plugin_workers import PluginWorkers

HOOKS, EVENTS = "mqttcore-hooks-async", "mqttcore-events-async"
QUEUES = cast("HookQueues", object())

Make = Callable[[], Coroutine[object, object, None]]


class Loop:
    """Notes what an event loop is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[tuple[Make, float]] = []
        self.error: Exception | None = None
        self.stuck = False
        self.stops = 0

    def call(self, make: Make, *, timeout: float) -> None:
        """Calls nothing."""
        self.calls.append((make, timeout))
        if self.error is not None:
            raise self.error

    def is_stuck(self) -> bool:
        """Whether the test says so."""
        return self.stuck

    def stop(self) -> None:
        """Counts."""
        self.stops += 1


class Worker:
    """Notes how a worker is made, asked and retired."""

    def __init__(self, *args: object, **named: object) -> None:
        self.args = args
        self.named = named
        self.is_alive, self.stuck, self.joins = True, False, 0
        self.began: object = None
        self.culprit: Question | None = None
        self.judged: BoundHook | None = None
        self.retired: list[tuple[object, Callable[[], None]]] = []

    def has(self, question: Question) -> bool:
        """Whether it is the one that began."""
        return question is self.began

    def is_stuck(self) -> bool:
        """Whether the test says so."""
        return self.stuck

    def held_by(self) -> Question | None:
        """The one that the test names."""
        return self.culprit

    def is_held_by(self, question: Question) -> bool:
        """Whether it is the one that the test names."""
        return question is self.culprit

    def retire_if_held_by(self, question: Question, hook: BoundHook) -> bool:
        """As above."""
        self.judged = hook
        return question is self.culprit

    def retire(self, culprit: object, at_end: Callable[[], None]) -> None:
        """Notes."""
        self.retired.append((culprit, at_end))

    def join(self) -> None:
        """Counts."""
        self.joins += 1


class Made:
    """All loops and workers that are made."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.sync: list[Worker] = []
        self.asynchronous: list[Worker] = []
        self.events: list[Worker] = []

    def loop(self, name: str) -> Loop:
        """Another loop."""
        self.loops.append(Loop(name))
        return self.loops[-1]


def maker(made: list[Worker]) -> Callable[..., Worker]:
    def make(*args: object, **named: object) -> Worker:
        made.append(Worker(*args, **named))
        return made[-1]

    return make


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    all_made = Made()
    monkeypatch.setattr(plugin_workers, "loop_thread", all_made.loop)
    monkeypatch.setattr(plugin_workers, "SyncHookWorker", maker(all_made.sync))
    monkeypatch.setattr(plugin_workers, "async_worker", maker(all_made.asynchronous))
    monkeypatch.setattr(plugin_workers, "EventWorker", maker(all_made.events))
    return all_made


class Asked:
    """A question to the first hook of its point."""

    method, position = None, 0

    def __init__(self, point: str = "authenticate") -> None:
        self.point = point
        self.rules = (0,)

    def is_same(self, other: object) -> bool:
        """Whether it is this one."""
        return other is self


def asked(point: str = "authenticate") -> Question:
    return cast("Question", Asked(point))


class Deciding(Plugin):
    """Hooks of each kind."""

    async def start(self) -> None:
        """Is its own."""

    async def stop(self) -> None:
        """Is its own."""

    @hook.authenticate()
    async def login(self, _login: object) -> None:
        """Number 0."""

    @hook.authorize(action="publish", filter="#")
    async def may(self, _ask: object) -> None:
        """Number 0, too."""

    @hook.authorize(action="subscribe", filter="#")
    def may_too(self, _ask: object) -> None:
        """Number 1."""

    @hook.events("connected")
    async def tell(self, _events: object) -> None:
        """Is told."""


class Observing(Plugin):
    """Is only told, and starts."""

    async def start(self) -> None:
        """Is its own."""

    @hook.events("disconnected", "connected")
    async def tell(self, _events: object) -> None:
        """Is told."""


class Mixed(Observing):
    """Decides, but in no coroutine."""

    @hook.authenticate()
    def login(self, _login: object) -> None:
        """Number 0."""


def workers_of(kind: type[Plugin] = Deciding) -> tuple[PluginWorkers, Chain]:
    chain = Chain([kind()])
    return PluginWorkers(chain.of_plugins[0][0].plugin, chain.of_plugins[0], chain), chain


def serving() -> tuple[PluginWorkers, Chain]:
    workers, chain = workers_of()
    workers.serve(QUEUES, observer=3)
    return workers, chain


def is_let_go(bound: BoundHook, at_end: Callable[[], None]) -> bool:
    """Whether ``at_end`` says that a thread came back that this hook held."""
    before = bound.breaker._held
    at_end()
    return bound.breaker._held == before - 1


# --- start and stop


def test_each_kind_of_hook_gets_its_worker(made: Made) -> None:
    workers, chain = serving()

    (sync,), (asynchronous,), (events,) = made.sync, made.asynchronous, made.events
    (home,) = made.loops
    assert home.name == HOOKS
    assert sync.args == (QUEUES, 1, chain)
    assert (asynchronous.args, asynchronous.named) == ((home, QUEUES, [0], chain), {})
    assert events.args == (QUEUES, 3, chain.events, chain)
    assert events.named == {"new_loop": workers._new_loop_of_events}
    assert workers.hooks is chain.of_plugins[0]


def test_a_plugin_without_hooks_of_a_kind_gets_no_such_worker(made: Made) -> None:
    workers, _ = workers_of(Observing)
    assert workers.kinds == ["connected", "disconnected"]

    workers.serve(QUEUES, observer=None)
    workers.stop()

    assert (made.sync, made.asynchronous, made.events, made.loops) == ([], [], [], [])


def test_start_and_stop_run_at_home_and_end_with_it(made: Made) -> None:
    workers, _ = workers_of()
    workers.start()
    workers.serve(QUEUES, observer=0)
    workers._new_loop_of_events()

    workers.stop()

    home, told = made.loops
    assert (home.name, told.name) == (HOOKS, EVENTS)
    assert home.calls == [(workers.plugin.start, 30.0), (workers.plugin.stop, 5.0)]
    assert (home.stops, told.stops, told.calls) == (1, 1, [])
    assert (made.sync[0].joins, made.events[0].joins) == (1, 1)


@pytest.mark.parametrize(
    ("error", "why"), [(OSError("no disk"), "no disk"), (TimeoutError(), "TimeoutError")]
)
def test_a_start_that_fails_says_why(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    workers, _ = workers_of()
    home = Loop(HOOKS)
    home.error = error
    monkeypatch.setattr(plugin_workers, "loop_thread", lambda _: home)

    with pytest.raises(PluginError) as caught:
        workers.start()

    assert str(caught.value) == f"plugin {workers.plugin.name} did not start: {why}"
    assert home.stops == 1
    assert made.loops == []


def test_a_stop_on_a_loop_that_is_held_is_left_out(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    workers, _ = serving()
    made.loops[0].stuck = True

    workers.stop()

    (record,) = caplog.records
    assert record.getMessage() == f"plugin {workers.plugin.name} did not stop cleanly"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "a hook blocks its event loop"
    assert (made.loops[0].calls, made.loops[0].stops) == ([], 1)


# --- whose fault it is


def test_a_thread_that_the_hook_holds_is_replaced(made: Made) -> None:
    workers, chain = serving()
    may_too, question = chain.of("authorize")[1], asked("authorize")
    assert workers.is_fault(question, may_too)
    assert len(made.sync) == 1

    made.sync[0].culprit = question
    assert workers.is_fault(question, may_too)

    assert [one.args for one in made.sync] == [(QUEUES, 1, chain)] * 2
    assert made.sync[0].judged is may_too
    assert may_too.breaker.hold() == 2


def test_a_hook_without_a_worker_is_at_fault(made: Made) -> None:
    workers, chain = workers_of()

    assert all(workers.is_fault(asked(), one) for one in [*chain.logins, *chain.of("authorize")])
    assert made.loops == []


def test_a_hook_on_a_loop_that_turns_is_at_fault(made: Made) -> None:
    workers, chain = serving()

    assert workers.is_fault(asked(), chain.logins[0])

    assert made.asynchronous[0].retired == []
    assert len(made.loops) == 1


def test_a_loop_that_a_hook_holds_is_replaced_at_the_cost_of_that_hook(made: Made) -> None:
    workers, chain = serving()
    login, may = chain.logins[0], chain.of("authorize")[0]
    culprit, other = asked(), asked("authorize")
    first = made.asynchronous[0]
    first.stuck, first.culprit, first.began = True, culprit, culprit

    assert not workers.is_fault(other, may)

    ((retired_for, at_end),) = first.retired
    assert retired_for is culprit
    assert login.breaker._held == 1
    assert is_let_go(login, at_end)
    assert [loop.name for loop in made.loops] == [HOOKS, HOOKS]
    second = made.asynchronous[1]
    assert second.args == (made.loops[1], QUEUES, [0], chain)
    assert second.named == {"prepare": workers._start_again}
    assert workers._home is cast("Any", made.loops[1])
    # what began on the first loop is judged by that one
    assert workers.is_fault(culprit, login)
    first.culprit = None
    assert not workers.is_fault(culprit, login)
    assert second.retired == []


def test_the_hook_that_holds_its_own_loop_is_at_fault(made: Made) -> None:
    workers, chain = serving()
    question = asked()
    made.asynchronous[0].stuck, made.asynchronous[0].culprit = True, question

    assert workers.is_fault(question, chain.logins[0])
    assert chain.logins[0].breaker._held == 1


def test_a_loop_that_no_question_holds_costs_the_hook_that_waits_for_it(made: Made) -> None:
    workers, chain = serving()
    may = chain.of("authorize")[0]
    made.asynchronous[0].stuck = True

    assert not workers.is_fault(asked("authorize"), may)

    ((retired_for, at_end),) = made.asynchronous[0].retired
    assert retired_for is None
    assert is_let_go(may, at_end)


def test_a_hook_that_holds_its_share_of_threads_gets_no_other_loop(made: Made) -> None:
    workers, chain = serving()
    question = asked()
    for _ in range(4):
        made.asynchronous[-1].stuck, made.asynchronous[-1].culprit = True, question
        assert workers.is_fault(question, chain.logins[0])
    assert len(made.asynchronous) == 5
    made.asynchronous[-1].stuck, made.asynchronous[-1].culprit = True, question

    assert workers.is_fault(question, chain.logins[0])

    assert len(made.asynchronous) == 5
    assert made.asynchronous[-1].retired == []


def test_workers_whose_threads_have_ended_are_forgotten(made: Made) -> None:
    workers, chain = serving()
    login = chain.logins[0]
    for ended in (True, False):
        made.asynchronous[-1].stuck = True
        workers.is_fault(asked(), login)
        made.asynchronous[-2].is_alive = not ended

    assert workers._held == cast("Any", [made.asynchronous[1]])


# --- loops of events


def test_the_loop_of_events_of_a_plugin_that_decides_is_another_one_each_time(made: Made) -> None:
    workers, _ = serving()

    first, second = workers._new_loop_of_events(), workers._new_loop_of_events()

    assert [loop.name for loop in made.loops] == [HOOKS, EVENTS, EVENTS]
    assert [first, second] == cast("Any", made.loops[1:])
    workers.end()
    assert [loop.stops for loop in made.loops] == [1, 0, 1]


def test_functions_that_decide_need_no_loop_beside_that_of_events(made: Made) -> None:
    workers, _ = workers_of(Mixed)

    assert workers._new_loop_of_events() is workers._at_home()
    assert [loop.name for loop in made.loops] == [HOOKS]


@pytest.mark.parametrize("error", [None, TimeoutError()])
def test_an_observer_starts_again_on_the_loop_that_takes_over(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    workers, _ = workers_of(Observing)
    assert workers._new_loop_of_events() is workers._at_home()
    (first,) = made.loops
    assert (first.name, first.calls) == (HOOKS, [])
    other = Loop("other")
    other.error = error
    names: list[str] = []

    def another(name: str) -> Loop:
        names.append(name)
        return other

    monkeypatch.setattr(plugin_workers, "loop_thread", another)
    assert workers._new_loop_of_events() is cast("Any", other)

    assert names == [HOOKS]
    assert other.calls == [(workers._start_again, 30.0)]
    assert workers._at_home() is cast("Any", other)
    workers.end()
    assert other.stops == 1


def test_a_plugin_that_does_not_start_again_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workers, _ = workers_of()
    starts: list[str] = []
    error = OSError("no disk")

    async def start() -> None:
        starts.append("again")
        raise error

    monkeypatch.setattr(workers.plugin, "start", start)
    asyncio.run(workers._start_again())

    (record,) = caplog.records
    assert record.getMessage() == (
        f"plugin {workers.plugin.name} did not start on its new event loop"
    )
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert starts == ["again"]


# --- what is imported late


def test_a_loop_thread_has_the_name_that_it_gets() -> None:
    loop = plugin_workers.loop_thread("test-named")
    try:
        assert isinstance(loop, LoopThread)
        assert "test-named" in {one.name for one in threading.enumerate()}
    finally:
        loop.stop()


def test_an_asynchronous_worker_gets_what_prepares_it() -> None:
    posted: list[object] = []

    class Posting:
        loop = None
        post = posted.append

    async def prepare() -> None:
        """Is only handed on."""

    thread, chain = cast("LoopThread", Posting), Chain([])
    worker = plugin_workers.async_worker(thread, QUEUES, [7], chain, prepare=prepare)

    assert (worker._thread, worker._queues, list(worker._running)) == (thread, QUEUES, [7])
    assert (worker._chain, worker._prepare) == (chain, prepare)
    assert posted == [worker._begin]
