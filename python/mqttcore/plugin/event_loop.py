"""The hook worker of `async def` hooks: coroutines on the event loop of their plugin."""

import asyncio
import contextlib
import contextvars
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence

from mqttcore._core import Ask, HookQueues, Login, Message, Question, Subscribe
from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock
from mqttcore.plugin.bound_hook import BoundHook
from mqttcore.plugin.chain import MESSAGES, Chain
from mqttcore.plugin.exchange import Exchange
from mqttcore.plugin.first_step import FirstSteps
from mqttcore.plugin.loop_thread import LoopThread

CONCURRENT = 64
CHALLENGED_MAX = 4_096
"""Maximum number of clients with an open challenge; others get "Server busy"."""
ABANDONED_CHECK_S = 0.25

Prepare = Callable[[], Coroutine[object, object, None]]


class AsyncHookWorker:
    """Runs the `async def` hooks of one plugin.

    The first step of a hook runs as soon as its question is taken, without a turn of the event loop
    in between: most hooks answer in it (ADR 0099).

    Args:
        thread: Its event loop.
        queues: The source of questions.
        numbers: Numbers of its queues; up to `CONCURRENT` questions of each run at a time.
        chain: Handles answers.
        prepare: Runs before the first question is taken.
    """

    def __init__(
        self,
        thread: LoopThread,
        queues: HookQueues,
        numbers: Sequence[int],
        chain: Chain,
        *,
        prepare: Prepare | None = None,
    ) -> None:
        self._thread = thread
        self._loop = thread.loop
        self._queues = queues
        self._running = dict.fromkeys(numbers, 0)
        """The running questions of each queue that occupy a place."""
        self._rest: deque[tuple[int, Question]] = deque()
        """Questions that were taken from their queues, with the numbers of these, and whose hooks
        have not begun."""
        self._first_steps = FirstSteps(thread.loop, contextvars.copy_context())
        self._chain = chain
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[asyncio.Task[None], Question] = {}
        self._challenged: dict[int, asyncio.Future[bytes]] = {}
        self._check: asyncio.TimerHandle | None = None
        """The next search for abandoned questions; None: no hook waits for anything."""
        self._prepare = prepare
        self._beginning: asyncio.Task[None] | None = None
        self._retired = False
        self._culprit: Question | None = None
        thread.post(self._begin)

    @property
    def is_alive(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive

    def is_stuck(self) -> bool:
        """Whether a hook holds the event loop."""
        return self._thread.is_stuck()

    def has(self, question: Question) -> bool:
        """Whether the hook of this question is running here."""
        return question.key in self._tasks

    def held_by(self) -> Question | None:
        """The question of the hook that blocks the event loop; None: something else blocks it."""
        task = asyncio.current_task(self._loop)
        return None if task is None else self._questions.get(task)

    def is_held_by(self, question: Question) -> bool:
        """Whether it was retired because of this question's hook."""
        return self._culprit is not None and self._culprit.is_same(question)

    def retire(self, culprit: Question | None, at_end: Callable[[], None]) -> None:
        """Accepts no more questions; ends the thread when all hooks have returned.

        The questions behind the culprit go back to their queues, for the worker that takes over.
        """
        self._culprit = culprit
        self._thread.at_end = at_end
        self._retired = True
        self._give_back()
        self._thread.post(self._leave)

    def _give_back(self) -> None:
        rest = []
        while (taken := self._next_taken()) is not None:
            rest.append(taken)
        for number, question in reversed(rest):
            self._queues.give_back(number, [question])

    def _begin(self) -> None:
        self._beginning = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        if self._prepare is not None:
            await self._prepare()
        for number in self._running:
            self._loop.add_reader(self._queues.wake_fd(number), self._drain, number)
        for number in self._running:
            self._loop.call_soon(self._drain, number)  # hooks do not begin inside of this task

    def _leave(self) -> None:
        for number in self._running:
            self._loop.remove_reader(self._queues.wake_fd(number))
        if not self._tasks:
            self._thread.finish()

    def _drain(self, number: int) -> None:
        if self._is_retired():
            return
        limit = max(0, CONCURRENT - self._running[number])
        questions = self._queues.take_async(number, limit)
        is_full = len(questions) == limit
        self._rest.extend((number, question) for question in questions)
        if self._is_retired():
            self._give_back()
            return
        while (taken := self._next_taken()) is not None:
            self._begin_hook(*taken)
        if is_full and self._running[number] < CONCURRENT:
            self._loop.call_soon(self._drain, number)  # hooks have returned, or took no place

    def _is_retired(self) -> bool:
        return self._retired  # another thread may set it at any time

    def _next_taken(self) -> tuple[int, Question] | None:
        try:
            return self._rest.popleft()
        except IndexError:  # `retire` takes them as well, on another thread
            return None

    def _begin_hook(self, number: int, question: Question) -> None:
        if question.rounds:
            self._resume(question)
            return
        task = self._first_steps.task(self._ask(question, number), name="hook")
        self._running[number] += 1
        self._tasks[question.key] = task
        self._questions[task] = question
        self._first_steps.run()
        if task.done():
            self._end(number, task)
            return
        task.add_done_callback(functools.partial(self._done, number))
        if self._check is None:
            self._check = self._loop.call_later(ABANDONED_CHECK_S, self._cancel_abandoned)

    def _resume(self, question: Question) -> None:
        """Passes a client's answer to the hook that waits for it, unless the hook was cancelled."""
        future = self._challenged.pop(question.key, None)
        hook = self._chain.next_hook(question)
        if future is None or future.done() or hook is None:
            question.refuse()
        elif question.start(hook.title, hook.mark.timeout):
            future.set_result(question.data)

    def _done(self, number: int, task: asyncio.Task[None]) -> None:
        self._end(number, task)
        if self._retired and not self._tasks:
            self._thread.finish()
        if self._running[number] >= CONCURRENT - 1:
            self._drain(number)  # questions may wait for this place; others wake the loop

    def _end(self, number: int, task: asyncio.Task[None]) -> None:
        self._running[number] -= 1
        key = self._questions.pop(task).key
        if self._tasks[key] is task:  # else the question was handed over, and is here again
            del self._tasks[key]

    def _cancel_abandoned(self) -> None:
        for task, question in self._questions.items():
            if question.is_over:
                task.cancel()
        self._check = None
        if self._questions:
            self._check = self._loop.call_later(ABANDONED_CHECK_S, self._cancel_abandoned)

    async def _ask(self, question: Question, number: int) -> None:
        while hook := self._chain.next_hook(question):
            if hook.worker != number:
                question.hand_over(hook.worker)
                return
            if question.point in MESSAGES:
                if await self._call_each(question, hook):
                    return
                continue
            if not question.start(hook.title, hook.mark.timeout):
                return
            if self._chain.recall(question, hook) or self._chain.shut_out(question, hook):
                return
            if await self._call(question, hook):
                return
        self._chain.exhaust(question)

    def _subject(
        self, question: Question, hook: BoundHook
    ) -> Login | Ask | Subscribe | Message | Exchange:
        """The argument of the hook."""
        subject = question.subject
        if question.method is None or not isinstance(subject, Login):
            return subject

        async def ask(data: bytes, text: str | None, username: str | None) -> bytes:
            if question.key in self._challenged:
                raise RuntimeError("the last challenge is not answered")
            if len(self._challenged) >= CHALLENGED_MAX:
                raise OverloadedError("too many clients have an open challenge")
            with hook.meter.rest(), self._give_up_place(hook.worker):
                return await self._challenge(question, data, text=text, username=username)

        return Exchange(
            subject,
            method=question.method,
            data=question.data,
            is_again=question.again,
            ask=ask,
        )

    async def _challenge(
        self, question: Question, data: bytes, *, text: str | None, username: str | None
    ) -> bytes:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._challenged[question.key] = future
        try:
            if not question.challenge(data, text=text, username=username):
                raise asyncio.CancelledError  # the client left, and `_cancel_abandoned` comes later
            return await future
        finally:
            if self._challenged.get(question.key) is future:
                del self._challenged[question.key]

    @contextlib.contextmanager
    def _give_up_place(self, number: int) -> Iterator[None]:
        """Gives up its place during a wait for the client, or for password hashing.

        Otherwise many guesses would occupy all places, and a login would wait behind them.
        """
        self._running[number] -= 1
        self._loop.call_soon(self._drain, number)
        try:
            yield
        finally:
            self._running[number] += 1

    async def _call(self, question: Question, hook: BoundHook) -> bool:
        # the watch refuses in time; `_cancel_abandoned` then ends the coroutine
        give_up_place = functools.partial(self._give_up_place, hook.worker)
        clock.current.set(clock.HookClock(question, hook.title, hook.mark.timeout, give_up_place))
        try:
            with hook.meter.call(waited=question.waited):
                answer = await hook.function(self._subject(question, hook))
        except asyncio.CancelledError:
            self._chain.abandon(question, hook)
            raise
        except BaseException as error:
            self._chain.fail(question, hook, "raised", error)
            return True
        return self._chain.settle(question, hook, answer)

    async def _call_each(self, question: Question, hook: BoundHook) -> bool:
        """Asks a publish hook about the messages of a turn. True: the question is over or waits."""
        with hook.meter.running(waited=question.waited) as turn:
            for index, message in self._chain.turn(question, hook):
                turn.calls += 1
                try:
                    answer = await hook.function(message)
                except asyncio.CancelledError:
                    self._chain.abandon(question, hook)
                    raise
                except BaseException as error:
                    self._chain.fail_message(question, hook, index, "raised", error)
                else:
                    self._chain.settle_message(question, hook, index, answer)
                await asyncio.sleep(0)  # logins run between messages of a hook that never waits
        return self._chain.end_turn(question, hook)
