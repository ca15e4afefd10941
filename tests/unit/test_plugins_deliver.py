"""Deliver hooks: they decide for each subscriber, keep the order, and fail closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.errors import OverloadedError
from mqttcore.plugin import (
    Allow,
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
from mqttcore.testing import harness

from tests.eventually import eventually
from tests.message_plugins import Decider
from tests.wire import Wire, connect, payloads, publish

CLOSED = Listener(address="127.0.0.1:0", name="closed")
KEPT = {"session_expiry_interval": 600}


class Porter(Plugin):
    """Lets everybody in."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"]))


class Veil(Decider):
    """Answers for each delivery with what the test handed in, or calls it."""

    @hook.deliver("hook/#", timeout=0.3)
    def decide(self, message: Message) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answered(message)


class AsyncVeil(Decider):
    """The same on the event loop."""

    @hook.deliver("hook/#", timeout=0.3)
    async def decide(self, message: Message) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answered(message)


@pytest.fixture(params=[Veil, AsyncVeil], ids=["def", "async def"])
def veil(request: pytest.FixtureRequest) -> Veil | AsyncVeil:
    kind: type[Veil | AsyncVeil] = request.param
    return kind()


@pytest.fixture
def broker(veil: Veil) -> Iterator[Broker]:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[Porter(), veil]) as running:
        yield running


@pytest.fixture
def joe(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"pw")
        yield wire


def subscriber(broker: Broker, stack: ExitStack, name: str, *, qos: int = 2) -> Wire:
    """A subscriber to everything."""
    wire = stack.enter_context(Wire(broker.port))
    wire.connect(name, username=name, password=b"pw", clean=False, props=KEPT)
    wire.subscribe(("#", qos))
    return wire


@pytest.fixture
def reader(broker: Broker) -> Iterator[Wire]:
    with ExitStack() as stack:
        yield subscriber(broker, stack, "ann")


def stats(broker: Broker) -> HookStats:
    (found,) = [one for one in broker.hook_stats() if one.point == "deliver"]
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_subscriber_gets_what_the_hook_left_for_it(
    broker: Broker, joe: Wire, reader: Wire, veil: Veil, qos: int
) -> None:
    def answer(message: Message) -> Replace | Drop | None:
        if message.client.username == "bob":
            return Drop()
        return Replace(payload=b"for ann", user_properties=[("seen", "yes")])

    veil.answer = answer
    with ExitStack() as stack:
        bob = subscriber(broker, stack, "bob")

        joe.publish("hook/a", b"body", qos=qos)
        joe.publish("free", b"after it", qos=qos)

        found = reader.receive_publish()
        assert (found.payload, found.qos) == (b"for ann", qos)
        assert found.property("user_property") == [("seen", "yes")]
        assert reader.receive_publish().payload == b"after it"
        assert bob.receive_publish().payload == b"after it"
    assert sorted(str(message.client.client_id) for message in veil.seen) == ["ann", "bob"]
    assert {message.payload for message in veil.seen} == {b"body"}
    assert broker.stats()["dropped_hook"] == 1


def test_messages_of_one_subscriber_keep_their_order(joe: Wire, reader: Wire, veil: Veil) -> None:
    veil.answer = lambda message: Replace(payload=message.payload + b"!")
    topics = ["hook/a", "free"]

    joe.send(*(publish(topics[number % 2], b"%d" % number) for number in range(200)))

    found = [reader.receive_publish() for _ in range(200)]
    expected = [b"%d!" % number if number % 2 == 0 else b"%d" % number for number in range(200)]
    held, free = (
        [one.payload for one in found if one.topic == topic] for topic in ("hook/a", "free")
    )
    assert (held, free) == (expected[::2], expected[1::2])


def test_only_messages_on_the_filters_topics_reach_python(
    joe: Wire, reader: Wire, veil: Veil
) -> None:
    joe.publish("other/a", b"1")
    joe.publish("hook", b"2")

    assert payloads([reader.receive_publish() for _ in range(2)]) == [b"1", b"2"]
    assert payloads_of(veil) == [b"2"]


def payloads_of(veil: Veil) -> list[bytes]:
    return [bytes(message.payload) for message in veil.seen]


def overloaded(message: Message) -> None:
    raise OverloadedError("too much")


@pytest.mark.parametrize(
    "answer",
    [
        lambda message: 1 / 0,
        overloaded,
        True,
        "text",
        Deny("not_authorized"),
        DisconnectClient("not_authorized"),
        Replace(topic="moved"),
        Replace(retain=True),
        Replace(payload=b"x", content_type="\0"),
    ],
)
def test_what_is_no_answer_is_not_delivered(
    broker: Broker, joe: Wire, reader: Wire, veil: Veil, answer: object
) -> None:
    veil.answer = answer

    assert joe.publish("hook/a", b"kept away", qos=1).reason == 0

    joe.publish("free", b"after it")
    assert reader.receive_publish().payload == b"after it"
    eventually(lambda: stats(broker).failed + stats(broker).denied == 1)
    eventually(lambda: broker.stats()["dropped_hook"] == 1)


def test_retained_messages_are_asked_about(broker: Broker, joe: Wire, veil: Veil) -> None:
    veil.answer = lambda message: Drop() if message.topic == "hook/no" else None
    for topic in ("hook/no", "hook/yes", "hook/too"):
        joe.publish(topic, topic.encode(), qos=1, retain=True)

    with ExitStack() as stack:
        wire = subscriber(broker, stack, "late")
        found = [wire.receive_publish() for _ in range(2)]

    assert sorted(payloads(found)) == [b"hook/too", b"hook/yes"]
    assert all(one.retain for one in found)


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_of_an_offline_session_are_asked_about_when_it_is_back(
    broker: Broker, joe: Wire, veil: Veil, qos: int
) -> None:
    veil.answer = lambda message: Replace(payload=b"decided")
    with ExitStack() as stack:
        subscriber(broker, stack, "away").disconnect()
    eventually(lambda: broker.stats()["clients_connected"] == 1)

    joe.publish("hook/a", b"body", qos=qos)
    assert not veil.seen

    with Wire(broker.port) as wire:
        wire.send(connect("away", username="away", password=b"pw", clean=False, props=KEPT))
        wire.receive()
        assert wire.receive_publish().payload == b"decided"
    assert payloads_of(veil) == [b"body"]


class Slow(Porter):
    """Decides about deliveries when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.release = threading.Event(), threading.Event()

    @hook.deliver("slow/#", timeout=20)
    def decide(self, message: Message) -> Replace:
        """Waits, and marks the message."""
        self.begun.set()
        self.release.wait(20)
        return Replace(payload=message.payload + b"!")


def test_a_takeover_while_a_hook_decides_loses_nothing() -> None:
    slow = Slow()
    with Broker(Settings(listeners=(CLOSED,)), plugins=[slow]) as broker, ExitStack() as stack:
        first = subscriber(broker, stack, "ann")
        joe = stack.enter_context(Wire(broker.port))
        joe.connect("joe", username="joe", password=b"")
        joe.publish("slow/a", b"1", qos=1)
        joe.publish("slow/a", b"2", qos=2)
        assert slow.begun.wait(10)

        second = stack.enter_context(Wire(broker.port))
        second.connect("ann", username="ann", password=b"", clean=False, props=KEPT)
        first.receive_until_close()
        slow.release.set()

        assert payloads([second.receive_publish() for _ in range(2)]) == [b"1!", b"2!"]
        assert broker.stats()["dropped_hook"] == 0


@pytest.mark.parametrize("stays", [True, False])
def test_deliveries_that_wait_while_plugins_are_replaced(*, stays: bool) -> None:
    """The hook that runs answers still; what waits behind it is for the new plugins to decide."""
    slow, settings = Slow(), Settings(listeners=(CLOSED,))
    with Broker(settings, plugins=[slow]) as broker, ExitStack() as stack:
        ann, bob, joe = (stack.enter_context(Wire(broker.port)) for _ in range(3))
        for name, wire in (("ann", ann), ("bob", bob), ("joe", joe)):
            wire.connect(name, username=name, password=b"")
            wire.subscribe((f"slow/{name}", 1))
        joe.publish("slow/ann", b"1", qos=1)
        assert slow.begun.wait(10)
        joe.publish("slow/bob", b"1", qos=1)

        if not stays:
            broker._own_plugins = (Porter(),)
        broker.reload(settings)
        slow.release.set()

        assert ann.receive_publish().payload == b"1!"
        assert bob.receive_publish().payload == (b"1!" if stays else b"1")


class Hanging(Porter):
    """Hangs, for one subscriber."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    @hook.deliver("hook/#", timeout=0.2)
    def decide(self, message: Message) -> None:
        """Hangs."""
        if message.client.username == "bob":
            self.over.wait(20)


def test_a_hook_that_hangs_for_one_subscriber_serves_the_others() -> None:
    plugin = Hanging()
    with Broker(Settings(listeners=(CLOSED,)), plugins=[plugin]) as broker, ExitStack() as stack:
        bob, ann = (subscriber(broker, stack, name) for name in ("bob", "ann"))
        joe = stack.enter_context(Wire(broker.port))
        joe.connect("joe", username="joe", password=b"")
        joe.publish("hook/a", b"for ann", qos=1)
        joe.publish("free", b"for both", qos=1)

        assert payloads([ann.receive_publish() for _ in range(2)]) == [b"for ann", b"for both"]
        assert bob.receive_publish().payload == b"for both"
        plugin.over.set()
        eventually(lambda: stats(broker).timed_out == 1)


class Stuck(Porter):
    """Hangs, on one message."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    @hook.deliver("hook/#", timeout=0.2)
    def decide(self, message: Message) -> None:
        """Hangs."""
        if message.payload == b"stuck":
            self.over.wait(20)


def test_a_hook_that_hangs_on_a_retained_message_keeps_its_batch_away_and_the_next_one_comes() -> (
    None
):
    plugin = Stuck()
    with Broker(Settings(listeners=(CLOSED,)), plugins=[plugin]) as broker, ExitStack() as stack:
        joe = stack.enter_context(Wire(broker.port))
        joe.connect("joe", username="joe", password=b"")
        for number in range(100):
            payload = b"stuck" if number == 50 else b"%d" % number
            joe.publish(f"hook/{number}", payload, qos=1, retain=True)

        late = subscriber(broker, stack, "late", qos=0)
        eventually(lambda: stats(broker).timed_out == 1)
        eventually(lambda: stats(broker).passed + broker.stats()["dropped_hook"] >= 100)

        dropped = broker.stats()["dropped_hook"]
        assert 1 < dropped <= 64
        found = payloads([late.receive_publish() for _ in range(100 - dropped)])
        plugin.over.set()
    assert len(set(found)) == 100 - dropped
    assert b"stuck" not in found


class Upper(Porter):
    """The second of two."""

    @hook.deliver("hook/#")
    def decide(self, message: Message) -> Replace:
        """In capitals."""
        return Replace(payload=message.payload.upper())


def test_each_hook_sees_what_the_one_before_it_left() -> None:
    veil = Veil()
    veil.answer = lambda message: Replace(payload=message.payload + b" first")
    plugins = [veil, Upper()]
    with Broker(Settings(listeners=(CLOSED,)), plugins=plugins) as broker, ExitStack() as stack:
        ann = subscriber(broker, stack, "ann")
        joe = stack.enter_context(Wire(broker.port))
        joe.connect("joe", username="joe", password=b"")

        joe.publish("hook/a", b"body", qos=1)

        assert ann.receive_publish().payload == b"BODY FIRST"


def test_no_subscriber_is_left_out() -> None:
    plugin = Upper()
    with Broker(Settings(listeners=(CLOSED,)), plugins=[plugin]) as broker, ExitStack() as stack:
        readers = [stack.enter_context(Wire(broker.port)) for _ in range(100)]
        for number, wire in enumerate(readers):
            wire.connect(f"r{number}", username="r", password=b"")
            wire.subscribe(("hook/#", 1))
        joe = stack.enter_context(Wire(broker.port))
        joe.connect("joe", username="joe", password=b"")

        for _ in range(5):
            joe.publish("hook/a", b"body", qos=1)

        for wire in readers:
            assert payloads([wire.receive_publish() for _ in range(5)]) == [b"BODY"] * 5
        assert broker.stats()["dropped_hook"] == 0


def test_a_hook_is_called_by_the_harness() -> None:
    with harness(Upper) as upper:
        login = Login(client_id="c", username="ann")
        (answer,) = upper.deliver(Message(login, topic="hook/a", payload=b"body"))

        assert upper.deliver(Message(login, topic="other")) == []

    assert isinstance(answer, Replace)
    assert answer.payload == b"BODY"


def test_the_filter_is_required() -> None:
    with pytest.raises(TypeError, match=r"name the topics: @hook\.deliver"):
        hook.deliver(Veil.decide)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="timeout"):
        hook.deliver("a/#", timeout=0)
