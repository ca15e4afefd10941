"""Hook x fault: a plugin misbehaves in one hook, a client tries to get past it, others go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import (
    Allow,
    Ask,
    Event,
    Exchange,
    Grant,
    Login,
    Message,
    Plugin,
    Replace,
    Subscribe,
    hook,
)

from tests.eventually import eventually
from tests.wire import (
    CONNACK,
    PINGRESP,
    PUBLISH,
    SUBACK,
    Will,
    Wire,
    connect,
    pingreq,
    publish,
    subscribe,
)

TIMEOUT_S = 0.2
ATTEMPTS = 3
FLOOD = 200
CONTROL = "$CONTROL/hook/v1"
CLOSED = Listener(address="127.0.0.1:0", name="closed")
EVERYTHING = Grant(publish=["#"], subscribe=["#"])

Argument = Login | Ask | Message | Subscribe | Exchange | Sequence[Event]
Fault = Callable[[threading.Event], object]
"""Misbehaves in a hook; the event ends faults that would last for ever."""


def raise_error(_: threading.Event) -> object:
    """An exception."""
    raise RuntimeError("no database")


def hang(over: threading.Event) -> object:
    """A call that does not return, with the interpreter free."""
    over.wait()
    return "too late"


def block(over: threading.Event) -> object:
    """A loop that keeps the interpreter busy."""
    while not over.is_set():
        pass
    return "too late"


def flood(over: threading.Event) -> object:
    """A slow hook with many questions behind it: `FLOOD` clients at once."""
    over.wait(TIMEOUT_S / 2)
    raise RuntimeError("overloaded")


def wrong_type(_: threading.Event) -> object:
    """An answer that the hook must not give."""
    return {"allow": True}


def exhaust_memory(_: threading.Event) -> object:
    """More memory than there is."""
    return bytearray(1 << 62)


def system_exit(_: threading.Event) -> object:
    """An exit of the whole process."""
    raise SystemExit(1)


FAULTS: dict[str, Fault] = {
    "raise": raise_error,
    "hang": hang,
    "block": block,
    "flood": flood,
    "wrong type": wrong_type,
    "memory": exhaust_memory,
    "SystemExit": system_exit,
}


class Healthy(Plugin):
    """The other plugin: it lets "friend" in, stamps its messages, and is told about it."""

    def __init__(self) -> None:
        super().__init__()
        self.told = 0

    @hook.authenticate
    def login(self, login: Login) -> Allow | None:
        """Lets in."""
        return Allow(EVERYTHING) if login.username == "friend" else None

    @hook.grant
    def present(self, login: Login) -> Allow | None:
        """Lets stay."""
        return self.login(login)

    @hook.publish("friend/#")
    def stamp(self, message: Message) -> Replace:
        """Stamps."""
        return Replace(payload=message.payload + b"!")

    @hook.events("connected", every=0)
    def tell(self, events: Sequence[Event]) -> None:
        """Counts."""
        self.told += len(events)


class Victim(Plugin):
    """The plugin with the fault; its other hooks work."""

    fault: Callable[[], Any] = staticmethod(lambda: None)

    @hook.authenticate
    def login(self, login: Login) -> Allow | None:
        """Lets "victim" in, who may do what the other hooks say."""
        grant = Grant(
            publish=["hook/#", "held/#", "friend/#", CONTROL],
            subscribe=["#", "$CONTROL/#"],
            deny=["ask/denied"],
        )
        return Allow(grant) if login.username == "victim" else None


def faulty(point: str, *, is_async: bool) -> type[Victim]:
    """A victim whose hook ``point`` misbehaves, as `def` or `async def`."""
    decorators: dict[str, Any] = {
        "authenticate": hook.authenticate(timeout=TIMEOUT_S),
        "grant": hook.grant(timeout=TIMEOUT_S),
        "enhanced_auth": hook.enhanced_auth("X", timeout=TIMEOUT_S),
        "authorize": hook.authorize(action="publish", filter="ask/#", timeout=TIMEOUT_S, cache=0),
        "connect": hook.connect(timeout=TIMEOUT_S),
        "subscribe": hook.subscribe(timeout=TIMEOUT_S),
        "publish": hook.publish("hook/#", timeout=TIMEOUT_S),
        "deliver": hook.deliver("held/#", timeout=TIMEOUT_S),
        "will": hook.will("hook/#", timeout=TIMEOUT_S),
        "control": hook.control(CONTROL, timeout=TIMEOUT_S),
        "events": hook.events("connected", every=0),
        "every": hook.every(0.02, timeout=TIMEOUT_S),
        "health": hook.health(every=0.02, timeout=TIMEOUT_S),
    }

    def ask(self: Victim, *about: Argument) -> Any:  # noqa: ANN401 - any answer
        return None if is_about_others(about) else self.fault()

    async def ask_async(self: Victim, *about: Argument) -> Any:  # noqa: ANN401 - as above
        await asyncio.sleep(0)
        return None if is_about_others(about) else self.fault()

    function = ask_async if is_async else ask
    name = "login" if point == "authenticate" else "misbehave"
    function.__name__ = name
    return type("Faulty", (Victim,), {name: decorators[point](function)})


def is_about_others(about: Sequence[Argument]) -> bool:
    """Whether a hook without a filter is asked about another client than the victim."""
    return any(
        (isinstance(one, Login) and one.username != "victim")
        or (isinstance(one, Subscribe) and one.client.username != "victim")
        for one in about
    )


def login_gets_in(broker: Broker, **connecting: Any) -> bool:  # noqa: ANN401 - of CONNECT
    """Whether a CONNECT gets a CONNACK without an error."""
    with Wire(broker.port) as wire:
        wire.send(connect("victim", username="victim", password=b"", **connecting))
        return wire.expect(CONNACK).reason < 0x80


def stays_connected(broker: Broker) -> bool:
    """Whether a client that has to be asked about again stays."""
    with Wire(broker.port) as wire:
        wire.connect("victim", username="victim", password=b"")
        broker.invalidate(username="victim")
        found = wire.receive_until_close()
        return not found or found[-1].reason < 0x80


def is_delivered(broker: Broker, topic: str) -> bool:
    """Whether a message that has to be asked about reaches a subscriber, or is acknowledged."""
    with Wire(broker.port) as reader, Wire(broker.port) as wire:
        reader.connect("reader", username="friend", password=b"")
        reader.subscribe(("#", 0))
        wire.connect("victim", username="victim", password=b"")
        reason = wire.publish(topic, b"secret", qos=1).reason
        reader.publish("friend/after", b"")
        return reason < 0x80 or reader.expect(PUBLISH).payload == b"secret"


def is_sent(broker: Broker) -> bool:
    """Whether a subscriber gets a message that has to be asked about."""
    with Wire(broker.port) as reader, Wire(broker.port) as wire:
        reader.connect("reader", username="friend", password=b"")
        reader.subscribe(("held/#", 1), ("friend/#", 1))
        wire.connect("friend", username="friend", password=b"")
        wire.publish("held/a", b"secret", qos=1)
        wire.publish("friend/after", b"", qos=1)
        return reader.expect(PUBLISH).payload == b"secret"


def is_subscribed(broker: Broker) -> bool:
    """Whether a filter that has to be asked about is granted, or gets messages."""
    with Wire(broker.port) as wire:
        wire.connect("victim", username="victim", password=b"")
        wire.send(subscribe(("friend/secret", 0)))
        reason = wire.expect(SUBACK).reason
        wire.send(publish("friend/secret", b"secret"))
        wire.send(pingreq())
        return reason < 0x80 or wire.receive().kind != PINGRESP


def is_answered(broker: Broker) -> bool:
    """Whether a request gets another answer than that there is none, or a success code."""
    with Wire(broker.port) as wire:
        wire.connect("victim", username="victim", password=b"")
        wire.subscribe((f"{CONTROL}/response", 0))
        reason = wire.publish(CONTROL, b"secret", qos=1).reason
        return reason < 0x80 or b"no plugin answered" not in wire.receive_publish().payload


def nothing(broker: Broker) -> bool:
    """Hooks of events and of time let nothing through: no client waits for them."""
    login_gets_in(broker)
    return False


ENHANCED = {"authentication_method": "X", "authentication_data": b"hello"}
ATTEMPT: dict[str, Callable[[Broker], bool]] = {
    "authenticate": login_gets_in,
    "grant": stays_connected,
    "enhanced_auth": lambda broker: login_gets_in(broker, props=ENHANCED),
    "authorize": lambda broker: is_delivered(broker, "ask/a"),
    "connect": login_gets_in,
    "subscribe": is_subscribed,
    "publish": lambda broker: is_delivered(broker, "hook/a"),
    "deliver": is_sent,
    "will": lambda broker: login_gets_in(broker, will=Will(topic="hook/a")),
    "control": is_answered,
    "events": nothing,
    "every": nothing,
    "health": nothing,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One hook with one fault."""

    point: str
    fault: str
    is_async: bool

    @property
    def title(self) -> str:
        """How a test or a table names it."""
        return f"{self.point}, {'async def' if self.is_async else 'def'}, {self.fault}"

    def run(self) -> int:
        """The number of attempts that got through; raises if others were affected."""
        with self._broker() as (broker, healthy):
            if self.fault == "flood":
                self._flood(broker)
            let_through = sum(ATTEMPT[self.point](broker) for _ in range(ATTEMPTS))
            others_go_on(broker, healthy)
        return let_through

    @contextmanager
    def _broker(self) -> Iterator[tuple[Broker, Healthy]]:
        over = threading.Event()
        healthy, victim = Healthy(), faulty(self.point, is_async=self.is_async)()
        fault = FAULTS[self.fault]
        victim.fault = lambda: fault(over)
        try:
            with Broker(Settings(listeners=(CLOSED,)), plugins=[healthy, victim]) as broker:
                try:
                    yield broker, healthy
                finally:
                    over.set()
        finally:
            over.set()

    def _flood(self, broker: Broker) -> None:
        """Many questions at once, none of which is waited for."""
        wires: list[Wire] = []
        try:
            for number in range(FLOOD):
                wire = Wire(broker.port)
                wires.append(wire)
                props = ENHANCED if self.point == "enhanced_auth" else None
                hello = connect(f"f{number}", username="victim", password=b"", props=props)
                topics = {"publish": "hook/a", "deliver": "held/a", "control": CONTROL}
                message = topics.get(self.point, "ask/a")
                wanted = "held/#" if self.point == "deliver" else "friend/secret"
                asking = subscribe((wanted, 0))
                wire.send(hello, asking, publish(message, b"secret", qos=1, packet_id=2))
        finally:
            for wire in wires:
                wire.close()


def friend_gets_in(broker: Broker) -> bool:
    """Whether a client of the other plugin is connected and subscribed."""
    with Wire(broker.port) as wire:
        wire.send(connect("friend", username="friend", password=b""))
        if wire.expect(CONNACK).reason >= 0x80:
            return False
        wire.send(subscribe(("friend/#", 0)))
        return wire.expect(SUBACK).reason < 0x80


def others_go_on(broker: Broker, healthy: Healthy) -> None:
    """The broker runs, and the hooks of the other plugin are asked and told."""
    # hooks of connect and subscribe decide about all clients: an open breaker refuses them
    eventually(lambda: friend_gets_in(broker))
    told = healthy.told
    with Wire(broker.port) as wire:
        wire.connect("friend", username="friend", password=b"")
        wire.subscribe(("friend/#", 0))
        wire.send(publish("friend/a", b"hello"))
        assert wire.receive_publish().payload == b"hello!"
        assert broker.invalidate(username="friend") >= 1
        wire.ping()
    eventually(lambda: healthy.told > told)
    assert broker.is_running


def cells() -> list[Cell]:
    """All of them; a conversation is always `async def`."""
    return [
        Cell(point, fault, is_async)
        for point in ATTEMPT
        for fault in FAULTS
        for is_async in (False, True)
        if is_async or point != "enhanced_auth"
    ]
