"""Publish hooks: what they see, what their answers do, and that they fail closed."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.errors import OverloadedError
from mqttcore.plugin import (
    Allow,
    Client,
    Deny,
    DisconnectClient,
    Drop,
    Grant,
    HookStats,
    Login,
    Message,
    Plugin,
    Replace,
    hook,
)
from mqttcore.plugin.chain import TURN_S

from tests.eventually import eventually
from tests.message_plugins import Decider
from tests.wire import DISCONNECT, PUBACK, Wire, publish

NOT_AUTHORIZED, FAULT, FORMAT_INVALID = 0x87, 0x83, 0x99
CLOSED = Listener(address="127.0.0.1:0", name="closed")


class Porter(Plugin):
    """Lets everybody in."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"], deny=["denied"]))


class Stamp(Decider):
    """Answers for each message with what the test handed in, or calls it."""

    @hook.publish("hook/#", timeout=0.3)
    def decide(self, message: Message) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answered(message)


class AsyncStamp(Decider):
    """The same on the event loop."""

    @hook.publish("hook/#", timeout=0.3)
    async def decide(self, message: Message) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answered(message)


@pytest.fixture(params=[Stamp, AsyncStamp], ids=["def", "async def"])
def stamp(request: pytest.FixtureRequest) -> Stamp | AsyncStamp:
    kind: type[Stamp | AsyncStamp] = request.param
    return kind()


@pytest.fixture
def broker(stamp: Stamp) -> Iterator[Broker]:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), stamp]) as running:
        yield running


@pytest.fixture
def joe(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"pw")
        yield wire


@pytest.fixture
def reader(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("reader", username="ann", password=b"pw")
        wire.subscribe(("#", 0))
        yield wire


def stats(broker: Broker) -> HookStats:
    (found,) = [one for one in broker.hook_stats() if one.point == "publish"]
    return found


def test_a_message_is_seen_as_it_was_published(joe: Wire, stamp: Stamp) -> None:
    joe.publish(
        "hook/a",
        b"\x00body",
        qos=1,
        retain=True,
        props={
            "message_expiry_interval": 9,
            "content_type": "x/y",
            "response_topic": "r",
            "correlation_data": b"\x01",
            "user_property": [("a", "b"), ("a", "c")],
        },
    )

    (seen,) = stamp.seen
    assert (seen.topic, seen.payload, seen.qos, seen.retain) == ("hook/a", b"\x00body", 1, True)
    assert (seen.content_type, seen.response_topic, seen.correlation_data) == ("x/y", "r", b"\x01")
    assert seen.message_expiry_interval in {8, 9}
    assert seen.user_properties == [("a", "b"), ("a", "c")]
    assert isinstance(seen.client, Client)
    assert (seen.client.client_id, seen.client.username) == ("c", "joe")
    assert "body" not in repr(seen)


def test_a_message_may_be_replaced(joe: Wire, reader: Wire, stamp: Stamp) -> None:
    stamp.answer = lambda message: Replace(
        topic="moved",
        payload="text",
        content_type="t",
        message_expiry_interval=60,
        user_properties=[*message.user_properties, ("by", message.client.username)],
    )

    assert joe.publish("hook/a", b"body", qos=1).reason == 0

    found = reader.receive_publish()
    assert (found.topic, found.payload) == ("moved", b"text")
    assert found.property("content_type") == "t"
    assert found.property("user_property") == [("by", "joe")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Drop(), 0x00),
        (Drop("no_matching_subscribers"), 0x10),
        (Deny("not_authorized"), NOT_AUTHORIZED),
        (Deny("payload_format_invalid", "no JSON"), FORMAT_INVALID),
        (Replace(topic="denied"), NOT_AUTHORIZED),
    ],
)
def test_a_message_may_be_kept_from_its_subscribers(
    joe: Wire, reader: Wire, stamp: Stamp, answer: object, reason: int
) -> None:
    stamp.answer = answer

    assert joe.publish("hook/a", b"kept away", qos=1).reason == reason

    joe.publish("free", b"after it")
    assert reader.receive_publish().payload == b"after it"


def test_a_publisher_may_be_sent_away(joe: Wire, stamp: Stamp) -> None:
    stamp.answer = DisconnectClient("not_authorized")

    joe.send(publish("hook/a", b"", qos=1, packet_id=1))

    assert joe.expect(DISCONNECT).reason == NOT_AUTHORIZED
    joe.expect_close()


def raises(_: Message) -> None:
    raise RuntimeError("no database")


def exits(_: Message) -> None:
    raise SystemExit


def interrupts(_: Message) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "answer",
    [raises, exits, interrupts, True, "yes", b"payload", Grant(), Allow(), 1, [Replace()]],
    ids=["raises", "exits", "interrupts", "true", "text", "bytes", "grant", "allow", "1", "list"],
)
def test_what_is_no_answer_is_not_routed(
    joe: Wire, reader: Wire, stamp: Stamp, answer: object
) -> None:
    stamp.answer = answer

    assert joe.publish("hook/a", b"hidden", qos=1).reason == FAULT

    joe.publish("free", b"after it")
    assert reader.receive_publish().payload == b"after it"


def test_a_plugin_that_is_overloaded_refuses_and_is_not_left_alone(
    broker: Broker, joe: Wire, stamp: Stamp
) -> None:
    def overloaded(_: Message) -> None:
        raise OverloadedError("queue is full")

    stamp.answer = overloaded
    for number in range(1, 31):
        assert joe.publish("hook/a", qos=1, packet_id=number).reason == FAULT

    assert stats(broker).breaker == "closed"


def test_a_hook_that_hangs_refuses_in_time_and_other_clients_go_on() -> None:
    release = threading.Event()

    class Hanging(Plugin):
        @hook.publish("slow/#", timeout=0.3)
        def decide(self, message: Message) -> None:
            release.wait()

    plugins = [Porter(), Hanging()]
    with Broker(Settings(listeners=(CLOSED,)), plugins=plugins) as own, Wire(own.port) as slow:
        slow.connect("slow", username="joe", password=b"")
        slow.send(publish("slow/a", b"", qos=1, packet_id=1))
        with Wire(own.port) as quick:
            quick.connect("quick", username="joe", password=b"")
            assert quick.publish("free", qos=1).reason in (0, 0x10)
        assert slow.expect(PUBACK).reason == FAULT
        release.set()


def test_only_messages_on_the_filters_topics_reach_python(joe: Wire, stamp: Stamp) -> None:
    for number in range(1, 100):
        joe.publish(f"free/{number}", b"", qos=1, packet_id=number)
    joe.publish("hook/a", b"", qos=1, packet_id=100)

    assert [message.topic for message in stamp.seen] == ["hook/a"]


def test_one_publishers_messages_keep_their_order(joe: Wire, reader: Wire, stamp: Stamp) -> None:
    stamp.answer = lambda message: Replace(payload=message.payload + b"!")
    frames = [
        publish("hook/a" if number % 2 else "free/a", str(number).encode()) for number in range(300)
    ]

    joe.send(*frames)

    found = [reader.receive_publish().payload for _ in range(300)]
    assert found == [str(n).encode() + (b"!" if n % 2 else b"") for n in range(300)]
    assert len(stamp.seen) == 150


def test_each_hook_sees_what_the_one_before_it_left() -> None:
    seen: list[tuple[str, str]] = []

    def append(name: str) -> Callable[[Message], Replace]:
        def answer(message: Message) -> Replace:
            seen.append((name, message.topic))
            return Replace(topic=f"{message.topic}/{name}", payload=message.payload + name.encode())

        return answer

    first, second = Stamp(), AsyncStamp()
    first.answer, second.answer = append("1"), append("2")

    class Elsewhere(Plugin):
        @hook.publish("hook/a/1/2/#")
        def late(self, message: Message) -> None:
            seen.append(("late", message.topic))

    plugins = [Porter(), first, second, Elsewhere()]
    with (
        Broker(Settings(listeners=(CLOSED,)), plugins=plugins) as broker,
        Wire(broker.port) as wire,
    ):
        wire.connect("c", username="joe", password=b"")
        wire.subscribe(("#", 0))
        wire.send(publish("hook/a", b">"))
        found = wire.receive_publish()
    assert (found.topic, found.payload) == ("hook/a/1/2", b">12")
    assert seen == [("1", "hook/a"), ("2", "hook/a/1"), ("late", "hook/a/1/2")]


def test_calls_are_counted_by_what_became_of_them(broker: Broker, joe: Wire, stamp: Stamp) -> None:
    answers = iter([None, Replace(retain=False), Drop(), "junk"])
    stamp.answer = lambda _: next(answers)

    for number in range(1, 5):
        joe.publish("hook/a", b"", qos=1, packet_id=number)

    eventually(lambda: stats(broker).failed == 1)
    found = stats(broker)
    assert (found.calls, found.passed, found.allowed, found.denied) == (4, 1, 1, 1)
    assert found.in_flight == 0


def test_messages_that_a_hook_cannot_read_do_not_shut_out_those_of_others(
    broker: Broker, joe: Wire, reader: Wire, stamp: Stamp
) -> None:
    stamp.answer = lambda message: json.loads(message.payload) and None  # of 1
    joe.send(*(publish("hook/a", b"{") for _ in range(64)))
    joe.ping()

    assert reader.publish("hook/a", b"1", qos=1).reason in (0, 0x10)
    assert stats(broker).breaker == "closed"
    assert stats(broker).failed == 64


def test_a_hook_that_keeps_hanging_is_not_called() -> None:
    class Hanging(Plugin):
        calls = 0

        @hook.publish("hook/#", timeout=0.01)
        async def decide(self, message: Message) -> None:
            self.calls += 1
            await asyncio.sleep(60)

    plugin = Hanging()
    plugins = [Porter(), plugin]
    with Broker(Settings(listeners=(CLOSED,)), plugins=plugins) as broker, Wire(broker.port) as joe:
        joe.connect("joe", username="joe", password=b"")

        def is_shut_out() -> bool:
            assert joe.publish("hook/a", qos=1, packet_id=1).reason == FAULT
            return stats(broker).shut_out >= 1

        # The timeouts of the last seconds count: on a busy machine it takes more than 20.
        eventually(is_shut_out)
        assert stats(broker).timed_out >= 20
        assert joe.publish("free", qos=1, packet_id=2).reason in (0, 0x10)


class Slow(Plugin):
    """Decides about logins, and about messages, which wait until the test goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.release = threading.Event(), threading.Event()
        self.order: list[str] = []

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"]))

    @hook.publish("slow/#", timeout=20)
    def decide(self, message: Message) -> None:
        """Blocks its thread; afterwards each message takes longer than a turn."""
        self.order.append(message.client.client_id)
        self.begun.set()
        self.release.wait()
        threading.Event().wait(TURN_S)


class AsyncSlow(Slow):
    """The same on the event loop, which only a coroutine that waits leaves free."""

    @hook.authenticate
    async def login(self, login: Login) -> Allow:  # type: ignore[override]
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"]))

    @hook.publish("slow/#", timeout=20)
    async def decide(self, message: Message) -> None:  # type: ignore[override]
        """Waits."""
        self.order.append(message.client.client_id)
        self.begun.set()
        await asyncio.to_thread(self.release.wait)


@pytest.fixture(params=[Slow, AsyncSlow], ids=["def", "async def"])
def slow(request: pytest.FixtureRequest) -> Iterator[Slow]:
    plugin: Slow = request.param()
    yield plugin
    plugin.release.set()


def test_logins_do_not_wait_for_the_messages_of_their_plugin(slow: Slow) -> None:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[slow]) as broker, ExitStack() as stack:
        for number in range(64):  # as many as `async def` hooks have places
            wire = stack.enter_context(Wire(broker.port))
            wire.connect(f"slow{number}", username="joe", password=b"")
            wire.send(*(publish("slow/a", b"") for _ in range(64)))
        assert slow.begun.wait(10)

        with Wire(broker.port) as other:
            assert other.connect("other", username="joe", password=b"").reason == 0
        assert not slow.release.is_set()
        slow.release.set()


def test_publishers_take_turns() -> None:
    slow = Slow()
    with Broker(Settings(listeners=(CLOSED,)), plugins=[slow]) as broker, ExitStack() as stack:
        many, one = (stack.enter_context(Wire(broker.port)) for _ in range(2))
        for name, wire in (("many", many), ("one", one)):
            wire.connect(name, username="joe", password=b"")
        many.send(*(publish("slow/a", b"") for _ in range(10)))
        assert slow.begun.wait(10)
        one.send(publish("slow/a", b"", qos=1, packet_id=1))
        eventually(lambda: broker.stats()["messages_received"] >= 11)
        slow.release.set()
        assert one.expect(PUBACK).reason in (0, 0x10)
        many.ping()
    assert slow.order.index("one") < 5
    assert slow.order.count("many") == 10, "each is asked about once"


def test_messages_that_wait_while_plugins_are_replaced_are_asked_about_again() -> None:
    slow, settings = Slow(), Settings(listeners=(CLOSED,))
    with Broker(settings, plugins=[slow]) as broker, ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.port)) for _ in range(3)]
        for number, wire in enumerate(wires):
            wire.connect(f"joe{number}", username="joe", password=b"")
            wire.send(publish("slow/a", b"", qos=1, packet_id=1))
        eventually(lambda: broker.stats()["messages_received"] >= 3)
        assert slow.begun.wait(10)

        broker.reload(settings)

        slow.release.set()
        assert [wire.expect(PUBACK).reason for wire in wires] == [0x10] * 3
    assert sorted(slow.order) == ["joe0", "joe1", "joe2"]


def test_messages_that_no_new_hook_wants_are_published_after_a_reload() -> None:
    slow, settings = Slow(), Settings(listeners=(CLOSED,))
    broker = Broker(settings, plugins=[Porter(), slow])
    with broker, Wire(broker.port) as first, Wire(broker.port) as second:
        for name, wire in (("first", first), ("second", second)):
            wire.connect(name, username="joe", password=b"")
            wire.send(publish("slow/a", b"", qos=1, packet_id=1))
            assert slow.begun.wait(10)
        eventually(lambda: broker.stats()["messages_received"] >= 2)

        broker._own_plugins = (Porter(),)
        broker.reload(settings)

        assert second.expect(PUBACK).reason == 0x10
        slow.release.set()
        assert first.expect(PUBACK).reason == 0x10


def test_messages_before_a_violation_are_published(joe: Wire, reader: Wire, stamp: Stamp) -> None:
    joe.send(publish("hook/a", b"before"), publish("wrong/+", b""))

    assert reader.receive_publish().payload == b"before"
    assert joe.expect(DISCONNECT).reason == 0x90


@pytest.mark.parametrize(
    "make",
    [
        lambda: hook.publish(Stamp.decide),  # type: ignore[arg-type]
        lambda: hook.publish("a#"),
        lambda: hook.publish("a", timeout=0),
        lambda: Replace(topic="a/#"),
        lambda: Replace(message_expiry_interval=2**32),
        lambda: Replace(message_expiry_interval=-1),
        lambda: Drop("because"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Callable[[], object]) -> None:
    with pytest.raises(Exception, match=r"topics|timeout|MQTT|allowed|message_expiry_interval"):
        make()


def test_a_message_can_be_made_by_hand() -> None:
    login = Login(client_id="c", username="joe")

    message = Message(login, topic="hook/a", payload=b"x", qos=1, user_properties=[("k", "v")])

    assert (message.topic, message.payload, message.qos) == ("hook/a", b"x", 1)
    assert message.user_properties == [("k", "v")]
    assert message.client.username == "joe"
