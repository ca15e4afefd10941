"""`mqttcore.auth.sql` with SQLite, PostgreSQL and MariaDB: who is admitted, and what is bound."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import time
from collections.abc import Callable

import pytest
from mqttcore import Broker
from mqttcore.auth.backend import BackendError
from mqttcore.auth.sql import Sql
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Deny, Login, Secret
from mqttcore.testing import async_harness

from tests.services import logins
from tests.services.databases import Database
from tests.services.logins import grant_of, user
from tests.services.state import HOST
from tests.tls import Files
from tests.wire import Wire

HOSTILE = [
    "' OR '1'='1",
    "ann' --",
    '" OR ""="',
    "\\' OR 1=1 -- ",
    "ann\\",
    "'; DROP TABLE users; --",
    ":username",
    "%s",
    "$1",
    "?",
    "`",
    "\u00bf'",
    "\U0001f600" * 10,
    "x" * 60_000,
]
"""User names that are no user's."""


def answers(database: Database, *given: Login, **changes: object) -> list[Allow | Deny | None]:
    """The plugin's answers."""
    return logins.answers(Sql, {**database.config, **changes}, *given)


def test_hostile_names_are_nobody(database: Database) -> None:
    database.add_user("ann", superuser=True)

    found = answers(database, *[user(name) for name in HOSTILE], user())

    assert all(answer is None for answer in found[:-1]), found
    assert isinstance(found[-1], Allow)


@pytest.mark.parametrize("name", ["o'brien", 'a"b', "a\\b", "%s:x", "täst", "a;b--"])
def test_odd_names_are_users_like_others(database: Database, name: str) -> None:
    database.add_user(name)
    database.add_rules(name, ("read", "own"))

    assert grant_of(answers(database, user(name))[0]).access_list == (("read", "own"),)


@pytest.mark.parametrize("name", ["ANN", "Ann", "ann ", "\u00e5nn"])
def test_a_name_that_is_not_exactly_the_same_is_nobody(database: Database, name: str) -> None:
    """MariaDB finds `ann` by each of these names, the others do so by this query."""
    database.add_user("ann", superuser=True)
    simple = "replace(lower({}), '\u00e5', 'a')"
    query = (
        f"SELECT name AS username, password_hash FROM {database.users}"  # noqa: S608 - a name of ours
        f" WHERE trim({simple.format('name')}) = trim({simple.format(':username')})"
    )

    found = answers(database, user(name), user(), user_query=query)

    assert found[0] is None
    assert isinstance(found[1], Allow)
    assert answers(database, user(name)) == [None]


def test_a_user_without_a_hash_has_no_password(database: Database) -> None:
    database.add_user("ann", None)

    assert answers(database, user()) == [Deny("bad_credentials")]


def test_a_row_without_a_name_refuses(database: Database) -> None:
    database.add_user("ann")
    query = f"SELECT NULL AS username, password_hash FROM {database.users} WHERE name = :username"  # noqa: S608

    answer = answers(database, user(), user_query=query)[0]

    assert isinstance(answer, Deny)
    assert answer.reason == "server_unavailable"


def test_a_query_with_more_than_one_user_refuses(database: Database) -> None:
    database.add_user("ann")
    database.add_user("bob")
    query = f"SELECT name AS username, password_hash FROM {database.users} WHERE name <> :username"  # noqa: S608

    assert isinstance(answers(database, user("x"), user_query=query)[0], Deny)


def test_invalidated_rights_are_those_of_the_database_now(
    database: Database, start_broker: Callable[..., Broker]
) -> None:
    database.add_user("ann")
    database.add_rules("ann", ("readwrite", "a/#"))
    config = {name: value for name, value in database.config.items() if name != "url"}
    plugin = Sql(Sql.Config(url=Secret(database.url), cache_s=60.0, **config))  # type: ignore[arg-type] # fields
    broker = start_broker(plugin, listeners=(Listener(address="127.0.0.1:0"),))
    with Wire(broker.port) as client:
        client.connect("c1", username="ann", password=b"red", reason=0)
        assert client.publish("b", qos=1).reason == 0x87
        database.add_rules("ann", ("write", "b"))
        broker.invalidate(username="ann")
        deadline = time.monotonic() + 10
        while client.publish("b", qos=1).reason == 0x87 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.publish("b", qos=1).reason == 0x10
        with Wire(broker.port) as locked:
            database.add_user("bob")
            locked.connect("c2", username="bob", password=b"red", reason=0)
            lock = f"UPDATE {database.users} SET password_hash = NULL WHERE name = 'bob'"  # noqa: S608
            database.execute(lock)
            broker.invalidate(username="bob")
            assert locked.receive().reason == 0x87
        database.execute(f"DELETE FROM {database.users}")  # noqa: S608
        broker.invalidate(username="ann")
        assert client.receive().reason == 0x87


def test_errors_of_a_start_say_what_the_database_said(database: Database) -> None:
    with pytest.raises(BackendError, match="nowhere"):
        answers(database, user_query="SELECT password_hash FROM nowhere WHERE name = :username")
    with pytest.raises(BackendError, match="no column password_hash, username"):
        answers(
            database,
            user_query=f"SELECT name FROM {database.users} WHERE name = :username",  # noqa: S608
        )


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_database_that_never_answers_is_a_failure_in_time(kind: str) -> None:
    with socket.create_server((HOST, 0)) as deaf:
        url = f"{kind}://u:secret@{HOST}:{deaf.getsockname()[1]}/d"
        config = {"url": url, "user_query": "SELECT :username", "timeout_s": 0.3}
        started = time.monotonic()

        async def ask() -> None:
            async with async_harness(Sql, config):
                pass

        with pytest.raises(BackendError, match="no answer in time"):
            asyncio.run(ask())

    assert time.monotonic() - started < 5


def test_a_server_without_tls_is_a_failure_where_tls_is_asked_for(
    database: Database, tmp_path: pathlib.Path
) -> None:
    if database.url.startswith("sqlite"):
        pytest.skip("SQLite has no server")
    files = Files.make(tmp_path)

    with pytest.raises(BackendError):
        answers(database, ca=str(files.path("ca.pem")))


def test_connections_are_bounded_and_come_back(database: Database) -> None:
    database.add_user("ann")

    async def ask() -> None:
        config = {**database.config, "connections": 2, "timeout_s": 10.0}
        async with async_harness(Sql, config) as plugin:
            found = await asyncio.gather(
                *[plugin.authenticate(user(password=b"no")) for _ in range(12)]
            )
            assert found == [Deny("bad_credentials")] * 12

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"url": "oracle://h/d"}, "begins with none of"),
        ({"url": "nonsense"}, "not like"),
        ({"url": "postgresql://u@/d"}, "no host"),
        ({"url": "postgresql://h/d?sslmode=disable"}, "only have the key host"),
        ({"url": "postgresql:///d?host=evil.example.com"}, "Unix socket"),
        ({"url": "postgresql:///d?host=/run&host=evil"}, "Unix socket"),
        ({"url": "mysql://h/d?local_infile=1"}, "unix_socket"),
        ({"url": "sqlite://"}, "name a file"),
        ({"url": "sqlite:///:memory:"}, "name a file"),
        ({"url": "sqlite:////nowhere/accounts.db"}, "not a file"),
        ({"user_query": "SELECT 1 WHERE 'x:y' = ':username'"}, "in quotes"),
        ({"user_query": "SELECT 1 -- :username"}, "in a comment"),
        ({"user_query": "SELECT '\\':username'"}, "backslash"),
        ({"user_query": "SELECT 1"}, "has to name :username"),
        ({"user_query": "SELECT :username, :password"}, "allowed: :username"),
        ({"acl_query": "SELECT :username", "publish": ["a"]}, "leave them out"),
        ({"password": "x", "password_file": "y"}, "set one of"),
        ({"password_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_keys_that_make_no_sense_are_refused(changes: dict[str, str], what: str) -> None:
    config = {"url": "postgresql://u@h/d", "user_query": "SELECT :username", **changes}

    with pytest.raises(Exception, match=what) as failure:
        async_harness(Sql, config)

    assert "evil" not in str(failure.value)
