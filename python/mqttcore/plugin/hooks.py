"""The decorators that mark methods as hooks; they only store what the workers need."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, get_args, overload

from mqttcore._core import Ask, Event, Login, TopicFilter
from mqttcore.plugin.answers import Allow, Degraded, Deny, DisconnectClient
from mqttcore.plugin.exchange import Exchange
from mqttcore.plugin.marks import MARK, Action, Mark, check_times
from mqttcore.plugin.packet_hooks import PacketHooks

EventKind = Literal[
    "connected",
    "disconnected",
    "auth_failed",
    "denied",
    "subscribed",
    "unsubscribed",
    "dropped",
    "session_created",
    "session_resumed",
    "session_taken_over",
    "session_expired",
]

METHOD_BYTES_MAX = 65_535
EVERY_MIN_S, EVERY_MAX_S = 0.01, 86_400

S = TypeVar("S")
P = ParamSpec("P")
LoginAnswer = Allow | Deny | None
AskAnswer = bool | Allow | Deny | DisconnectClient | None
LoginHook = Callable[[S, Login], LoginAnswer] | Callable[[S, Login], Awaitable[LoginAnswer]]
ExchangeHook = Callable[[S, Exchange], Awaitable[Allow | Deny]]
AskHook = Callable[[S, Ask], AskAnswer] | Callable[[S, Ask], Awaitable[AskAnswer]]
EventsHook = Callable[[S, Sequence[Event]], None] | Callable[[S, Sequence[Event]], Awaitable[None]]

HealthAnswer = Degraded | None
HealthHook = Callable[[S], HealthAnswer] | Callable[[S], Awaitable[HealthAnswer]]
EveryHook = Callable[[S], None] | Callable[[S], Awaitable[None]]

LoginHookT = TypeVar("LoginHookT", bound=LoginHook[Any])  # Any: the plugin class of each hook
ExchangeHookT = TypeVar("ExchangeHookT", bound=ExchangeHook[Any])  # Any: as above
AskHookT = TypeVar("AskHookT", bound=AskHook[Any])  # Any: as above
EventsHookT = TypeVar("EventsHookT", bound=EventsHook[Any])  # Any: as above
HealthHookT = TypeVar("HealthHookT", bound=HealthHook[Any])  # Any: as above
EveryHookT = TypeVar("EveryHookT", bound=EveryHook[Any])  # Any: as above


class hook(PacketHooks):  # noqa: N801 - read as a word: @hook.authenticate()
    """The hook points. `def` runs on a thread of the plugin, `async def` on its event loop."""

    @overload
    @staticmethod
    def authenticate(function: LoginHookT, /) -> LoginHookT: ...

    @overload
    @staticmethod
    def authenticate(
        *, timeout: float = 5.0, cache: float = 0.0
    ) -> Callable[[LoginHookT], LoginHookT]: ...

    @staticmethod
    def authenticate(
        function: LoginHookT | None = None, /, *, timeout: float = 5.0, cache: float = 0.0
    ) -> LoginHookT | Callable[[LoginHookT], LoginHookT]:
        """Authenticates a client at CONNECT.

        It is not asked about clients without a user name if their listener allows anonymous
        clients. The first plugin that does not answer None decides. If all answer None, the client
        is refused, or, if its listener allows anonymous clients, admitted as if it had sent no user
        name.

        Args:
            function: The hook, if the decorator is written without parentheses.
            timeout: Seconds until the client is refused with 0x88, so that it tries again.
            cache: Seconds for which an `Allow` is reused, plus or minus a tenth, for the same
                client with the same credentials from the same address.
        """
        check_times(timeout, cache)

        def mark(function: LoginHookT) -> LoginHookT:
            is_async = inspect.iscoroutinefunction(function)
            note = Mark(point="authenticate", is_async=is_async, timeout=timeout, cache=cache)
            setattr(function, MARK, note)
            return function

        return mark if function is None else mark(function)

    @overload
    @staticmethod
    def grant(function: LoginHookT, /) -> LoginHookT: ...

    @overload
    @staticmethod
    def grant(*, timeout: float = 1.0) -> Callable[[LoginHookT], LoginHookT]: ...

    @staticmethod
    def grant(
        function: LoginHookT | None = None, /, *, timeout: float = 1.0
    ) -> LoginHookT | Callable[[LoginHookT], LoginHookT]:
        """Returns the present grant of a connected client or its session, after `invalidate`.

        The `Login` is that of its last CONNECT, without the password. The first plugin that does
        not answer None decides: an `Allow` replaces the grant, a `Deny` disconnects the client. If
        all answer None, the client is disconnected, too. Without such a hook the client is
        disconnected and logs in again.

        Args:
            function: The hook, if the decorator is written without parentheses.
            timeout: Seconds until the client is disconnected.
        """
        check_times(timeout, 0.0)

        def mark(function: LoginHookT) -> LoginHookT:
            is_async = inspect.iscoroutinefunction(function)
            setattr(function, MARK, Mark(point="grant", is_async=is_async, timeout=timeout))
            return function

        return mark if function is None else mark(function)

    @staticmethod
    def enhanced_auth(
        method: str, /, *, timeout: float = 10.0
    ) -> Callable[[ExchangeHookT], ExchangeHookT]:
        """Runs the whole exchange with a client of MQTT 5.0 that names ``method`` in CONNECT.

        The hook is a coroutine: it calls `Exchange.challenge` as often as needed, and ends with
        `Allow` or `Deny`. It runs again if the client re-authenticates on its connection; then the
        new grant replaces the old one, and a `Deny` disconnects. No other hook is asked about such
        a client, and only one hook can have a method.

        Args:
            method: As clients write it, say ``SCRAM-SHA-256``.
            timeout: Seconds that the hook may take for each step, the client's time not counted,
                until the client is refused with 0x83.
        """
        if not isinstance(method, str):
            raise TypeError('name the method: @hook.enhanced_auth("SCRAM-SHA-256")')
        check_times(timeout, 0.0)
        if not method or len(method.encode()) > METHOD_BYTES_MAX or "\0" in method:
            raise ValueError(f"method must have 1 to {METHOD_BYTES_MAX} bytes")

        def mark(function: ExchangeHookT) -> ExchangeHookT:
            is_async = inspect.iscoroutinefunction(function)
            if not is_async:
                raise TypeError("a hook of enhanced_auth must be async def")
            note = Mark(point="enhanced_auth", is_async=is_async, timeout=timeout, method=method)
            setattr(function, MARK, note)
            return function

        return mark

    @staticmethod
    def authorize(
        *,
        action: Action,
        filter: str,  # noqa: A002 - the word of the contract
        timeout: float = 1.0,
        cache: float = 60.0,
        explain: bool = False,
    ) -> Callable[[AskHookT], AskHookT]:
        """Decides a PUBLISH or SUBSCRIBE that the client's grant neither allows nor denies.

        The first plugin that does not answer None decides; if all answer None, the request is
        denied. The hook cannot veto: it is not asked about requests that a grant allows or that a
        cached yes covers. Put rules that must always deny into `Grant.deny`, which wins over every
        yes.

        Args:
            action: The action to decide.
            filter: The hook is asked only about topics that it matches, or filters that it covers.
            timeout: Seconds until the request is denied. Then, and if the hook raises, a client of
                MQTT 3.x that awaits an acknowledgement is disconnected: MQTT 3.x has no failure
                code, and any acknowledgement would mean success.
            cache: Seconds for which a yes is cached, plus or minus a tenth.
            explain: Whether `mqttcore acl explain` may call the hook to tell its answer, without a
                request of a client. Only for hooks without effects: they change nothing, and count
                nothing.
        """
        check_times(timeout, cache)
        if action not in get_args(Action):
            raise ValueError(f"action is {action!r}; allowed: {', '.join(get_args(Action))}")
        TopicFilter(filter)

        def mark(function: AskHookT) -> AskHookT:
            note = Mark(
                point="authorize",
                is_async=inspect.iscoroutinefunction(function),
                timeout=timeout,
                cache=cache,
                action=action,
                filter=filter,
                may_be_tried=explain,
            )
            setattr(function, MARK, note)
            return function

        return mark

    @staticmethod
    def events(
        *kinds: EventKind, batch: int = 256, every: float = 0.05
    ) -> Callable[[EventsHookT], EventsHookT]:
        """Passes events to the hook, in batches. Nothing waits for it.

        If the queue is full, the oldest event is dropped. The hook shares no thread with hooks that
        decide: an `async def` hook of events has its own event loop, in which objects that `start`
        opened for the other hooks cannot be used. It has 5 s for a batch.

        Args:
            *kinds: Kinds of events.
            batch: Maximum number of events in one call.
            every: Maximum seconds that an event waits for others.
        """
        if not all(isinstance(kind, str) for kind in kinds):
            raise TypeError('name the events: @hook.events("connected", "disconnected")')
        unknown = set(kinds) - set(get_args(EventKind))
        if unknown or not kinds:
            known = ", ".join(get_args(EventKind))
            raise ValueError(f"unknown events: {sorted(unknown)}; allowed: {known}")
        if batch < 1 or every < 0:
            raise ValueError("batch must be at least 1, every at least 0")

        def mark(function: EventsHookT) -> EventsHookT:
            note = Mark(
                point="events",
                is_async=inspect.iscoroutinefunction(function),
                kinds=frozenset(kinds),
                batch=batch,
                every=every,
            )
            setattr(function, MARK, note)
            return function

        return mark

    @staticmethod
    def every(seconds: float, /, *, timeout: float = 5.0) -> Callable[[EveryHookT], EveryHookT]:
        """Calls the hook periodically, for the first time after ``seconds``.

        Nothing waits for it. An `async def` hook runs on the event loop of `Plugin.start`; a `def`
        hook on a thread for such hooks of this plugin. A call that takes longer than ``seconds``
        delays the next one.

        Args:
            seconds: From the beginning of one call to the beginning of the next one.
            timeout: Seconds until the call counts as late; an `async def` hook is cancelled then.
        """
        if not isinstance(seconds, int | float):
            raise TypeError("name the seconds: @hook.every(60)")
        if not EVERY_MIN_S <= seconds <= EVERY_MAX_S:
            raise ValueError(f"seconds must be {EVERY_MIN_S} to {EVERY_MAX_S}")
        check_times(timeout, 0.0)

        def mark(function: EveryHookT) -> EveryHookT:
            is_async = inspect.iscoroutinefunction(function)
            note = Mark(point="every", is_async=is_async, timeout=timeout, every=seconds)
            setattr(function, MARK, note)
            return function

        return mark

    @overload
    @staticmethod
    def health(function: HealthHookT, /) -> HealthHookT: ...

    @overload
    @staticmethod
    def health(
        *, every: float = 10.0, timeout: float = 1.0
    ) -> Callable[[HealthHookT], HealthHookT]: ...

    @staticmethod
    def health(
        function: HealthHookT | None = None, /, *, every: float = 10.0, timeout: float = 1.0
    ) -> HealthHookT | Callable[[HealthHookT], HealthHookT]:
        """Reports whether the plugin can do its work: None if it can, otherwise `Degraded`.

        `/readyz` then answers ``degraded``, with status 200, and names the hook and its text; also
        if the hook raises, is late or returns a wrong type. It is called periodically, for the
        first time after ``every`` seconds.

        Args:
            function: The hook, if the decorator is written without parentheses.
            every: Seconds from one call to the next one.
            timeout: Seconds until the plugin counts as degraded.
        """
        if not EVERY_MIN_S <= every <= EVERY_MAX_S:
            raise ValueError(f"every must be {EVERY_MIN_S} to {EVERY_MAX_S} seconds")
        check_times(timeout, 0.0)

        def mark(function: HealthHookT) -> HealthHookT:
            is_async = inspect.iscoroutinefunction(function)
            note = Mark(point="health", is_async=is_async, timeout=timeout, every=every)
            setattr(function, MARK, note)
            return function

        return mark if function is None else mark(function)
