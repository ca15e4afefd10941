"""The order of hooks: selects the next hook for a question and handles its answer."""

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from mqttcore._core import Client, Login, Message, Question
from mqttcore.errors import OverloadedError, PluginError
from mqttcore.plugin.answers import Allow, Deny, Redirect, Replace
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.bound_hook import TIMED, BoundHook, bind
from mqttcore.plugin.breaker import FAILURES, HELD_MAX, OPEN_S, WINDOW_S
from mqttcore.plugin.limited_log import LimitedLog
from mqttcore.plugin.marks import Point
from mqttcore.plugin.packet_hooks import MessageAnswer
from mqttcore.plugin.stats import HookStats, Result

if TYPE_CHECKING:
    from mqttcore.plugin.login_cache import LoginCache

log = logging.getLogger("mqttcore.plugins")

ASKED: Sequence[Point] = (
    "authenticate",
    "grant",
    "enhanced_auth",
    "connect",
    "authorize",
    "subscribe",
    "publish",
    "deliver",
    "will",
    "control",
)
"""Hook points of questions."""
RULED = {"authorize", "control"}
"""Hook points whose questions name their hooks."""
MESSAGES = {"publish", "deliver", "will"}
"""Hook points that are asked about one message after another."""
CHANGED = {"connect", "subscribe"}
"""Hook points whose answers change the question for the next hook."""
TURN_S = 0.05
"""Seconds for the messages of one client before those of the next client."""


class FailureLog:
    """Failures of hooks, one line a second for each hook."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = LimitedLog(log, clock)

    def warn(self, hook: str, client: str, what: str, error: BaseException | None = None) -> None:
        """Logs the hook, the client and the event."""
        self._log.warn(hook, "plugin %s: client %s: %s", hook, client, what, error=error)


class Chain:
    """The hooks of all plugins in their order.

    Raises:
        PluginError: two of them offer the same method of enhanced authentication, or answer
            requests on the same topic.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.of_plugins = bind(plugins)
        hooks = [hook for owned in self.of_plugins for hook in owned]
        self._of_points: dict[Point, list[BoundHook]] = {point: [] for point in get_args(Point)}
        for hook in hooks:
            self._of_points[hook.mark.point].append(hook)
        self.logins = self._of_points["authenticate"]
        self.events = self._of_points["events"]
        self.timed = [hook for hook in hooks if hook.mark.point in TIMED]
        self.exchanges = by_method(self._of_points["enhanced_auth"])
        check_topics(self._of_points["control"])
        if len({hook.plugin for hook in [*self.logins, *self.exchanges.values()]}) > 1:
            grants = self._of_points["grant"]
            self._of_points["grant"] = [hook for hook in grants if not hook.mark.is_alone]
        asked = [hook for point in ASKED for hook in self._of_points[point]]
        self._asked = {hook.title: hook for hook in asked}
        self.failures = FailureLog()
        has_cache = any(hook.mark.cache for hook in self.logins)
        self._cache = login_cache() if has_cache else None

    def of(self, point: Point) -> Sequence[BoundHook]:
        """The hooks of one point, in their order."""
        return self._of_points[point]

    @property
    def workers(self) -> list[bool]:
        """Whether the hooks of each worker are `async def`, by the number of the worker."""
        kinds = {hook.worker: hook.mark.is_async for hook in self._asked.values()}
        return [kinds[worker] for worker in sorted(kinds)]

    def leave_out(self, observer: Plugin) -> None:
        """Sends a plugin no events; a plugin that is asked questions cannot be left out."""
        self.events = [hook for hook in self.events if hook.plugin is not observer]
        self.timed = [hook for hook in self.timed if hook.plugin is not observer]

    @property
    def is_deciding(self) -> bool:
        """Whether clients wait for any hook, apart from exchanges."""
        asked = [hook for hook in self._asked.values() if hook.mark.point != "enhanced_auth"]
        return any(hook.meter.is_running for hook in asked)

    def stats(self) -> list[HookStats]:
        """Results of the calls of each hook."""
        return [hook.stats() for hook in [*self._asked.values(), *self.events, *self.timed]]

    def next_hook(self, question: Question) -> BoundHook | None:
        """The hook to ask next; None when all have passed."""
        point, position = question.point, question.position
        hooks: Sequence[BoundHook] = self._of_points[point]
        if question.method is not None:
            hooks = [self.exchanges[question.method]]
        elif point in RULED:
            hooks = [hooks[rule] for rule in question.rules]
        return hooks[position] if position < len(hooks) else None

    def recall(self, question: Question, hook: BoundHook) -> bool:
        """Answers with a cached answer of the hook; False: the hook has to be asked."""
        if self._cache is None or not hook.mark.cache or not isinstance(question.subject, Login):
            return False
        answer = self._cache.recall(hook.title, question.subject)
        if answer is None:
            return False
        hook.meter.recall()
        question.answer(answer)  # not remembered again: its time began when the hook said it
        return True

    def forget(self) -> None:
        """Clears cached answers: rights were invalidated."""
        if self._cache is not None:
            self._cache.forget()

    def shut_out(self, question: Question, hook: BoundHook) -> bool:
        """Refuses without a call while the hook keeps failing; False: it is called now."""
        if hook.breaker.admit(timeout=hook.mark.timeout):
            return False
        if question.refuse():
            hook.meter.count("shut_out")
        return True

    def settle(self, question: Question, hook: BoundHook, answer: object) -> bool:
        """Passes on an answer. False: the hook passed, and the next one is asked."""
        if answer is None and question.point not in {"enhanced_auth", "control"}:
            self._count(hook, "passed", is_in_time=question.advance())
            return False
        if question.point in CHANGED:
            return self._settle_change(question, hook, answer)
        try:
            is_in_time = question.answer(answer, cache=hook.mark.cache)
        except (TypeError, ValueError, AttributeError) as error:
            self.fail(question, hook, f"answered with {type(answer).__name__}: {error}")
        else:
            self._remember(question, hook, answer)
            result: Result = "allowed" if is_yes(answer) else "denied"
            self._count(hook, result, is_in_time=is_in_time)
        return True

    def _settle_change(self, question: Question, hook: BoundHook, answer: object) -> bool:
        """Handles an answer about a CONNECT or a SUBSCRIBE for the next hook, like `settle`."""
        is_in_time = not question.is_over
        try:
            is_over = question.apply(answer)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            self.fail(question, hook, f"answered with {type(answer).__name__}: {error}")
            return True
        result: Result = "denied" if isinstance(answer, Deny | Redirect) else "allowed"
        self._count(hook, result, is_in_time=is_in_time)
        return is_over or not question.advance()

    def call_turn(self, question: Question, hook: BoundHook) -> int:
        """Calls a `def` hook about the messages of one turn; returns the number of calls."""
        if not self._begin_turn(question, hook):
            return 0
        fail = functools.partial(self.fail_message, question, hook)
        counters = hook.meter.counters
        calls, is_in_time, is_late = question.call_each(hook.function, counters, fail, turn=TURN_S)
        if is_in_time:
            self._note_success(hook)
        if is_late:
            hook.breaker.release()
        return calls

    def turn(self, question: Question, hook: BoundHook) -> Iterator[tuple[int, Message]]:
        """The messages that an `async def` hook is asked about in one turn, with their positions.

        When the time of the question is up, they are refused.
        """
        if not self._begin_turn(question, hook):
            return
        end = time.monotonic() + TURN_S
        for index, message in question.messages(question.position):
            if question.restart():
                hook.meter.begin()
                yield index, message
                if time.monotonic() >= end:
                    return
            elif question.is_over:
                return
            else:
                hook.breaker.release()
                question.refuse_message(index)
                hook.meter.count("shut_out")

    def _begin_turn(self, question: Question, hook: BoundHook) -> bool:
        """Whether to call the hook about messages; they are refused while it keeps failing."""
        position = question.position
        if not question.has_messages(position):
            return False
        if not question.start(hook.title, hook.mark.timeout):
            return False
        if hook.breaker.admit(timeout=hook.mark.timeout):
            return True
        hook.meter.shut_out(question.refuse_messages(position))
        return False

    def end_turn(self, question: Question, hook: BoundHook) -> bool:
        """Requeues a question if messages are left. False: the next hook is asked."""
        if question.is_over:
            hook.breaker.release()
            return True
        if question.has_messages(question.position):
            question.pause()
            question.hand_over(hook.worker)
            return True
        return not question.advance()

    def settle_message(
        self, question: Question, hook: BoundHook, index: int, answer: MessageAnswer
    ) -> None:
        """Handles the answer of a publish hook about one message."""
        try:
            question.answer_message(index, answer)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            what = f"answered with {type(answer).__name__}: {error}"
            self.fail_message(question, hook, index, what)
            return
        is_changed = isinstance(answer, Replace)
        result: Result = "passed" if answer is None else "allowed" if is_changed else "denied"
        self._count(hook, result, is_in_time=not question.is_over)

    def fail_message(
        self,
        question: Question,
        hook: BoundHook,
        index: int,
        what: str,
        error: BaseException | None = None,
    ) -> None:
        """Logs the reason, and refuses one message.

        The breaker does not count it: otherwise one client, whose messages the hook cannot read,
        could shut out the hook for all clients.
        """
        self.failures.warn(hook.title, shown(question.client), what, error)
        question.refuse_message(index)
        result: Result = "denied" if isinstance(error, OverloadedError) else "failed"
        self._count(hook, result, is_in_time=not question.is_over)

    def _remember(self, question: Question, hook: BoundHook, answer: object) -> None:
        login, seconds = question.subject, hook.mark.cache
        if self._cache and seconds and isinstance(answer, Allow) and isinstance(login, Login):
            self._cache.remember(hook.title, login, answer, seconds, age=question.age)

    def fail(
        self, question: Question, hook: BoundHook, what: str, error: BaseException | None = None
    ) -> None:
        """Logs the reason, and refuses the client."""
        self.failures.warn(hook.title, shown(question.client), what, error)
        if isinstance(error, OverloadedError):
            # no failure of the hook: a flood of logins would open the breaker for all clients
            hook.breaker.release()
            if refuse_as_busy(question):
                hook.meter.count("denied")
        elif question.refuse():
            self._count_failure(question, hook, "failed")
        else:
            hook.breaker.release()

    def abandon(self, question: Question, hook: BoundHook) -> None:
        """Refuses the question; this is not a failure of the hook."""
        question.refuse()
        hook.breaker.release()

    def late_hook(self, question: Question, title: str) -> BoundHook | None:
        """The hook that did not answer; without a ``title``, the next hook to ask."""
        return self._asked.get(title) or self.next_hook(question)

    def expire(self, question: Question, title: str, timeout: float, *, is_fault: bool) -> None:
        """Records that a question was refused for lateness.

        Args:
            question: It has its answer already.
            title: The hook that ran; empty while it waited in a queue.
            timeout: Seconds that the hook had, or that it may wait in a queue.
            is_fault: Whether the hook itself took the time; else another one blocked its loop.
        """
        what = f"no answer within {timeout:g} s, refused"
        if not is_fault:
            what += ": its event loop was blocked"
        self.failures.warn(title or "queue", shown(question.client), what)
        hook = self._asked.get(title)
        if hook is not None and is_fault:
            self._count_failure(question, hook, "timed_out")
        elif hook is not None:
            hook.meter.count("timed_out")
            hook.breaker.release()

    def hold(self, hook: BoundHook) -> bool:
        """Records that a call blocks its thread, which a new one replaces; False: the limit."""
        held = hook.breaker.hold()
        if held > HELD_MAX:
            hook.breaker.let_go()
            return False
        log.warning("plugin %s: a hook blocks its thread; another thread takes over", hook.title)
        if held == HELD_MAX:
            log.error(
                "plugin %s: its hooks block %d threads, which is the limit: it is not called"
                " until one of them returns",
                hook.title,
                HELD_MAX,
            )
        return True

    def warn_dropped(self, hook: BoundHook, count: int) -> None:
        """Logs that a plugin missed ``count`` events."""
        owner = hook.title.rpartition(".")[0]
        log.warning("plugin %s: %d events were dropped: its hooks are too slow", owner, count)

    def _count(self, hook: BoundHook, result: Result, *, is_in_time: bool) -> None:
        if not is_in_time:
            hook.breaker.release()
            return
        hook.meter.count(result)
        self._note_success(hook)

    def _note_success(self, hook: BoundHook) -> None:
        if hook.breaker.succeed():
            log.info("plugin %s: answers again", hook.title)

    def _count_failure(self, question: Question, hook: BoundHook, result: Result) -> None:
        hook.meter.count(result)
        if question.is_trial:
            # explanations must not have a hook refuse the requests of clients
            hook.breaker.release()
        elif hook.breaker.fail():
            log.warning(
                "plugin %s: %d failures within %g s: it is not called for %g s, and its"
                " questions are refused",
                hook.title,
                FAILURES,
                WINDOW_S,
                OPEN_S,
            )

    def exhaust(self, question: Question) -> None:
        """Refuses a question that no hook decided; the listener's policy decides about a login."""
        if question.point in MESSAGES or question.point in CHANGED:
            question.complete()
        elif question.point in {"authenticate", "grant"}:
            question.leave_undecided()
        else:
            question.answer(Deny("not_authorized"))


def by_method(hooks: Iterable[BoundHook]) -> dict[str, BoundHook]:
    """The hooks of `enhanced_auth` by method; a conversation cannot be passed to another hook."""
    found: dict[str, BoundHook] = {}
    for hook in hooks:
        if (other := found.setdefault(hook.mark.method, hook)) is not hook:
            both = f"{other.title} and {hook.title}"
            raise PluginError(f"{both} offer the same method {hook.mark.method!r}")
    return found


def check_topics(hooks: Iterable[BoundHook]) -> None:
    """Refuses two hooks of `control` with one topic."""
    found: dict[str, BoundHook] = {}
    for hook in hooks:
        if (other := found.setdefault(hook.mark.filter, hook)) is not hook:
            both = f"{other.title} and {hook.title}"
            raise PluginError(f"{both} answer requests on the same topic {hook.mark.filter!r}")


def is_yes(answer: object) -> bool:
    """Whether a valid answer allows."""
    return answer is True or isinstance(answer, Allow | bytes)


def refuse_as_busy(question: Question) -> bool:
    """Tells a client to connect again later; only logins have this code. False: too late."""
    if question.point == "connect":
        is_in_time = not question.is_over
        return question.apply(Deny("server_busy")) and is_in_time
    if question.point in {"authorize", "subscribe", "control"}:
        return question.refuse()
    return question.answer(Deny("server_busy"))


def login_cache() -> "LoginCache":
    """A cache of logins."""
    from mqttcore.plugin.login_cache import LoginCache  # its hashes are not needed for a start

    return LoginCache()


def shown(client: Client) -> str:
    """A client for the log; text that the client chose cannot break the line."""
    return ascii(client.client_id[:120])
