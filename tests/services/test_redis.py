"""`mqttcore.auth.redis` with a real Redis, and with servers that are none."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest
from mqttcore.auth.backend import RULES_MAX, BackendError
from mqttcore.auth.redis import RedisUsers
from mqttcore.plugin import Allow, Deny
from mqttcore.testing import allows, async_harness

from tests.services.logins import RED, answers, grant_of, user
from tests.services.redis_keys import RedisKeys
from tests.services.state import HOST


@pytest.mark.parametrize(("said", "is_super"), [("1", True), ("true", True), ("0", False)])
def test_a_superuser_may_do_everything(store: RedisKeys, said: str, *, is_super: bool) -> None:
    store.add_fields("ann", password_hash=RED, is_superuser=said)

    answer = answers(RedisUsers, store.config, user())[0]
    assert allows(grant_of(answer), "publish", "any") is is_super


@pytest.mark.parametrize("name", ["a\r\nSET x 1", "*", "a b", "ann\\", "\U0001f600", "x" * 60_000])
def test_odd_names_are_users_like_others(store: RedisKeys, name: str) -> None:
    store.add_user("ann", superuser=True)

    assert answers(RedisUsers, store.config, user(name)) == [None]
    store.add_user(name)
    assert isinstance(answers(RedisUsers, store.config, user(name))[0], Allow)


@pytest.mark.parametrize(
    "fields",
    [
        {"password_hash": b"\xff"},
        {"password_hash": "x" * 5_000},
        {"is_superuser": "maybe"},
    ],
)
def test_a_hash_that_makes_no_sense_refuses_the_client(
    store: RedisKeys, fields: dict[str, str | bytes]
) -> None:
    store.add_user("ann")
    store.add_fields("ann", **fields)

    assert answers(RedisUsers, store.config, user())[0] == Deny(
        "server_unavailable", "the server's answer makes no sense"
    )


def test_a_key_of_another_kind_refuses_the_client(store: RedisKeys) -> None:
    store.add_text("ann")

    assert isinstance(answers(RedisUsers, store.config, user())[0], Deny)


def test_more_rules_than_a_client_may_have_refuse_it(store: RedisKeys) -> None:
    store.add_user("ann")
    store.add_rules("ann", *[("readwrite", f"t/{number}") for number in range(RULES_MAX + 1)])

    assert isinstance(answers(RedisUsers, store.config, user())[0], Deny)


@pytest.mark.parametrize(
    "said", [None, b"-ERR unknown\r\n", b"HTTP/1.1 400 Bad\r\n\r\n", b"$99999999999\r\n", b""]
)
def test_a_server_that_is_no_redis_stops_the_start(said: bytes | None) -> None:
    started = time.monotonic()
    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=speak, args=(server, said), daemon=True)
        thread.start()
        url = f"redis://{HOST}:{server.getsockname()[1]}"
        with pytest.raises(BackendError):
            answers(RedisUsers, {"url": url, "timeout_s": 0.5}, user())
    thread.join(10)

    assert time.monotonic() - started < 8


def speak(server: socket.socket, said: bytes | None) -> None:
    """Says the same to everybody, until the test ends; None: nothing at all."""
    kept = []
    while True:
        try:
            server.settimeout(0.5)
            connection, _ = server.accept()
        except OSError:
            break
        kept.append(connection)
        if said is not None:
            connection.recv(65_536)
            connection.sendall(said)
            if not said:
                connection.close()
    for connection in kept:
        connection.close()


def test_tls_is_verified_or_the_start_fails(store: RedisKeys) -> None:
    url = str(store.config["url"]).replace("redis:", "rediss:")

    with pytest.raises(BackendError):
        answers(RedisUsers, {**store.config, "url": url}, user())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"url": "redis://cache.example.com"}, "without TLS"),
        ({"url": "redis://:secret@localhost"}, "not like"),
        ({"url": "redis://localhost?password=secret"}, "not like"),
        ({"url": "http://localhost"}, "not like"),
        ({"url": "redis://localhost/x"}, "number of a database"),
        ({"user_key": "user"}, "end with %u"),
        ({"user_key": "%u"}, "begin with text"),
        ({"user_key": "u:%u:hash"}, "end with %u"),
        ({"user_key": "u:%u", "acl_key": "u:acl:%u"}, "begin alike"),
        ({"user_key": "u:user:%u", "acl_key": "u:%u"}, "begin alike"),
        ({"user_key": "u:%u", "acl_key": "a:%u", "publish": ["x"]}, "leave them out"),
    ],
)
def test_keys_that_make_no_sense_are_refused(changes: dict[str, object], what: str) -> None:
    with pytest.raises(Exception, match=what):
        async_harness(RedisUsers, {"url": "redis://localhost", **changes})


def test_a_connection_that_the_server_closed_is_opened_again(store: RedisKeys) -> None:
    store.add_user("ann")

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(RedisUsers, store.config) as plugin:
            found = [await plugin.authenticate(user())]
            assert store.close_others() > 0
            return [*found, await plugin.authenticate(user())]

    assert [type(answer) for answer in asyncio.run(ask())] == [Allow, Allow]
