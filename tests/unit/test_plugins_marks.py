"""What decorators note on hooks, and the configuration that a plugin declares."""

import dataclasses
from typing import Any, cast, get_args

import pytest
from mqttcore.plugin import (
    Allow,
    Ask,
    Deny,
    Event,
    Exchange,
    Login,
    Plugin,
    PluginConfig,
    Secret,
    hook,
)
from mqttcore.plugin.hooks import METHOD_BYTES_MAX, EventKind
from mqttcore.plugin.marks import MARK, Mark


async def lead(_self: object, _talk: Exchange) -> Allow | Deny:
    return Deny()


async def decide(_self: object, _login: Login) -> Allow | None:
    return None


def ask(_self: object, _ask: Ask) -> bool | None:
    return None


def tell(_self: object, _events: list[Event]) -> None:
    return None


def noted(function: object) -> Mark:
    mark: Mark = getattr(function, MARK)
    return mark


def test_a_decorator_notes_what_it_was_told() -> None:
    talk = noted(hook.enhanced_auth("M", timeout=3.0)(lead))
    assert talk == Mark(point="enhanced_auth", is_async=True, timeout=3.0, method="M")
    login = noted(hook.authenticate(timeout=2.0, cache=7.0)(decide))
    assert login == Mark(point="authenticate", is_async=True, timeout=2.0, cache=7.0)
    make = hook.authorize(action="subscribe", filter="a/#", timeout=4.0, cache=5.0, explain=True)
    asked = noted(make(ask))
    assert asked == Mark(
        point="authorize",
        is_async=False,
        timeout=4.0,
        cache=5.0,
        action="subscribe",
        filter="a/#",
        may_be_tried=True,
    )
    told = noted(hook.events("connected", batch=3, every=0.5)(cast("Any", tell)))
    assert told == Mark(
        point="events", is_async=False, kinds=frozenset({"connected"}), batch=3, every=0.5
    )


def test_what_a_decorator_is_not_told_is_as_documented() -> None:
    assert noted(hook.enhanced_auth("M")(lead)).timeout == 10.0
    login = noted(hook.authenticate(decide))
    assert (login.timeout, login.cache) == (5.0, 0.0)
    asked = noted(hook.authorize(action="publish", filter="#")(ask))
    assert (asked.timeout, asked.cache, asked.may_be_tried) == (1.0, 60.0, False)
    told = noted(hook.events("connected")(cast("Any", tell)))
    assert (told.batch, told.every) == (256, 0.05)


def test_a_method_is_named() -> None:
    with pytest.raises(TypeError) as caught:
        hook.enhanced_auth(cast("str", lead))
    assert str(caught.value) == 'name the method: @hook.enhanced_auth("SCRAM-SHA-256")'


def test_a_method_has_as_many_bytes_as_a_packet_can_carry() -> None:
    longest = "x" * METHOD_BYTES_MAX

    assert noted(hook.enhanced_auth(longest)(lead)).method == longest
    for wrong in ("", longest + "x", "a\0"):
        with pytest.raises(ValueError, match=rf"^method must have 1 to {METHOD_BYTES_MAX} bytes$"):
            hook.enhanced_auth(wrong)


def test_a_conversation_is_a_coroutine() -> None:
    with pytest.raises(TypeError) as caught:
        hook.enhanced_auth("M")(cast("Any", ask))
    told = "a hook of enhanced_auth must be async def"
    assert str(caught.value) == told


def test_events_are_named_and_their_numbers_mean_something() -> None:
    with pytest.raises(TypeError) as unnamed:
        hook.events(cast("Any", tell))
    told = 'name the events: @hook.events("connected", "disconnected")'
    assert str(unnamed.value) == told
    with pytest.raises(ValueError, match="unknown events") as unknown:
        hook.events(cast("Any", "born"))
    known = ", ".join(get_args(EventKind))
    assert str(unknown.value) == f"unknown events: ['born']; allowed: {known}"
    for numbers in ({"batch": 0}, {"every": -0.1}):
        with pytest.raises(ValueError, match=r"^batch must be at least 1, every at least 0$"):
            hook.events("connected", **cast("Any", numbers))
    smallest = noted(hook.events("connected", batch=1, every=0.0)(cast("Any", tell)))
    assert (smallest.batch, smallest.every) == (1, 0.0)


def test_an_action_is_one_that_it_knows() -> None:
    with pytest.raises(ValueError, match="action") as caught:
        hook.authorize(action=cast("Any", "read"), filter="#")
    assert str(caught.value) == "action is 'read'; allowed: publish, subscribe"


def test_an_exchange_begins_without_data_and_with_a_connect() -> None:
    async def ask_client(_data: bytes, _text: str | None, _username: str | None) -> bytes:
        return b""

    talk = Exchange(Login(client_id="c"), method="M", ask=ask_client)

    assert (talk.data, talk.is_again) == (b"", False)


@pytest.mark.parametrize("timeout", [0.0, -1.0, 60.1])
def test_a_time_that_means_nothing_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be 0 to 60 s, cache 0 to 86400 s$"):
        hook.enhanced_auth("M", timeout=timeout)
    assert noted(hook.enhanced_auth("M", timeout=60.0)(lead)).timeout == 60.0


@pytest.mark.parametrize("cache", [-1.0, 86_401.0])
def test_a_cache_is_for_a_day_at_most(cache: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be 0 to 60 s, cache 0 to 86400 s$"):
        hook.authenticate(cache=cache)
    assert noted(hook.authenticate(cache=86_400.0)(decide)).cache == 86_400.0


def test_a_configuration_is_a_frozen_dataclass_of_keywords() -> None:
    class Config(PluginConfig):
        """One key."""

        path: str

    config = Config(path="x")

    assert config == Config(path="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.path = "y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Config("x")  # type: ignore[call-arg]


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("hunter2")

    assert repr(secret) == f"{secret}" == "Secret('***')"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2") != Secret("hunter3")
    assert secret != secret.reveal()
    assert hash(secret) == hash(Secret("hunter2")) != hash(Secret("hunter3"))
    with pytest.raises(TypeError, match=r"^a Secret cannot be pickled$"):
        secret.__reduce__()


def test_a_plugin_without_a_configuration_has_an_empty_one() -> None:
    assert isinstance(Plugin().config, Plugin.Config)


def test_a_method_in_the_place_of_a_hook_is_none() -> None:
    class Deciding(Plugin):
        @hook.authenticate()
        def login(self, _login: Login) -> Allow | None: ...

        @hook.authorize(action="publish", filter="#")
        def may(self, _ask: Ask) -> bool | None: ...

    class Silent(Deciding):
        def login(self, _login: Login) -> Allow | None: ...

    assert list(Deciding.hooks) == ["login", "may"]
    assert list(Silent.hooks) == ["may"]
