"""`mqttcore.auth.redis` with a real Redis, and with servers that are none."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from mqttcore._core import hash_password
from mqttcore.auth.backend import RULES_MAX, BackendError
from mqttcore.auth.redis import RedisUsers
from mqttcore.plugin import Allow, Deny, Grant, Login
from mqttcore.testing import allows, async_harness
from redis import Redis

from tests.services.state import HOST, PASSWORD, Running
from tests.wire import unique

RED = hash_password(b"red", salt=bytes(16))


class Store:
    """Keys of one test."""

    def __init__(self, port: int) -> None:
        self._redis = Redis(HOST, port, password=PASSWORD)
        self._prefix = unique("redis")
        self.config: Mapping[str, object] = {
            "url": f"redis://{HOST}:{port}",
            "password": PASSWORD,
            "user_key": f"{self._prefix}:user:%u",
            "acl_key": f"{self._prefix}:acl:%u",
        }

    def add_user(self, name: str, **fields: str | bytes) -> None:
        """A user, whose password is ``red`` if no field says otherwise."""
        key = f"{self._prefix}:user:{name}"
        for field, value in {"password_hash": RED, **fields}.items():
            self._redis.hset(key, field, value)

    def add_rules(self, name: str, rules: Mapping[str, str]) -> None:
        """Rules of a user."""
        for topic, access in rules.items():
            self._redis.hset(f"{self._prefix}:acl:{name}", topic, access)

    def add_text(self, name: str) -> None:
        """A user whose key is no hash."""
        self._redis.set(f"{self._prefix}:user:{name}", "red")

    def close_others(self) -> int:
        """Closes all other connections; how many there were."""
        return self._redis.client_kill_filter(_type="normal", skipme=True)

    def close(self) -> None:
        """Removes its keys."""
        for key in self._redis.scan_iter(f"{self._prefix}:*"):
            self._redis.delete(key)
        self._redis.close()


@pytest.fixture
def store(service: Callable[[str], Running]) -> Iterator[Store]:
    """Redis, with keys of this test."""
    made = Store(service("redis").port)
    yield made
    made.close()


def answers(config: Mapping[str, object], *logins: Login) -> list[Allow | Deny | None]:
    """The plugin's answers."""

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(RedisUsers, config) as plugin:
            return [await plugin.authenticate(login) for login in logins]

    return asyncio.run(ask())


def ann(password: bytes | None = b"red", name: str | None = "ann") -> Login:
    """A login."""
    return Login(client_id="c1", username=name, password=password)


def grant_of(answer: Allow | Deny | None) -> Grant:
    """The grant of an answer that allows."""
    assert isinstance(answer, Allow), answer
    return answer.grant


def test_a_user_comes_in_with_the_rules_of_redis(store: Store) -> None:
    store.add_user("ann")
    store.add_rules("ann", {"a/%u/#": "all", "b": "publish", "c": "subscribe", "a/ann/x": "deny"})

    right, wrong, none, unknown, nameless = answers(
        store.config, ann(), ann(b"blue"), ann(None), ann(name="bob"), ann(name=None)
    )

    assert grant_of(right).access_list == (
        ("deny", "a/ann/x"),
        ("readwrite", "a/ann/#"),
        ("write", "b"),
        ("read", "c"),
    )
    assert wrong == none == Deny("bad_credentials")
    assert unknown is nameless is None


def test_a_user_without_rules_may_do_nothing(store: Store) -> None:
    store.add_user("ann")

    assert not allows(grant_of(answers(store.config, ann())[0]), "publish", "a")


def test_without_acl_key_the_rules_are_the_configurations(store: Store) -> None:
    store.add_user("ann")
    config = {key: value for key, value in store.config.items() if key != "acl_key"}

    assert grant_of(answers({**config, "publish": ["%u/#"]}, ann())[0]).publish == ("ann/#",)


@pytest.mark.parametrize(("said", "is_super"), [("1", True), ("true", True), ("0", False)])
def test_a_superuser_may_do_everything(store: Store, said: str, is_super: bool) -> None:
    store.add_user("ann", is_superuser=said)

    assert allows(grant_of(answers(store.config, ann())[0]), "publish", "any") is is_super


@pytest.mark.parametrize("name", ["a\r\nSET x 1", "*", "a b", "ann\\", "\U0001f600", "x" * 60_000])
def test_odd_names_are_users_like_others(store: Store, name: str) -> None:
    store.add_user("ann", is_superuser="1")

    assert answers(store.config, ann(name=name)) == [None]
    store.add_user(name)
    assert isinstance(answers(store.config, ann(name=name))[0], Allow)


@pytest.mark.parametrize(
    "fields",
    [
        {"password_hash": "red"},
        {"password_hash": ""},
        {"password_hash": b"\xff"},
        {"password_hash": "x" * 5_000},
        {"is_superuser": "maybe"},
    ],
)
def test_a_hash_that_makes_no_sense_refuses_the_client(
    store: Store, fields: dict[str, str | bytes]
) -> None:
    store.add_user("ann", **fields)

    assert answers(store.config, ann())[0] == Deny(
        "server_unavailable", "the server's answer makes no sense"
    )


def test_a_key_of_another_kind_refuses_the_client(store: Store) -> None:
    store.add_text("ann")

    assert isinstance(answers(store.config, ann())[0], Deny)


@pytest.mark.parametrize(
    "rules",
    [{"a": "read"}, {"a/#/b": "all"}, {"": "all"}, {f"t/{n}": "all" for n in range(RULES_MAX + 1)}],
    ids=["word", "filter", "empty", "many"],
)
def test_rules_that_make_no_sense_refuse_the_client(store: Store, rules: dict[str, str]) -> None:
    store.add_user("ann")
    store.add_rules("ann", rules)

    assert isinstance(answers(store.config, ann())[0], Deny)


def test_invalidated_rights_are_those_of_redis_now(store: Store) -> None:
    store.add_user("ann")

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(RedisUsers, store.config) as plugin:
            now = Login(client_id="c1", username="ann")
            first = await plugin.grant(now)
            store.add_rules("ann", {"a": "all"})
            return [first, await plugin.grant(now), await plugin.grant(Login(client_id="c2"))]

    first, second, nobody = asyncio.run(ask())
    assert grant_of(first).access_list == ()
    assert grant_of(second).access_list == (("readwrite", "a"),)
    assert nobody is None


def test_a_wrong_password_of_redis_stops_the_start(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    with pytest.raises(BackendError) as failure:
        answers({**store.config, "password": "wrong-secret"}, ann())

    assert "wrong-secret" not in str(failure.value) + caplog.text


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
            answers({"url": url, "timeout_s": 0.5}, ann())
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


def test_tls_is_verified_or_the_start_fails(store: Store) -> None:
    url = str(store.config["url"]).replace("redis:", "rediss:")

    with pytest.raises(BackendError):
        answers({**store.config, "url": url}, ann())


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


def test_a_connection_that_the_server_closed_is_opened_again(store: Store) -> None:
    store.add_user("ann")

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(RedisUsers, store.config) as plugin:
            found = [await plugin.authenticate(ann())]
            assert store.close_others() > 0
            return [*found, await plugin.authenticate(ann())]

    assert [type(answer) for answer in asyncio.run(ask())] == [Allow, Allow]
