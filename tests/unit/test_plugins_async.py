"""The worker of `async def` hooks and the questions that it asks, without a broker."""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from mqttcore._core import Login
from mqttcore.plugin import Allow, Deny, Exchange, Plugin, clock, hook
from mqttcore.plugin.breaker import HELD_MAX
from mqttcore.plugin.chain import Chain
from mqttcore.plugin.event_loop import AsyncHookWorker, Prepare
from mqttcore.plugin.loop_thread import LoopThread

Act = Callable[[Any], Awaitable[Any]]


class Asked:
    """A question that notes what becomes of it."""

    client = Login(client_id="c")
    again, waited, age, is_trial = True, 0.0, 0.0, False

    def __init__(self, key: int, *, method: str | None = None, is_there: bool = True) -> None:
        self.key = key
        self.point = "authenticate" if method is None else "enhanced_auth"
        self.subject = Login(client_id="c", username="u", password=b"p")
        self.method = method
        self.data = b"first"
        self.position = self.rounds = 0
        self.is_there = is_there
        self.is_over = False
        self.fate: list[object] = []
        self.starts: list[tuple[str, float]] = []
        self.challenges: list[tuple[bytes, str | None]] = []
        self.ended, self.challenged = threading.Event(), threading.Event()

    def start(self, title: str, timeout: float) -> bool:
        """Begins."""
        self.starts.append((title.rpartition(".")[2], timeout))
        return True

    def _end(self, fate: object) -> bool:
        self.fate.append(fate)
        self.ended.set()
        return True

    def answer(self, answer: object, *, cache: float = 0.0) -> bool:
        """Takes an answer."""
        return self._end(answer)

    def refuse(self) -> bool:
        """Refuses."""
        return self._end("refused")

    def challenge(
        self, data: bytes, *, text: str | None = None, username: str | None = None
    ) -> bool:
        """Asks the client, if it is there."""
        assert username is None
        self.challenges.append((data, text))
        self.challenged.set()
        return self.is_there


class Queues:
    """The queue of one worker."""

    def __init__(self) -> None:
        self.waiting: list[Asked] = []
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.limits: list[int] = []
        self.given_back: list[Asked] = []
        self.full = threading.Event()

    def ask(self, *questions: Asked) -> None:
        """Has the worker take them, as far as it has room."""
        self.waiting.extend(questions)
        os.write(self.write, b"!")

    def wake_fd(self, number: int) -> int:
        """Readable when there is a question."""
        assert number == 0
        return self.read

    def take_async(self, number: int, limit: int) -> list[Asked]:
        """Queued questions, at most ``limit``."""
        assert number == 0
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 64)
        self.limits.append(limit)
        taken, self.waiting[:limit] = self.waiting[:limit], []
        if self.waiting and limit == 0:
            self.full.set()
        return taken

    def give_back(self, number: int, questions: list[Asked]) -> None:
        """Puts questions to the front of the queue."""
        assert number == 0
        self.given_back[:0] = questions


class Acting(Plugin):
    """Does what the test says."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self.act = act
        self.calls = 0

    @hook.authenticate(timeout=4.0)
    async def login(self, login: Login) -> Allow | None:
        """Acts."""
        self.calls += 1
        return cast("Allow | None", await self.act(login))

    @hook.enhanced_auth("M", timeout=7.0)
    async def talk(self, exchange: Exchange) -> Allow | Deny:
        """Acts."""
        self.calls += 1
        return cast("Allow | Deny", await self.act(exchange))


class Remembering(Acting):
    """Says the same for a minute."""

    @hook.authenticate(cache=60.0)
    async def login(self, login: Login) -> Allow | None:
        """Acts."""
        return await super().login(login)


class Bench:
    """A worker with its loop, its queue and its plugin."""

    def __init__(
        self, act: Act, kind: type[Acting] = Acting, *, prepare: Prepare | None = None
    ) -> None:
        self.plugin = kind(act)
        self.chain = Chain([self.plugin])
        self.queues = Queues()
        self.thread = LoopThread("test-worker")
        self.worker = AsyncHookWorker(
            self.thread, cast("Any", self.queues), [0], self.chain, prepare=prepare
        )

    def settle(self) -> None:
        """Waits until no hook runs."""

        async def settled() -> None:
            while self.worker._tasks:
                await asyncio.wait(self.worker._tasks.values())

        self.thread.call(settled, timeout=20.0)

    def set(self, event: asyncio.Event) -> None:
        """On the loop."""
        self.thread.post(event.set)

    def close(self) -> None:
        """Ends the thread."""
        self.thread.stop()
        self.thread._thread.join(20)
        os.close(self.queues.read)
        os.close(self.queues.write)


Make = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[Make]:
    made: list[Bench] = []

    def make(*args: Any, **named: Any) -> Bench:  # noqa: ANN401 -- those of `Bench`
        made.append(Bench(*args, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()


YES = Allow()


async def allow(_subject: object) -> Allow:
    return YES


async def nothing() -> None:
    """Comes behind what the loop has to do."""


def test_a_hook_is_asked_with_its_question_and_its_clock(bench: Make) -> None:
    clocks: list[object] = []

    async def act(subject: object) -> Allow:
        clocks.extend([clock.current.get(), subject])
        return YES

    made, question = bench(act), Asked(1)
    made.queues.ask(question)

    assert question.ended.wait(20)
    made.settle()
    bound = made.chain.logins[0]
    assert clocks == [clock.HookClock(cast("Any", question), bound.title, 4.0), question.subject]
    assert question.fate == [YES]
    assert question.starts == [("login", 4.0)]
    assert (bound.stats().allowed, made.plugin.calls) == (1, 1)


def test_what_prepares_a_worker_runs_before_the_first_question(bench: Make) -> None:
    order: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(0)
        order.append("prepared")

    async def act(_subject: object) -> Allow:
        order.append("asked")
        return YES

    made, question = bench(act, prepare=prepare), Asked(1)
    made.queues.ask(question)

    assert question.ended.wait(20)
    assert order == ["prepared", "asked"]


def test_a_hook_that_raises_is_logged_and_asked_once(
    bench: Make, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError("no disk")

    async def act(_subject: object) -> Allow:
        raise error

    made, question = bench(act), Asked(1)
    made.queues.ask(question)
    assert question.ended.wait(20)
    made.settle()

    bound = made.chain.logins[0]
    (record,) = caplog.records
    assert record.getMessage() == f"plugin {bound.title}: client 'c': raised"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert (question.fate, made.plugin.calls, bound.stats().failed) == (["refused"], 1, 1)


def test_questions_of_clients_that_left_are_given_up_again_and_again(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.event_loop.ABANDONED_CHECK_S", 0.0)
    began = threading.Semaphore(0)

    async def act(_subject: object) -> None:
        began.release()
        await asyncio.Event().wait()

    made = bench(act)
    releases: list[str] = []
    monkeypatch.setattr(
        made.chain.logins[0].breaker, "release", lambda: releases.append("released")
    )
    stays = Asked(0)
    made.queues.ask(stays)
    assert began.acquire(timeout=20)
    for key in (1, 2):
        question = Asked(key)
        made.queues.ask(question)
        assert began.acquire(timeout=20)
        question.is_over = True
        assert question.ended.wait(20)
        assert question.fate == ["refused"]
    assert stays.fate == []
    stays.is_over = True
    made.settle()

    assert releases == ["released"] * 3
    assert made.chain.logins[0].stats().failed == 0


def test_no_more_questions_are_taken_than_there_is_room_for(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.plugin.event_loop.CONCURRENT", 1)
    go, began = asyncio.Event(), threading.Event()

    async def act(_subject: object) -> Allow:
        began.set()
        await go.wait()
        return YES

    made, first, second = bench(act), Asked(1), Asked(2)
    made.queues.ask(first)
    assert began.wait(20)
    made.queues.ask(second)
    assert made.queues.full.wait(20)
    assert (set(made.queues.limits), made.plugin.calls) == ({0, 1}, 1)
    made.set(go)

    assert second.ended.wait(20)
    assert (first.fate, second.fate) == ([YES], [YES])
    assert set(made.queues.limits) == {0, 1}


def test_a_worker_that_is_retired_ends_when_its_last_question_is_answered(bench: Make) -> None:
    first_go, second_go = asyncio.Event(), asyncio.Event()
    went = iter((first_go, second_go))
    began, ended = threading.Semaphore(0), threading.Event()

    async def act(_subject: object) -> Allow:
        go = next(went)
        began.release()
        await go.wait()
        return YES

    made, first, second, late = bench(act), Asked(1), Asked(2), Asked(3)
    made.queues.ask(first, second)
    assert all(began.acquire(timeout=20) for _ in range(2))
    assert made.worker.has(cast("Any", first))
    assert not made.worker.has(cast("Any", late))

    made.worker.retire(None, ended.set)
    made.queues.ask(late)
    made.set(first_go)
    assert first.ended.wait(20)
    made.thread.call(nothing, timeout=20.0)
    assert not ended.is_set()
    made.set(second_go)

    assert ended.wait(20)
    assert (second.fate, late.fate) == ([YES], [])
    assert not made.worker.is_held_by(cast("Any", first))


def test_the_question_that_holds_the_loop_is_known(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, release = threading.Event(), threading.Event()

    async def act(_subject: object) -> Allow:
        held.set()
        release.wait()
        return YES

    made, question = bench(act), Asked(1)
    made.queues.ask(question)
    assert held.wait(20)
    monkeypatch.setattr("mqttcore.plugin.loop_thread.PULSE_S", 0.01)

    assert made.worker.is_stuck()
    assert made.worker.held_by() is cast("Any", question)
    release.set()
    assert question.ended.wait(20)


def test_questions_behind_the_one_that_holds_the_loop_go_back_for_the_next_worker(
    bench: Make,
) -> None:
    held, release, ended = threading.Event(), threading.Event(), threading.Event()

    async def act(_subject: object) -> Allow:
        held.set()
        release.wait()
        return YES

    made, questions = bench(act), [Asked(key) for key in range(4)]
    made.queues.ask(*questions)
    assert held.wait(20)

    made.worker.retire(cast("Any", questions[0]), ended.set)

    assert made.queues.given_back == questions[1:]
    assert made.worker.held_by() is cast("Any", questions[0])
    release.set()
    assert ended.wait(20)
    assert [question.fate for question in questions] == [[YES], [], [], []]
    assert made.plugin.calls == 1


def test_questions_that_are_taken_while_the_worker_is_retired_go_back(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, late, ended = bench(allow), Asked(1), threading.Event()
    take = made.queues.take_async

    def taken_then_retired(number: int, limit: int) -> list[Asked]:
        taken = take(number, limit)
        if taken:
            made.worker.retire(None, ended.set)
        return taken

    monkeypatch.setattr(made.queues, "take_async", taken_then_retired)
    made.queues.ask(late)

    assert ended.wait(20)
    assert made.queues.given_back == [late]
    assert (late.fate, made.plugin.calls) == ([], 0)


def test_a_hook_does_not_see_what_another_one_has_set(bench: Make) -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="unset")
    seen: list[str] = []

    async def act(subject: object) -> Allow:
        seen.append(mine.get())
        mine.set("set")
        if isinstance(subject, Exchange):
            await subject.challenge(b"who")  # gives up its place, and others are asked meanwhile
            seen.append(mine.get())
        return YES

    made, first, others = bench(act), Asked(0, method="M"), [Asked(key) for key in (1, 2)]
    made.queues.waiting.extend([first, *others])
    made.queues.ask()
    assert all(question.ended.wait(20) for question in others)
    first.rounds = 1
    made.queues.ask(first)

    assert first.ended.wait(20)
    assert seen == ["unset", "unset", "unset", "set"]


def test_abandoned_questions_are_looked_for_only_while_hooks_wait(bench: Make) -> None:
    go, began = asyncio.Event(), threading.Event()

    async def act(subject: object) -> Allow:
        if isinstance(subject, Exchange):
            began.set()
            await go.wait()
        return YES

    made, quick, slow = bench(act), Asked(1), Asked(2, method="M")

    def is_looking() -> bool:
        made.thread.call(nothing, timeout=20.0)
        return made.worker._check is not None

    made.queues.ask(quick)
    assert quick.ended.wait(20)
    assert not is_looking()

    made.queues.ask(slow)
    assert began.wait(20)
    assert is_looking()
    made.set(go)
    assert slow.ended.wait(20)
    made.settle()
    made.thread.post(made.worker._cancel_abandoned)
    assert not is_looking()


def test_an_answer_that_comes_too_late_does_not_keep_others_from_being_asked(bench: Make) -> None:
    made, late, question = bench(allow), Asked(1, method="M"), Asked(2)
    late.rounds = 1
    made.queues.ask(late, question)

    assert question.ended.wait(20)
    assert (late.fate, question.fate) == (["refused"], [YES])


def test_an_answer_to_a_hook_that_was_cancelled_is_refused(bench: Make) -> None:
    made, late = bench(allow), Asked(1, method="M")

    async def resume() -> None:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.cancel()
        made.worker._challenged[1] = future
        made.worker._resume(cast("Any", late))

    made.thread.call(resume, timeout=20.0)

    assert (late.fate, late.starts) == (["refused"], [])


# --- what is not asked


def test_a_hook_is_not_asked_what_it_said_a_moment_ago(bench: Make) -> None:
    made = bench(allow, Remembering)

    for key in (1, 2):
        question = Asked(key)
        made.queues.ask(question)
        assert question.ended.wait(20)
        assert question.fate == [YES]

    assert made.plugin.calls == 1


def test_only_a_yes_is_remembered(bench: Make) -> None:
    async def deny(_subject: object) -> Deny:
        return Deny()

    made = bench(deny, Remembering)

    for key in (1, 2):
        question = Asked(key)
        made.queues.ask(question)
        assert question.ended.wait(20)
        assert question.fate == [Deny()]

    made.settle()
    assert (made.plugin.calls, made.chain.logins[0].stats().denied) == (2, 2)


def test_a_hook_that_holds_its_threads_is_not_asked(bench: Make) -> None:
    made, question = bench(allow), Asked(1)
    for _ in range(HELD_MAX):
        made.chain.logins[0].breaker.hold()

    made.queues.ask(question)

    assert question.ended.wait(20)
    made.settle()
    assert (question.fate, made.plugin.calls) == (["refused"], 0)


# --- challenges


def test_a_client_is_challenged_and_answers(bench: Make) -> None:
    seen: list[object] = []

    async def act(exchange: Exchange) -> Allow:
        seen.extend([exchange.login, exchange.method, exchange.data, exchange.is_again])
        return Allow(data=await exchange.challenge(b"who", text="says a person"))

    made, question = bench(act), Asked(1, method="M")
    made.queues.ask(question)
    assert question.challenged.wait(20)
    question.rounds, question.data = 1, b"me"
    made.queues.ask(question)

    assert question.ended.wait(20)
    made.settle()
    assert seen == [question.subject, "M", b"first", True]
    assert question.challenges == [(b"who", "says a person")]
    assert question.fate == [Allow(data=b"me")]
    assert question.starts == [("talk", 7.0)] * 2
    assert made.worker._challenged == {}


def test_a_client_that_thinks_takes_no_place(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttcore.plugin.event_loop.CONCURRENT", 1)
    go, began = asyncio.Event(), threading.Event()

    async def act(subject: object) -> Allow:
        if isinstance(subject, Exchange):
            began.set()
            await go.wait()
            await subject.challenge(b"who")
        return YES

    made, first, second = bench(act), Asked(1, method="M"), Asked(2)
    made.queues.ask(first)
    assert began.wait(20)
    made.queues.ask(second)
    assert made.queues.full.wait(20)
    made.set(go)

    assert second.ended.wait(20)
    assert (second.fate, first.fate) == ([YES], [])
    assert set(made.queues.limits) == {0, 1}


def test_a_client_that_left_is_not_waited_for(bench: Make) -> None:
    async def act(exchange: Exchange) -> Allow:
        return Allow(data=await exchange.challenge(b"who"))

    made, question = bench(act), Asked(1, method="M", is_there=False)
    made.queues.ask(question)

    assert question.ended.wait(20)
    made.settle()
    assert question.fate == ["refused"]
    assert made.worker._challenged == {}


def test_a_client_gets_one_challenge_at_a_time(bench: Make) -> None:
    why: list[str] = []

    async def act(exchange: Exchange) -> Deny:
        first = asyncio.ensure_future(exchange.challenge(b"1"))
        await asyncio.sleep(0)
        try:
            await exchange.challenge(b"2")
        except RuntimeError as error:
            why.append(str(error))
        first.cancel()
        return Deny()

    made, question = bench(act), Asked(1, method="M")
    made.queues.ask(question)

    assert question.ended.wait(20)
    assert why == ["the last challenge is not answered"]
    assert [data for data, _ in question.challenges] == [b"1"]


def test_clients_with_an_open_challenge_are_bounded(
    bench: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mqttcore.plugin.event_loop.CHALLENGED_MAX", 1)

    async def act(exchange: Exchange) -> Allow:
        return Allow(data=await exchange.challenge(b"who"))

    made, first, second = bench(act), Asked(1, method="M"), Asked(2, method="M")
    made.queues.ask(first)
    assert first.challenged.wait(20)
    made.queues.ask(second)

    assert second.ended.wait(20)
    assert second.fate == [Deny("server_busy")]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "too many clients have an open challenge"
