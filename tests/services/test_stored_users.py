"""Plugins whose server keeps password hashes and rules: SQL databases and Redis, the same cases."""

from __future__ import annotations

import asyncio
import logging

import pytest
from mqttcore.auth.backend import BackendError
from mqttcore.plugin import Allow, Deny, Login
from mqttcore.testing import allows, async_harness

from tests.services.databases import Database
from tests.services.logins import answers, grant_of, reason_of, user
from tests.services.redis_keys import RedisKeys
from tests.services.state import PASSWORD

Users = Database | RedisKeys


def answer_of(users: Users, login: Login) -> Allow | Deny | None:
    """The plugin's answer."""
    return answers(users.plugin, users.config, login)[0]


def test_a_user_comes_in_with_the_rules_of_the_server(users: Users) -> None:
    users.add_user("ann")
    users.add_rules(
        "ann", ("deny", "a/ann/x"), ("readwrite", "a/%u/#"), ("write", "b"), ("read", "c/%c")
    )
    logins = [user(), user(password=b"blue"), user(password=None), user("bob"), user(None)]

    right, wrong, none, unknown, nameless = answers(users.plugin, users.config, *logins)

    assert grant_of(right).access_list == (
        ("deny", "a/ann/x"),
        ("readwrite", "a/ann/#"),
        ("write", "b"),
        ("read", "c/c1"),
    )
    assert wrong == none == Deny("bad_credentials")
    assert unknown is nameless is None


def test_a_user_without_rules_may_do_nothing(users: Users) -> None:
    users.add_user("ann")

    assert not allows(grant_of(answer_of(users, user())), "publish", "a")


def test_rules_of_the_configuration_take_the_place_of_those_of_the_server(users: Users) -> None:
    users.add_user("ann")
    config = {key: value for key, value in users.config.items() if key != users.acl_key}

    answer = answers(users.plugin, {**config, "publish": ["own/%u"]}, user())[0]

    assert grant_of(answer).publish == ("own/ann",)


def test_a_superuser_may_do_everything(users: Users) -> None:
    users.add_user("root", superuser=True)

    assert allows(grant_of(answer_of(users, user("root"))), "publish", "any/thing")


@pytest.mark.parametrize("hashed", ["", "red", "$1$abc$def", "$argon2id$v=19$m=1"])
def test_a_hash_that_is_not_known_admits_nobody(users: Users, hashed: str) -> None:
    users.add_user("ann", hashed)

    assert reason_of(answer_of(users, user())) == "server_unavailable"


@pytest.mark.parametrize("rule", [("any", "a"), ("read", "a/#/b"), ("", "a"), ("read", "")])
def test_a_rule_that_makes_no_sense_refuses_the_client(users: Users, rule: tuple[str, str]) -> None:
    users.add_user("ann")
    users.add_rules("ann", ("readwrite", "x"), rule)

    assert reason_of(answer_of(users, user())) == "server_unavailable"


def test_rights_that_are_asked_for_again_are_those_of_the_server_now(users: Users) -> None:
    users.add_user("ann")
    now = Login(client_id="c1", username="ann")

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(users.plugin, users.config) as plugin:
            first = await plugin.grant(now)
            await asyncio.to_thread(users.add_rules, "ann", ("readwrite", "a"))
            return [first, await plugin.grant(now), await plugin.grant(Login(client_id="c2"))]

    first, second, nobody = asyncio.run(ask())
    assert grant_of(first).access_list == ()
    assert grant_of(second).access_list == (("readwrite", "a"),)
    assert nobody is None


def test_a_wrong_password_of_the_server_stops_the_start(
    users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = str(users.config["url"])
    if url.startswith("sqlite"):
        pytest.skip("SQLite has no password")
    key = "url" if PASSWORD in url else "password"
    wrong = str(users.config[key]).replace(PASSWORD, "wrong-secret")

    with pytest.raises(BackendError) as failure:
        answers(users.plugin, {**users.config, key: wrong})

    assert "wrong-secret" not in str(failure.value) + caplog.text
