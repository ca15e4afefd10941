"""`harness` and `async_harness`: a plugin that is started, asked and stopped by a test."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, cast

from mqttcore._core import Ask, Event, Login, Message, Subscribe, TopicFilter, grant_allows
from mqttcore._schema import Faults, Place, entry_of, read_record
from mqttcore.config.checks import raise_faults
from mqttcore.plugin.answers import (
    Allow,
    Degraded,
    Deny,
    DisconnectClient,
    Drop,
    Grant,
    Redirect,
    Replace,
    ReplaceConnect,
    ReplaceOptions,
)
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.exchange import Exchange
from mqttcore.plugin.hooks import AskAnswer, LoginAnswer
from mqttcore.plugin.marks import Mark, Point
from mqttcore.plugin.options import PluginConfig
from mqttcore.plugin.packet_hooks import (
    ConnectAnswer,
    DeliverAnswer,
    MessageAnswer,
    SubscribeAnswer,
    WillAnswer,
)

P = TypeVar("P", bound=Plugin)
T = TypeVar("T")
Config = Mapping[str, object] | PluginConfig | None
"""Keys and values of ``[plugins.config]``, or the object made from them."""
Respond = Callable[[bytes], bytes] | Sequence[bytes]
"""The client of a conversation: a function of the challenge, or its answers in order."""

ANSWERS: Mapping[Point, tuple[type, ...]] = {
    "authenticate": (Allow, Deny, type(None)),
    "enhanced_auth": (Allow, Deny),
    "authorize": (bool, Allow, Deny, DisconnectClient, type(None)),
    "publish": (Replace, Drop, Deny, DisconnectClient, type(None)),
    "connect": (ReplaceConnect, Deny, Redirect, type(None)),
    "subscribe": (Sequence, Deny, type(None)),
    "deliver": (Replace, Drop, type(None)),
    "will": (Replace, Drop, Deny, type(None)),
    "control": (bytes,),
    "grant": (Allow, Deny, type(None)),
    "events": (type(None),),
    "every": (type(None),),
    "health": (Degraded, type(None)),
}

ENTRY_ANSWERS: tuple[type, ...] = (ReplaceOptions, Deny, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """An enhanced authentication from its start to its end."""

    answer: Allow | Deny
    """The decision of the hook."""
    challenges: tuple[bytes, ...]
    """The challenges that it sent to the client."""
    usernames: tuple[str | None, ...]
    """The user names that it passed with the challenges; failed logins count for them."""


class AsyncHarness(Generic[P]):
    """A plugin on the event loop of the test: ``async with async_harness(Doors) as doors``."""

    def __init__(self, plugin: P, /) -> None:
        self.plugin = plugin
        """The plugin itself."""

    async def __aenter__(self) -> Self:
        await self.plugin.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.plugin.stop()

    async def authenticate(self, login: Login, /) -> LoginAnswer:
        """Asks the `authenticate` hooks about a CONNECT; None: all of them passed."""
        return cast(LoginAnswer, await self._first("authenticate", login))

    async def grant(self, login: Login, /) -> LoginAnswer:
        """Asks the `grant` hooks about a connected client; None: all of them passed."""
        return cast(LoginAnswer, await self._first("grant", login))

    async def publish(self, message: Message, /) -> list[MessageAnswer]:
        """Asks the `publish` hooks whose filters match the topic of ``message`` itself.

        Returns:
            The answer of each. A broker asks each hook about what the one before it left.
        """
        return cast(list[MessageAnswer], await self._each("publish", message))

    async def connect(self, login: Login, /) -> list[ConnectAnswer]:
        """Asks the `connect` hooks about an authenticated client.

        Returns:
            The answer of each. A broker asks no more hooks once one refuses, and each about what
            the one before it left.
        """
        hooks = self._hooks("connect")
        return [cast(ConnectAnswer, await self._call(name, mark, login)) for name, mark in hooks]

    async def deliver(self, message: Message, /) -> list[DeliverAnswer]:
        """Asks the `deliver` hooks about a message for the client of ``message``; as `publish`."""
        return cast(list[DeliverAnswer], await self._each("deliver", message))

    async def will(self, message: Message, /) -> list[WillAnswer]:
        """Asks the `will` hooks whose filters match the topic of a will; as `publish`."""
        return cast(list[WillAnswer], await self._each("will", message))

    async def subscribe(self, packet: Subscribe, /) -> list[SubscribeAnswer]:
        """Asks the `subscribe` hooks; as `connect`.

        Raises:
            TypeError: an answer is wrong, or there is not one for each entry.
        """
        answers = []
        for name, mark in self._hooks("subscribe"):
            answer = cast(SubscribeAnswer, await self._call(name, mark, packet))
            check_entries(f"{self.plugin.name}.{name}", packet, answer)
            answers.append(answer)
        return answers

    async def _each(self, point: Point, message: Message) -> list[object]:
        return [
            await self._call(name, mark, message)
            for name, mark in list(self._hooks(point))
            if TopicFilter(mark.filter).matches(message.topic)
        ]

    async def control(self, request: Message, /) -> bytes:
        """Asks the `control` hook of the topic of ``request``.

        Raises:
            LookupError: no hook answers requests on this topic.
        """
        for name, mark in self._hooks("control"):
            if mark.filter == request.topic:
                return cast(bytes, await self._call(name, mark, request))
        raise LookupError(f"no hook of {self.plugin.name} answers requests on {request.topic!r}")

    async def every(self) -> None:
        """Calls each `every` hook once."""
        for name, mark in self._hooks("every"):
            await self._call(name, mark)

    async def health(self) -> list[Degraded]:
        """Asks each `health` hook once; an empty list: no plugin is degraded."""
        answers = [await self._call(name, mark) for name, mark in self._hooks("health")]
        return [answer for answer in answers if isinstance(answer, Degraded)]

    async def authorize(self, ask: Ask, /) -> AskAnswer:
        """Asks the `authorize` hooks for this action and topic; None: all of them returned None.

        A broker asks only if the client's grant neither allows nor denies the action.
        """
        for name, mark in self._hooks("authorize"):
            if mark.action == ask.action and concerns(mark, ask):
                answer = await self._call(name, mark, ask)
                if answer is not None:
                    return cast(AskAnswer, answer)
        return None

    async def converse(
        self,
        login: Login,
        /,
        *,
        method: str,
        respond: Respond = (),
        data: bytes = b"",
        is_again: bool = False,
    ) -> Conversation:
        """Leads an enhanced authentication to its end.

        Args:
            login: The CONNECT.
            method: The method that it names.
            respond: The client's side.
            data: The authentication data of CONNECT.
            is_again: The client is connected and authenticates again.

        Raises:
            LookupError: no hook has this method, or the hook asks more often than there are
                answers.
        """
        found = [hook for hook in self._hooks("enhanced_auth") if hook[1].method == method]
        if not found:
            raise LookupError(f"no hook of {self.plugin.name} has the method {method!r}")
        client = ChallengedClient(respond)
        exchange = Exchange(login, method=method, data=data, is_again=is_again, ask=client.answer)
        answer = await self._call(*found[0], exchange)
        return Conversation(
            answer=cast(Allow | Deny, answer),
            challenges=tuple(client.challenges),
            usernames=tuple(client.usernames),
        )

    async def tell(self, *events: Event) -> None:
        """Passes events to the `events` hooks, in one batch, each hook only its kinds."""
        for name, mark in self._hooks("events"):
            wanted = [event for event in events if event.kind in mark.kinds]
            if wanted:
                await self._call(name, mark, wanted)

    def _hooks(self, point: Point) -> Iterator[tuple[str, Mark]]:
        return (hook for hook in self.plugin.hooks.items() if hook[1].point == point)

    async def _first(self, point: Point, login: Login) -> object:
        """The first answer that is not None."""
        for name, mark in self._hooks(point):
            answer = await self._call(name, mark, login)
            if answer is not None:
                return answer
        return None

    async def _call(self, name: str, mark: Mark, *subject: object) -> object:
        # Any: each hook point has its own argument and answer
        function: Callable[..., Any] = getattr(self.plugin, name)
        async with asyncio.timeout(mark.timeout):
            answer: object = function(*subject)
            if inspect.isawaitable(answer):
                answer = await cast(Awaitable[object], answer)
        if not isinstance(answer, ANSWERS[mark.point]):
            allowed = ", ".join(kind.__name__ for kind in ANSWERS[mark.point])
            raise TypeError(
                f"{self.plugin.name}.{name} answered with {type(answer).__name__};"
                f" allowed: {allowed.replace('NoneType', 'None')}"
            )
        return answer


class Harness(Generic[P]):
    """A plugin with its own event loop: ``with harness(Doors) as doors``."""

    def __init__(self, plugin: P, /) -> None:
        self.plugin = plugin
        """The plugin itself."""
        self._hooks = AsyncHarness(plugin)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            self._run(self._hooks.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._run(self._hooks.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    def authenticate(self, login: Login, /) -> LoginAnswer:
        """As `AsyncHarness.authenticate`."""
        return self._run(self._hooks.authenticate(login))

    def grant(self, login: Login, /) -> LoginAnswer:
        """As `AsyncHarness.grant`."""
        return self._run(self._hooks.grant(login))

    def publish(self, message: Message, /) -> list[MessageAnswer]:
        """As `AsyncHarness.publish`."""
        return self._run(self._hooks.publish(message))

    def connect(self, login: Login, /) -> list[ConnectAnswer]:
        """As `AsyncHarness.connect`."""
        return self._run(self._hooks.connect(login))

    def deliver(self, message: Message, /) -> list[DeliverAnswer]:
        """As `AsyncHarness.deliver`."""
        return self._run(self._hooks.deliver(message))

    def will(self, message: Message, /) -> list[WillAnswer]:
        """As `AsyncHarness.will`."""
        return self._run(self._hooks.will(message))

    def subscribe(self, packet: Subscribe, /) -> list[SubscribeAnswer]:
        """As `AsyncHarness.subscribe`."""
        return self._run(self._hooks.subscribe(packet))

    def control(self, request: Message, /) -> bytes:
        """As `AsyncHarness.control`."""
        return self._run(self._hooks.control(request))

    def every(self) -> None:
        """As `AsyncHarness.every`."""
        self._run(self._hooks.every())

    def health(self) -> list[Degraded]:
        """As `AsyncHarness.health`."""
        return self._run(self._hooks.health())

    def authorize(self, ask: Ask, /) -> AskAnswer:
        """As `AsyncHarness.authorize`."""
        return self._run(self._hooks.authorize(ask))

    def converse(
        self,
        login: Login,
        /,
        *,
        method: str,
        respond: Respond = (),
        data: bytes = b"",
        is_again: bool = False,
    ) -> Conversation:
        """As `AsyncHarness.converse`."""
        return self._run(
            self._hooks.converse(
                login, method=method, respond=respond, data=data, is_again=is_again
            )
        )

    def tell(self, *events: Event) -> None:
        """As `AsyncHarness.tell`."""
        self._run(self._hooks.tell(*events))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:  # Any: as `asyncio.Runner` has it
        return self._runner.run(coroutine)


class ChallengedClient:
    """The client's side of a conversation."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.challenges: list[bytes] = []
        self.usernames: list[str | None] = []

    async def answer(self, data: bytes, _text: str | None, username: str | None) -> bytes:
        """Answers one challenge."""
        count = len(self.challenges)
        self.challenges.append(data)
        self.usernames.append(username)
        if callable(self._respond):
            return self._respond(data)
        if count >= len(self._respond):
            raise LookupError(f"the hook asks {count + 1} times, but there are {count} answers")
        return self._respond[count]


def check_entries(hook: str, packet: Subscribe, answer: SubscribeAnswer) -> None:
    """Refuses an answer of a `subscribe` hook that a broker would refuse."""
    if answer is None or isinstance(answer, Deny):
        return
    found = len(answer)
    if found != len(packet.entries):
        raise TypeError(f"{hook} answered {found} of {len(packet.entries)} entries")
    for one in answer:
        if not isinstance(one, ENTRY_ANSWERS):
            raise TypeError(f"{hook} answered with {type(one).__name__} for an entry")


def concerns(mark: Mark, ask: Ask) -> bool:
    """Whether a hook of `authorize` is asked about this topic or filter."""
    about = TopicFilter(mark.filter)
    if ask.action == "publish":
        return about.matches(ask.topic)
    return about.covers(TopicFilter(ask.topic))


def allows(
    grant: Grant,
    action: Literal["publish", "subscribe", "unsubscribe", "receive"],
    topic: str,
    /,
) -> bool:
    """Whether the rules of a grant allow this, as the broker evaluates them; no hook is asked.

    Args:
        grant: The grant of an `Allow`.
        action: What the client does.
        topic: A topic name; for `subscribe` and `unsubscribe` a topic filter.
    """
    return grant_allows(grant, action=action, topic=topic)


def harness(kind: type[P], config: Config = None, /) -> Harness[P]:
    """Makes a plugin for a test, which starts and stops it: `with` ... `as`.

    Args:
        kind: The class of the plugin.
        config: As ``[plugins.config]`` has it; a path in it is relative to the working directory.

    Raises:
        ConfigError: with everything that is wrong in the configuration.
    """
    return Harness(made(kind, config))


def async_harness(kind: type[P], config: Config = None, /) -> AsyncHarness[P]:
    """Makes a plugin for a test on the event loop of the test: `async with` ... `as`."""
    return AsyncHarness(made(kind, config))


def made(kind: type[P], config: Config) -> P:
    """The plugin, not started."""
    if isinstance(config, PluginConfig):
        return kind(config)
    faults = Faults()
    entry = entry_of(config or {}, Place(kind.__name__))
    read = read_record(kind.Config, entry, key="config", faults=faults)
    raise_faults(faults)
    return kind(read)
