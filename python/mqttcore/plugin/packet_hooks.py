"""Decorators of hooks that decide about packets: CONNECT, SUBSCRIBE, PUBLISH, wills, requests."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload

from mqttcore._core import Login, Message, Subscribe, TopicFilter, TopicName
from mqttcore.plugin.answers import (
    Deny,
    DisconnectClient,
    Drop,
    Redirect,
    Replace,
    ReplaceConnect,
    ReplaceOptions,
)
from mqttcore.plugin.marks import check_times, note

S = TypeVar("S")
ConnectAnswer = ReplaceConnect | Deny | Redirect | None
ConnectHook = Callable[[S, Login], ConnectAnswer] | Callable[[S, Login], Awaitable[ConnectAnswer]]
EntryAnswer = ReplaceOptions | Deny | None
SubscribeAnswer = Sequence[EntryAnswer] | Deny | None
SubscribeHook = (
    Callable[[S, Subscribe], SubscribeAnswer] | Callable[[S, Subscribe], Awaitable[SubscribeAnswer]]
)
MessageAnswer = Replace | Drop | Deny | DisconnectClient | None
PublishHook = (
    Callable[[S, Message], MessageAnswer] | Callable[[S, Message], Awaitable[MessageAnswer]]
)
WillAnswer = Replace | Drop | Deny | None
WillHook = Callable[[S, Message], WillAnswer] | Callable[[S, Message], Awaitable[WillAnswer]]

ConnectHookT = TypeVar("ConnectHookT", bound=ConnectHook[Any])  # Any: the plugin class of each hook
SubscribeHookT = TypeVar("SubscribeHookT", bound=SubscribeHook[Any])  # Any: as above
PublishHookT = TypeVar("PublishHookT", bound=PublishHook[Any])  # Any: as above
ControlHook = Callable[[S, Message], bytes] | Callable[[S, Message], Awaitable[bytes]]

CONTROL_TOPIC = re.compile(r"\$CONTROL/[^/+#\0]+/[^/+#\0]+")

WillHookT = TypeVar("WillHookT", bound=WillHook[Any])  # Any: as above

ControlHookT = TypeVar("ControlHookT", bound=ControlHook[Any])  # Any: as above


class PacketHooks:
    """The hook points of packets."""

    @overload
    @staticmethod
    def connect(function: ConnectHookT, /) -> ConnectHookT: ...

    @overload
    @staticmethod
    def connect(*, timeout: float = 2.0) -> Callable[[ConnectHookT], ConnectHookT]: ...

    @staticmethod
    def connect(
        function: ConnectHookT | None = None, /, *, timeout: float = 2.0
    ) -> ConnectHookT | Callable[[ConnectHookT], ConnectHookT]:
        """Decides about an authenticated client before it is connected.

        `ReplaceConnect` changes its connection, `Deny` refuses it, `Redirect` names another server;
        None changes nothing. The `Login` has the user name in force, and no password. All plugins
        are asked, in their order; each sees what the one before it changed. Anonymous clients are
        asked about, too.

        Args:
            function: The hook, where the decorator is written without parentheses.
            timeout: Seconds until the client is refused with 0x88, so that it tries again.
        """
        check_times(timeout, 0.0)

        def mark(function: ConnectHookT) -> ConnectHookT:
            return note(function, "connect", timeout=timeout)

        return mark if function is None else mark(function)

    @overload
    @staticmethod
    def subscribe(function: SubscribeHookT, /) -> SubscribeHookT: ...

    @overload
    @staticmethod
    def subscribe(*, timeout: float = 1.0) -> Callable[[SubscribeHookT], SubscribeHookT]: ...

    @staticmethod
    def subscribe(
        function: SubscribeHookT | None = None, /, *, timeout: float = 1.0
    ) -> SubscribeHookT | Callable[[SubscribeHookT], SubscribeHookT]:
        """Decides about the filters of a SUBSCRIBE that its client may subscribe to, all at once.

        The answer is a list with `ReplaceOptions`, `Deny` or None for each entry, or one `Deny` for
        all of them; None changes nothing. All plugins are asked, in their order, about the entries
        that the ones before have left. Only this client waits. Topics have the mount point of the
        client in front.

        Args:
            function: The hook, where the decorator is written without parentheses.
            timeout: Seconds until each of the filters is refused with 0x83.
        """
        check_times(timeout, 0.0)

        def mark(function: SubscribeHookT) -> SubscribeHookT:
            return note(function, "subscribe", timeout=timeout)

        return mark if function is None else mark(function)

    @staticmethod
    def publish(
        filter: str,  # noqa: A002 - the word of the contract
        /,
        *,
        timeout: float = 0.25,
    ) -> Callable[[PublishHookT], PublishHookT]:
        """Decides about messages that clients may publish, before they are retained and routed.

        `Replace` changes the message, `Drop` acknowledges it and does not route it, `Deny` refuses
        it, `DisconnectClient` sends its client away, too; None leaves it as it is. Hooks are asked
        in the order of their plugins, each about the message that the one before it left.

        Only messages on topics of ``filter`` reach Python, up to 64 of one client in a batch. That
        client is not read meanwhile, and its messages keep their order. Clients whose messages wait
        for the same hook take turns; nobody else waits, if the hook is `def` or its coroutine does
        not block. Publish hooks have a thread of their own: a `def` hook runs beside those of
        logins. Topics have the mount point of the client in front. Wills and messages of the broker
        itself are not asked about.

        Args:
            filter: Topics to be asked about.
            timeout: Seconds for each message. If the hook raises, the message is not routed: a
                client of MQTT 5.0 gets 0x83, a client of MQTT 3.x that awaits an acknowledgement is
                disconnected. If it takes longer, the whole batch is refused in this way, and 30 s
                after the batch arrived those messages that the hook was not asked about.
        """
        check_topics(filter, '@hook.publish("door/+/open")')
        check_times(timeout, 0.0)

        def mark(function: PublishHookT) -> PublishHookT:
            return note(function, "publish", timeout=timeout, filter=filter)

        return mark

    @staticmethod
    def will(
        filter: str,  # noqa: A002 - the word of the contract
        /,
        *,
        timeout: float = 0.25,
    ) -> Callable[[WillHookT], WillHookT]:
        """Decides about the will of an authenticated client, once, before it is connected.

        `Replace` changes the will, `Drop` removes it, `Deny` refuses the client; None leaves it as
        it is. Its topic has to be permitted, and a new topic, too. Hooks are asked in the order of
        their plugins, each about what the one before it left. The will that they leave is stored,
        and published when it is due, without another question.

        Args:
            filter: Topics of wills to be asked about.
            timeout: Seconds until the client is refused with 0x88, so that it tries again.
        """
        check_topics(filter, '@hook.will("door/+/state")')
        check_times(timeout, 0.0)

        def mark(function: WillHookT) -> WillHookT:
            return note(function, "will", timeout=timeout, filter=filter)

        return mark

    @staticmethod
    def control(topic: str, /, *, timeout: float = 5.0) -> Callable[[ControlHookT], ControlHookT]:
        """Answers requests: messages that clients publish to ``$CONTROL/FEATURE/VERSION``.

        The hook returns `bytes`, which go to the client that asks, on ``TOPIC/response``, if it is
        subscribed there; Correlation Data of the request is in the answer, too. The request is
        acknowledged and not routed. Only clients whose grant names the topic may ask: ``#`` does
        not, ``$#`` does. One topic belongs to one hook.

        Args:
            topic: Such as ``$CONTROL/doors/v1``.
            timeout: Seconds until the request is refused. Then, and when the hook raises or answers
                with something else, the client gets ``{"responses": [{"command": "Unknown command",
                "error": "no plugin answered"}]}``, as Mosquitto's control topics answer; a client
                of MQTT 5.0 gets 0x83 as well.
        """
        if not isinstance(topic, str):
            raise TypeError('name the topic: @hook.control("$CONTROL/doors/v1")')
        if not CONTROL_TOPIC.fullmatch(topic):
            raise ValueError(f"topic is {topic!r}: $CONTROL/FEATURE/VERSION is expected")
        TopicName(topic)
        check_times(timeout, 0.0)

        def mark(function: ControlHookT) -> ControlHookT:
            return note(function, "control", timeout=timeout, filter=topic)

        return mark


def check_topics(filter: object, example: str) -> None:  # noqa: A002 - as above
    """Refuses what is no topic filter."""
    if not isinstance(filter, str):
        raise TypeError(f"name the topics: {example}")
    TopicFilter(filter)
