"""Control hooks: a client asks on a topic below $CONTROL, and gets the plugin's answer there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.errors import OverloadedError, PluginError
from mqttcore.plugin import Allow, Grant, HookStats, Login, Message, Plugin, hook
from mqttcore.testing import async_harness, harness

from tests.eventually import eventually
from tests.wire import PUBACK, Packet, Wire, publish

TOPIC, ANSWERS = "$CONTROL/doors/v1", "$CONTROL/doors/v1/response"
FAULT, NOT_AUTHORIZED = 0x83, 0x87
NO_ANSWER = b'{"responses":[{"command":"Unknown command","error":"no plugin answered"}]}'
CLOSED = Listener(address="127.0.0.1:0", name="closed")
JOE = Login(client_id="c", username="joe")


class Porter(Plugin):
    """Lets everybody in."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in; only the user admin may ask."""
        asks = [TOPIC] if login.username == "admin" else []
        return Allow(Grant(publish=["#", *asks], subscribe=["#", "$CONTROL/#"]))


class Doors(Plugin):
    """Answers in capitals."""

    @hook.control(TOPIC)
    def shout(self, request: Message) -> bytes:
        """Answers."""
        return request.payload.upper() + f" {request.client.username}".encode()


def answering(answer: Callable[[Message], Any], *, is_async: bool) -> Plugin:
    """A plugin whose hook calls `answer`."""

    class Sync(Plugin):
        @hook.control(TOPIC, timeout=0.3)
        def decide(self, request: Message) -> Any:  # noqa: ANN401 - good and bad answers
            return answer(request)

    class Async(Plugin):
        @hook.control(TOPIC, timeout=0.3)
        async def decide(self, request: Message) -> Any:  # noqa: ANN401 - as above
            found = answer(request)
            return await found if isinstance(found, Awaitable) else found

    return Async() if is_async else Sync()


def asked(port: int, user: str = "admin", payload: bytes = b"open") -> tuple[int, list[Packet]]:
    """The reason code of a request, and what comes until the next answer to a ping."""
    with Wire(port) as wire:
        wire.connect("c", username=user, password=b"")
        wire.subscribe((ANSWERS, 1))
        wire.send(
            publish(TOPIC, payload, qos=1, packet_id=7, props={"correlation_data": b"\x01\x02"})
        )
        reason = wire.expect(PUBACK).reason
        return reason, wire.drain()


def stats(broker: Broker) -> HookStats:
    (found,) = [one for one in broker.hook_stats() if one.point == "control"]
    return found


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_request_is_answered_to_its_client(*, is_async: bool) -> None:
    seen: list[Message] = []

    def answer(request: Message) -> bytes:
        seen.append(request)
        return b"opened"

    plugins = [Porter(), answering(answer, is_async=is_async)]
    with Broker(Settings(listeners=(CLOSED,)), plugins=plugins) as broker:
        reason, found = asked(broker.port)

        assert reason == 0
        assert [(one.topic, one.payload, one.qos) for one in found] == [(ANSWERS, b"opened", 1)]
        assert found[0].property("correlation_data") == b"\x01\x02"
        assert (seen[0].topic, seen[0].payload, seen[0].client.username) == (
            TOPIC,
            b"open",
            "admin",
        )
        assert (stats(broker).calls, stats(broker).allowed) == (1, 1)


def test_a_client_without_the_right_is_not_asked_about() -> None:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), Doors()]) as broker:
        assert asked(broker.port, "joe") == (NOT_AUTHORIZED, [])
        assert stats(broker).calls == 0


def test_without_a_hook_the_topic_is_closed() -> None:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter()]) as broker:
        assert asked(broker.port) == (NOT_AUTHORIZED, [])


def boom(_: Message) -> bytes:
    """A fault."""
    raise RuntimeError("no database")


def busy(_: Message) -> bytes:
    """No time."""
    raise OverloadedError("busy")


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize(
    "answer",
    [boom, busy, lambda _: None, lambda _: "text", lambda _: True, lambda _: bytearray(b"x")],
    ids=["raises", "busy", "None", "str", "bool", "bytearray"],
)
def test_a_fault_refuses_this_request_alone(
    answer: Callable[[Message], Any], *, is_async: bool
) -> None:
    answers: list[Callable[[Message], Any]] = [answer, lambda _: b"good"]
    plugin = answering(lambda request: answers.pop(0)(request), is_async=is_async)
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), plugin]) as broker:
        reason, found = asked(broker.port)
        assert (reason, [one.payload for one in found]) == (FAULT, [NO_ANSWER])

        reason, found = asked(broker.port)
        assert (reason, [one.payload for one in found]) == (0, [b"good"])


def test_a_hook_that_hangs_is_refused_in_time() -> None:
    plugin = answering(lambda _: asyncio.sleep(60, b"late"), is_async=True)
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), plugin]) as broker:
        reason, found = asked(broker.port)

        assert (reason, [one.payload for one in found]) == (FAULT, [NO_ANSWER])
        eventually(lambda: stats(broker).timed_out == 1)


def test_the_harness_asks_the_hook_of_the_topic() -> None:
    with harness(Doors) as doors:
        assert doors.control(Message(JOE, topic=TOPIC, payload=b"open")) == b"OPEN joe"
        with pytest.raises(LookupError, match="no hook"):
            doors.control(Message(JOE, topic="$CONTROL/other/v1"))


async def ask_async() -> bytes:
    """Asks on the loop of the test."""
    async with async_harness(Doors) as doors:
        return await doors.control(Message(JOE, topic=TOPIC, payload=b"a"))


def test_the_harness_refuses_a_wrong_answer() -> None:
    class Wrong(Plugin):
        @hook.control(TOPIC)  # type: ignore[type-var] # wrong on purpose
        def text(self, _: Message) -> str:
            return "text"

    assert asyncio.run(ask_async()) == b"A joe"
    with harness(Wrong) as wrong, pytest.raises(TypeError, match="bytes"):
        wrong.control(Message(JOE, topic=TOPIC))


@pytest.mark.parametrize(
    "topic",
    ["$CONTROL/doors", "$CONTROL/doors/+", "$CONTROL/#/v1", "$CONTROL/a/v1/x", "$CONTROL//v1", "a"],
)
def test_a_topic_that_is_no_control_topic_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="FEATURE/VERSION is expected"):
        hook.control(topic)


def test_a_decorator_without_a_topic_is_refused() -> None:
    with pytest.raises(TypeError, match="name the topic"):
        hook.control(lambda: None)  # type: ignore[arg-type]


def test_two_hooks_of_one_topic_are_refused() -> None:
    with pytest.raises(
        PluginError, match=r"answer requests on the same topic '\$CONTROL/doors/v1'"
    ):
        Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), Doors(), Doors()]).start()
