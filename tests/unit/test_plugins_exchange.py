"""`@hook.enhanced_auth`: conversations with clients, and that they fail closed."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from mqttcore import Broker, PluginError, Settings
from mqttcore.config import Listener, ServerLimits
from mqttcore.errors import OverloadedError
from mqttcore.plugin import Allow, Deny, Exchange, Grant, Login, Plugin, event_loop, hook
from mqttcore.plugin.event_loop import CONCURRENT

from tests.eventually import eventually
from tests.wire import AUTH, CONNACK, DISCONNECT, Packet, Wire, auth, connect

EVERYTHING = Grant(publish=["#"], subscribe=["#"])
CLOSED = Listener(address="127.0.0.1:0", name="closed")
CONTINUE, AGAIN = 0x18, 0x19
BAD_CREDENTIALS, NOT_AUTHORIZED, FAILED, BUSY, NO_METHOD = 0x86, 0x87, 0x83, 0x89, 0x8C

Start = Callable[..., Broker]
Lead = Callable[[Exchange], Any]


class Leader(Plugin):
    """Leads every exchange as the test says, by coroutine."""

    lead: Any = None

    @hook.enhanced_auth("M", timeout=0.3)
    async def talk(self, talk: Exchange) -> Allow | Deny:
        """Leads."""
        return cast(Allow, await self.lead(talk))


def leading(lead: Lead) -> Leader:
    plugin = Leader()
    plugin.lead = lead
    return plugin


async def ask_once(talk: Exchange) -> Allow | Deny:
    answer = await talk.challenge(b"who?")
    if answer != b"right":
        return Deny("bad_credentials", "try again")
    return Allow(EVERYTHING, data=b"welcome", user_properties=[("region", "north")])


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts brokers with plugins; nobody is anonymous."""
    running: list[Broker] = []

    def started(*plugins: Plugin, **settings: Any) -> Broker:  # noqa: ANN401 - of Settings
        broker = Broker(Settings(listeners=(CLOSED,), **settings), plugins=plugins)
        running.append(broker)
        return broker.start()

    yield started
    for broker in running:
        broker.stop()


def dial(broker: Broker, client_id: str = "c", **fields: Any) -> Wire:  # noqa: ANN401 - of CONNECT
    """A client that has named the method and waits."""
    wire = Wire(broker.port)
    props = {"authentication_method": "M", "authentication_data": b"hello"}
    wire.send(connect(client_id, props={**props, **fields.pop("props", {})}, **fields))
    return wire


def step(wire: Wire, data: bytes, reason: int = CONTINUE) -> None:
    wire.send(auth(reason, {"authentication_method": "M", "authentication_data": data}))


def welcomed(broker: Broker) -> Wire:
    """A client for which `ask_once` had a yes."""
    wire = dial(broker)
    wire.expect(AUTH)
    step(wire, b"right")
    assert wire.expect(CONNACK).reason == 0
    return wire


def refusal(broker: Broker) -> Packet:
    """The CONNACK of a client that answers everything with "right"."""
    with dial(broker) as wire:
        while (packet := wire.receive()).kind == AUTH:
            step(wire, b"right")
        assert packet.kind == CONNACK
        return packet


# --- the exchange


def test_a_conversation_goes_to_and_fro(start: Start) -> None:
    broker = start(leading(ask_once))
    with dial(broker) as wire:
        asked = wire.expect(AUTH)
        step(wire, b"right")
        welcome = wire.expect(CONNACK)

    assert asked.reason == CONTINUE
    assert asked.property("authentication_method") == "M"
    assert asked.property("authentication_data") == b"who?"
    assert welcome.property("authentication_data") == b"welcome"
    assert welcome.property("user_property") == [("region", "north")]


def test_the_hook_sees_who_asks(start: Start) -> None:
    seen: list[Exchange] = []

    async def lead(talk: Exchange) -> Allow:
        seen.append(talk)
        return Allow(EVERYTHING)

    broker = start(leading(lead))
    with dial(broker, username="joe") as wire:
        wire.expect(CONNACK)
        step(wire, b"anew", AGAIN)
        wire.expect(AUTH)

    first, second = seen
    assert (first.method, first.data, first.is_again) == ("M", b"hello", False)
    assert (first.login.client_id, first.login.username) == ("c", "joe")
    assert (second.data, second.is_again) == (b"anew", True)


def test_many_rounds_are_one_call(start: Start) -> None:
    async def lead(talk: Exchange) -> Allow:
        heard = [await talk.challenge(bytes([number])) for number in range(5)]
        return Allow(EVERYTHING, data=b"".join(heard))

    broker = start(leading(lead))
    with dial(broker) as wire:
        for number in range(5):
            assert wire.expect(AUTH).property("authentication_data") == bytes([number])
            step(wire, b"%d" % number)
        assert wire.expect(CONNACK).property("authentication_data") == b"01234"

    eventually(lambda: broker.hook_stats()[0].allowed == 1)
    (stats,) = broker.hook_stats()
    assert (stats.point, stats.calls, stats.allowed) == ("enhanced_auth", 1, 1)


def test_empty_data_is_left_out(start: Start) -> None:
    async def lead(talk: Exchange) -> Allow:
        assert await talk.challenge(b"") == b""
        return Allow(EVERYTHING)

    with dial(start(leading(lead))) as wire:
        asked = wire.expect(AUTH)
        wire.send(auth(CONTINUE, {"authentication_method": "M"}))
        wire.expect(CONNACK)

    assert asked.property("authentication_data") is None


def test_a_challenge_may_have_a_reason_string(start: Start) -> None:
    async def lead(talk: Exchange) -> Deny:
        await talk.challenge(b"?", text="the code on the box")
        return Deny("bad_credentials", "not that one")

    broker = start(leading(lead))
    with dial(broker) as wire:
        words = wire.expect(AUTH).property("reason_string")
        step(wire, b"x")
        last = wire.expect(CONNACK)
    with dial(broker, props={"request_problem_information": 0}) as wire:
        silent = wire.expect(AUTH).property("reason_string")

    assert words == "the code on the box"
    assert (last.reason, last.property("reason_string")) == (BAD_CREDENTIALS, "not that one")
    assert silent is None


def test_a_client_authenticates_again(start: Start) -> None:
    with welcomed(start(leading(ask_once))) as wire:
        step(wire, b"", AGAIN)
        asked = wire.expect(AUTH)
        wire.ping()
        step(wire, b"right")
        done = wire.expect(AUTH)

    assert (asked.reason, done.reason) == (CONTINUE, 0)
    assert done.property("authentication_data") == b"welcome"


def test_who_fails_again_is_disconnected(start: Start) -> None:
    with welcomed(start(leading(ask_once))) as wire:
        step(wire, b"", AGAIN)
        wire.expect(AUTH)
        step(wire, b"wrong")
        last = wire.expect(DISCONNECT)
        wire.expect_close()

    assert (last.reason, last.property("reason_string")) == (NOT_AUTHORIZED, "try again")


def test_no_other_hook_is_asked_about_the_client(start: Start) -> None:
    class Both(Leader):
        @hook.authenticate()
        def login(self, login: Login) -> Allow:
            raise AssertionError("asked")

    plugin = Both()
    plugin.lead = ask_once

    welcomed(start(plugin)).close()


def test_other_methods_are_refused(start: Start) -> None:
    with dial(start(leading(ask_once)), props={"authentication_method": "N"}) as wire:
        assert wire.expect(CONNACK).reason == NO_METHOD


# --- hooks that fail


@pytest.mark.parametrize(
    "answer", [None, True, "yes", Grant(), Allow(cast(Grant, "everything")), object()]
)
def test_an_answer_of_the_wrong_type_refuses(start: Start, answer: object) -> None:
    async def lead(talk: Exchange) -> object:
        await talk.challenge(b"?")
        return answer

    assert refusal(start(leading(lead))).reason == FAILED


@pytest.mark.parametrize("first", [True, False])
def test_a_hook_that_raises_refuses(
    start: Start, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def lead(talk: Exchange) -> Allow:
        if not first:
            await talk.challenge(b"?")
        raise KeyError("lost")

    assert refusal(start(leading(lead))).reason == FAILED
    assert "Leader.talk" in caplog.text


@pytest.mark.parametrize("first", [True, False])
def test_a_hook_that_hangs_refuses_in_time_and_is_cancelled(start: Start, first: bool) -> None:
    ended: list[str] = []

    async def lead(talk: Exchange) -> Allow:
        if not first:
            await talk.challenge(b"?")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return Allow(EVERYTHING)

    broker = start(leading(lead))

    assert refusal(broker).reason == FAILED
    eventually(lambda: ended == ["cancelled"])
    eventually(lambda: broker.hook_stats()[0].timed_out == 1)


def test_the_time_of_the_client_is_not_the_hooks(start: Start) -> None:
    """A client may think for longer than the hook may take for a step."""
    waiting = asyncio.Event()

    async def lead(talk: Exchange) -> Allow:
        await talk.challenge(b"?")
        return Allow(EVERYTHING)

    broker = start(leading(lead))
    with dial(broker) as slow:
        slow.expect(AUTH)
        asked_at = time.monotonic()
        # two whole timeouts of hooks that hang pass on the same loop
        other = leading(lambda _: waiting.wait())
        with dial(start(other)) as hung:
            assert hung.expect(CONNACK).reason == FAILED
        with dial(start(leading(lambda _: waiting.wait()))) as hung:
            assert hung.expect(CONNACK).reason == FAILED
        thought_s = time.monotonic() - asked_at
        step(slow, b"x")

        assert slow.expect(CONNACK).reason == 0
    eventually(lambda: broker.hook_stats()[0].in_flight == 0)
    assert broker.hook_stats()[0].run_s < thought_s


def test_an_overloaded_hook_says_busy(start: Start) -> None:
    async def lead(_: Exchange) -> Allow:
        raise OverloadedError("full")

    assert refusal(start(leading(lead))).reason == BUSY


def test_a_hook_that_keeps_failing_is_left_alone(start: Start) -> None:
    async def lead(_: Exchange) -> Allow:
        raise KeyError

    broker = start(leading(lead))

    assert {refusal(broker).reason for _ in range(22)} == {FAILED}
    eventually(lambda: broker.hook_stats()[0].shut_out == 2)


def test_a_challenge_that_no_packet_can_carry_raises(start: Start) -> None:
    seen: list[BaseException] = []

    async def lead(talk: Exchange) -> Deny:
        try:
            await talk.challenge(bytes(65_536))
        except ValueError as error:
            seen.append(error)
        return Deny("banned")

    assert refusal(start(leading(lead))).reason == 0x8A
    assert "65535" in str(seen[0])


def test_two_challenges_at_once_raise(start: Start) -> None:
    async def lead(talk: Exchange) -> Allow:
        await asyncio.gather(talk.challenge(b"1"), talk.challenge(b"2"))
        return Allow(EVERYTHING)

    assert refusal(start(leading(lead))).reason == FAILED


def test_last_data_belongs_to_an_exchange(start: Start) -> None:
    class Wrong(Plugin):
        @hook.authenticate()
        def login(self, login: Login) -> Allow:
            return Allow(EVERYTHING, data=b"x")

    with Wire(start(Wrong()).port) as wire:
        assert wire.connect("c", username="joe", reason=0x88).reason == 0x88


# --- clients that fail


def test_a_client_that_leaves_cancels_the_hook(start: Start) -> None:
    ended: list[str] = []

    async def lead(talk: Exchange) -> Allow:
        try:
            await talk.challenge(b"?")
        finally:
            ended.append("ended")
        return Allow(EVERYTHING)

    broker = start(leading(lead))
    with dial(broker) as wire:
        wire.expect(AUTH)
    with dial(broker) as wire:
        wire.expect(AUTH)
        wire.send(b"\xe0\x00")
        wire.expect_close()

    eventually(lambda: len(ended) == 2)
    stats = broker.hook_stats()[0]
    assert (stats.calls, stats.failed, stats.timed_out, stats.breaker) == (2, 0, 0, "closed")


def test_an_answer_after_the_client_left_does_nothing(start: Start) -> None:
    ended: list[str] = []

    async def lead(talk: Exchange) -> Allow:
        try:
            await talk.challenge(b"?")
        except asyncio.CancelledError:
            ended.append("left")
        return Allow(EVERYTHING)  # all the same

    broker = start(leading(lead))
    with dial(broker) as wire:
        wire.expect(AUTH)

    eventually(lambda: ended == ["left"])
    eventually(lambda: broker.hook_stats()[0].in_flight == 0)
    assert broker.clients() == []
    assert broker.hook_stats()[0].allowed == 0


def test_a_client_that_says_nothing_is_closed_with_its_listener_s_deadline(start: Start) -> None:
    broker = start(leading(ask_once), limits=ServerLimits(connect_deadline_s=0.3))
    with dial(broker) as wire:
        wire.expect(AUTH)
        wire.expect_close()

    eventually(lambda: broker.hook_stats()[0].in_flight == 0)


def test_clients_that_think_take_no_place_of_others(start: Start) -> None:
    broker = start(leading(ask_once))
    thinking = [dial(broker, f"c{number}") for number in range(CONCURRENT + 6)]
    for wire in thinking:
        wire.expect(AUTH)

    welcomed(broker).close()

    for wire in thinking:
        step(wire, b"right")
        assert wire.expect(CONNACK).reason == 0
        wire.close()


def test_clients_with_a_challenge_are_bounded(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "CHALLENGED_MAX", 2)
    broker = start(leading(ask_once))
    with dial(broker, "a") as first, dial(broker, "b") as second:
        first.expect(AUTH)
        second.expect(AUTH)

        assert refusal(broker).reason == BUSY

        step(first, b"right")
        assert first.expect(CONNACK).reason == 0
        welcomed(broker).close()
    assert broker.hook_stats()[0].breaker == "closed"


def test_a_reload_ends_the_exchanges_of_the_old_plugins(start: Start) -> None:
    broker = start(leading(ask_once))
    with dial(broker) as wire, welcomed(broker) as again:
        wire.expect(AUTH)
        step(again, b"", AGAIN)
        again.expect(AUTH)

        broker.reload(Settings(listeners=(CLOSED,)))
        step(wire, b"right")
        step(again, b"right")

        assert wire.expect(CONNACK).reason in (FAILED, BUSY)
        assert again.expect(DISCONNECT).reason in (FAILED, BUSY)
    welcomed(broker).close()


# --- definitions


def test_two_hooks_for_one_method_are_refused_at_start() -> None:
    plugins = [leading(ask_once), leading(ask_once)]
    broker = Broker(Settings(listeners=(CLOSED,)), plugins=plugins)

    with pytest.raises(PluginError, match="same method 'M'"):
        broker.start()


def test_a_conversation_is_a_coroutine() -> None:
    with pytest.raises(TypeError, match="async def"):

        @hook.enhanced_auth("M")  # type: ignore[type-var]
        def talk(self: Plugin, talk: Exchange) -> Deny:
            return Deny()


@pytest.mark.parametrize("method", ["", "\0", "x" * 65_536])
def test_a_method_is_text_that_a_packet_can_carry(method: str) -> None:
    with pytest.raises(ValueError, match="method must have"):
        hook.enhanced_auth(method)


def test_a_hook_is_tried_without_a_network(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def client(data: bytes, _: str | None, _username: str | None) -> bytes:
        return b"right" if data == b"who?" else b""

    talk = Exchange(Login(client_id="c"), method="M", ask=client)

    assert asyncio.run(ask_once(talk)) == Allow(
        EVERYTHING, data=b"welcome", user_properties=[("region", "north")]
    )
    assert repr(talk).startswith("<Exchange 'M' <Login")
