"""`mqttcore.testing`: hooks without a broker, called as a broker calls them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mqttcore import ConfigError
from mqttcore.plugin import (
    Allow,
    Ask,
    Degraded,
    Deny,
    Drop,
    Exchange,
    Grant,
    Login,
    Message,
    Plugin,
    PluginConfig,
    Replace,
    Secret,
    hook,
)
from mqttcore.testing import async_harness, harness


class Doors(Plugin):
    """Each kind of hook that decides."""

    class Config(PluginConfig):
        """A secret, and a number."""

        token: Secret[str]
        count: int = 3

    config: Config
    is_started = is_stopped = False

    async def start(self) -> None:
        """Notes its event loop."""
        self.loop = asyncio.get_running_loop()
        self.is_started = True

    async def stop(self) -> None:
        """Notes it."""
        self.is_stopped = True

    @hook.authenticate
    def first(self, login: Login) -> Allow | Deny | None:
        """Answers for doors."""
        if login.username != "door":
            return None
        return Allow(Grant()) if self.config.token.matches(login.password) else Deny()

    @hook.authenticate(timeout=0.05)
    async def second(self, login: Login) -> Allow | Deny | None:
        """Answers for guards, on the loop of `start`."""
        assert asyncio.get_running_loop() is self.loop
        if login.username == "hangs":
            await asyncio.sleep(60)
        if login.username == "raises":
            raise RuntimeError("no database")
        if login.username == "junk":
            return "yes"  # type: ignore[return-value] # what a wrong plugin does
        return Deny("banned") if login.username == "guard" else None

    @hook.authorize(action="publish", filter="door/+/open")
    def may_open(self, ask: Ask) -> bool | None:
        """Guards may."""
        return ask.client.username == "guard"

    @hook.authorize(action="subscribe", filter="door/#")
    async def may_see(self, ask: Ask) -> bool | None:
        """Nobody may."""
        return None

    @hook.enhanced_auth("M")
    async def talk(self, talk: Exchange) -> Allow | Deny:
        """Asks twice."""
        one = await talk.challenge(talk.data + b"1", username="ann")
        two = await talk.challenge(b"2")
        return Allow(Grant(), username="ann") if one + two == b"ab" else Deny("bad_credentials")


CONFIG = {"token": "secret"}


def login(username: str | None, password: bytes | None = None) -> Login:
    """A CONNECT."""
    return Login(client_id="7", username=username, password=password)


def test_the_first_hook_that_answers_decides() -> None:
    with harness(Doors, CONFIG) as doors:
        assert isinstance(doors.authenticate(login("door", b"secret")), Allow)
        assert isinstance(doors.authenticate(login("door", b"guess")), Deny)
        assert doors.authenticate(login("guard")) == Deny("banned")
        assert doors.authenticate(login("else")) is None


def test_a_plugin_is_started_and_stopped() -> None:
    with harness(Doors, CONFIG) as doors:
        plugin = doors.plugin
        assert plugin.is_started
        assert not plugin.is_stopped

    assert plugin.is_stopped


def test_the_same_on_the_event_loop_of_a_test() -> None:
    async def ask() -> None:
        async with async_harness(Doors, CONFIG) as doors:
            assert doors.plugin.loop is asyncio.get_running_loop()
            assert isinstance(await doors.authenticate(login("door", b"secret")), Allow)
            found = await doors.converse(login("x"), method="M", respond=[b"a", b"b"])
            assert isinstance(found.answer, Allow)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("username", "error", "text"),
    [
        ("hangs", TimeoutError, "^$"),
        ("raises", RuntimeError, "no database"),
        ("junk", TypeError, r"Doors.second answered with str; allowed: Allow, Deny, None"),
    ],
)
def test_what_a_broker_refuses_reaches_the_test(
    username: str, error: type[Exception], text: str
) -> None:
    with harness(Doors, CONFIG) as doors, pytest.raises(error, match=text):
        doors.authenticate(login(username))


def test_hooks_are_asked_about_what_their_filter_names() -> None:
    guard, ann = login("guard"), login("ann")
    with harness(Doors, CONFIG) as doors:
        assert doors.authorize(Ask(guard, action="publish", topic="door/7/open")) is True
        assert doors.authorize(Ask(ann, action="publish", topic="door/7/open")) is False
        assert doors.authorize(Ask(guard, action="publish", topic="door/7/state")) is None
        assert doors.authorize(Ask(guard, action="subscribe", topic="door/7/open")) is None
        assert doors.authorize(Ask(guard, action="subscribe", topic="#")) is None


def test_a_conversation_is_led_to_its_end() -> None:
    with harness(Doors, CONFIG) as doors:
        found = doors.converse(login("x"), method="M", data=b"0", respond=[b"a", b"b"])
        wrong = doors.converse(login("x"), method="M", respond=lambda asked: asked)

        assert isinstance(found.answer, Allow)
        assert found.challenges == (b"01", b"2")
        assert found.usernames == ("ann", None)
        assert wrong.answer == Deny("bad_credentials")
        with pytest.raises(LookupError, match="asks 2 times, but there are 1 answers"):
            doors.converse(login("x"), method="M", respond=[b"a"])
        with pytest.raises(LookupError, match="method 'N'"):
            doors.converse(login("x"), method="N")


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({}, "config.token: missing"),
        ({"token": "x", "tokens": 1}, "config.tokens: unknown key"),
        ({"token": "x", "count": "many"}, "config.count: expected a whole number"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        harness(Doors, config)


def test_a_configuration_may_be_the_object() -> None:
    config = Doors.Config(token=Secret("secret"), count=4)

    with harness(Doors, config) as doors:
        assert doors.plugin.config is config
    with harness(Plugin) as nothing:
        assert nothing.authenticate(login("ann")) is None


def test_a_plugin_that_does_not_start_fails_the_test() -> None:
    class Broken(Plugin):
        async def start(self) -> None:
            """Fails."""
            raise ConnectionError("no database")

    with pytest.raises(ConnectionError, match="no database"), harness(Broken):
        pass


@pytest.mark.parametrize(
    ("given", "is_same"),
    [
        ("secret", True),
        (b"secret", True),
        ("Secret", False),
        (b"", False),
        ("", False),
        (None, False),
        (b"secret\x00", False),
        ("sécret", False),
        (b"\xff", False),
    ],
)
def test_a_secret_is_compared_without_being_revealed(given: Any, is_same: bool) -> None:  # noqa: ANN401 - a table
    assert Secret("secret").matches(given) is is_same


def test_nothing_matches_an_empty_secret() -> None:
    assert not Secret("").matches("")
    assert not Secret("").matches(b"")


def test_hooks_of_messages_grants_and_timers_are_called() -> None:
    class Rest(Plugin):
        ticks = 0

        @hook.publish("a/#")
        def change(self, message: Message) -> Replace:
            return Replace(payload=message.payload + b"!")

        @hook.publish("b")
        def other(self, message: Message) -> Drop:
            return Drop()

        @hook.grant
        async def present(self, login: Login) -> Allow | None:
            return Allow() if login.username == "joe" else None

        @hook.every(1)
        def tick(self) -> None:
            self.ticks += 1

        @hook.health
        def check(self) -> Degraded:
            return Degraded("no database")

    with harness(Rest) as rest:
        login = Login(client_id="c", username="joe")
        assert rest.publish(Message(login, topic="a/b", payload=b"x")) == [Replace(payload=b"x!")]
        assert rest.grant(login) == Allow()
        assert rest.grant(Login(client_id="c")) is None
        rest.every()
        assert rest.plugin.ticks == 1
        assert rest.health() == [Degraded("no database")]
