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
DeliverAnswer = Replace | Drop | None
DeliverHook = (
    Callable[[S, Message], DeliverAnswer] | Callable[[S, Message], Awaitable[DeliverAnswer]]
)
WillAnswer = Replace | Drop | Deny | None
WillHook = Callable[[S, Message], WillAnswer] | Callable[[S, Message], Awaitable[WillAnswer]]

ConnectHookT = TypeVar("ConnectHookT", bound=ConnectHook[Any])  # Any: the plugin class of each hook
SubscribeHookT = TypeVar("SubscribeHookT", bound=SubscribeHook[Any])  # Any: as above
PublishHookT = TypeVar("PublishHookT", bound=PublishHook[Any])  # Any: as above
ControlHook = Callable[[S, Message], bytes] | Callable[[S, Message], Awaitable[bytes]]

CONTROL_TOPIC = re.compile(r"\$CONTROL/[^/+#\0]+/[^/+#\0]+")

DeliverHookT = TypeVar("DeliverHookT", bound=DeliverHook[Any])  # Any: as above

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
        None changes nothing. The `Login` has the effective user name, and no password. All plugins
        are asked, in their order; each sees the changes of the one before. They are also asked
        about anonymous clients.

        Args:
            function: The hook, if the decorator is written without parentheses.
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
        """Decides about the permitted filters of one SUBSCRIBE, all at once.

        The answer is a list with `ReplaceOptions`, `Deny` or None for each entry, or one `Deny` for
        all of them; None changes nothing. All plugins are asked, in their order, about the
        remaining entries. Only this client waits. Topics include the mount point of the client.

        Args:
            function: The hook, if the decorator is written without parentheses.
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

        `Replace` changes the message, `Drop` acknowledges but does not route it, `Deny` refuses it,
        `DisconnectClient` also disconnects its client; None does not change it. All plugins are
        asked, in their order, each about the result of the one before.

        Only messages on topics of ``filter`` reach Python, up to 64 of one client in a batch. The
        client is not read meanwhile, and its messages keep their order. Clients whose messages wait
        for the same hook take turns; other clients do not wait, if the hook is `def` or its
        coroutine does not block. Publish hooks have their own thread: a `def` hook runs
        concurrently with those of logins. Topics include the mount point of the client. The hook is
        not asked about wills and messages of the broker itself.

        Args:
            filter: Topic filter of the messages.
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
    def deliver(
        filter: str,  # noqa: A002 - the word of the contract
        /,
        *,
        timeout: float = 0.1,
    ) -> Callable[[DeliverHookT], DeliverHookT]:
        """Decides about messages before they are sent to a subscriber, for each subscriber.

        ``message.client`` is the subscriber. `Replace` changes what it gets, but for topic and
        RETAIN; `Drop` keeps the message from it; None leaves it as it is. Hooks are asked in the
        order of their plugins, each about the message that the one before it left.

        Only messages on topics of ``filter`` reach Python, up to 64 for one subscriber in a batch.
        They are queued in its session meanwhile, with those behind them, so their order stays, and
        the limits of the queue hold. A message may be asked about again: after a restart, or when
        the queue was too long for memory. Hooks share the threads of `publish` hooks.

        Args:
            filter: Topics to be asked about.
            timeout: Seconds for each message. If the hook raises, the subscriber does not get the
                message; if it takes longer, it does not get the whole batch.
        """
        check_topics(filter, '@hook.deliver("door/+/state")')
        check_times(timeout, 0.0)

        def mark(function: DeliverHookT) -> DeliverHookT:
            return note(function, "deliver", timeout=timeout, filter=filter)

        return mark

    @staticmethod
    def will(
        filter: str,  # noqa: A002 - the word of the contract
        /,
        *,
        timeout: float = 0.25,
    ) -> Callable[[WillHookT], WillHookT]:
        """Decides about the will of an authenticated client, once, before it is connected.

        `Replace` changes the will, `Drop` removes it, `Deny` refuses the client; None does not
        change it. The topic has to be permitted, also a new one. All plugins are asked, in their
        order, each about the result of the one before. The resulting will is stored, and published
        when it is due, without another question.

        Args:
            filter: Topic filter of the wills.
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

        The hook returns `bytes`. The broker sends them to this client on ``TOPIC/response``, if the
        client is subscribed there, with the Correlation Data of the request. The request is
        acknowledged and not routed. The grant of the client has to cover the topic: ``$#`` does,
        ``#`` does not. Only one hook can have a topic.

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
    """Refuses text that is not a topic filter."""
    if not isinstance(filter, str):
        raise TypeError(f"name the topics: {example}")
    TopicFilter(filter)
