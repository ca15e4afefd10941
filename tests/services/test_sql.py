"""`mqttcore.auth.sql` with SQLite, PostgreSQL and MariaDB: who is admitted, and what is bound."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest
from mqttcore import Broker
from mqttcore._core import hash_password
from mqttcore.auth.backend import BackendError
from mqttcore.auth.sql import Sql
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Deny, Grant, Login, Secret
from mqttcore.testing import AsyncHarness, allows, async_harness
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.services.state import HOST, PASSWORD, USER, Running
from tests.tls import Files
from tests.wire import Wire, unique

RED = hash_password(b"red", salt=bytes(16))
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


@dataclass(frozen=True, slots=True)
class Database:
    """A database with tables of this test."""

    url: str
    driver: str
    users: str
    rules: str

    @property
    def config(self) -> dict[str, object]:
        """Keys of the plugin."""
        columns = "name AS username, password_hash, is_superuser"
        user_query = f"SELECT {columns} FROM {self.users} WHERE name = :username"  # noqa: S608 - a name of ours
        acl_query = f"SELECT access, topic FROM {self.rules} WHERE name = :username ORDER BY place"  # noqa: S608
        return {"url": self.url, "user_query": user_query, "acl_query": acl_query}

    def execute(self, *statements: str, **values: object) -> None:
        """Runs statements, the values bound."""

        async def run() -> None:
            engine = create_async_engine(self.driver)
            async with engine.begin() as connection:
                for statement in statements:
                    await connection.execute(text(statement), values)
            await engine.dispose()

        asyncio.run(run())

    def add_user(self, name: str, password_hash: str | None = RED, *, superuser: int = 0) -> None:
        """A user with the password ``red``."""
        insert = f"INSERT INTO {self.users} VALUES (:name, :hash, {superuser})"  # noqa: S608
        self.execute(insert, name=name, hash=password_hash)

    def add_rules(self, name: str, *rules: tuple[str, str]) -> None:
        """An access list."""
        for place, (access, topic) in enumerate(rules):
            insert = f"INSERT INTO {self.rules} VALUES (:name, {place}, :access, :topic)"  # noqa: S608
            self.execute(insert, name=name, access=access, topic=topic)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, service: Callable[[str], Running]
) -> Iterator[Database]:
    """A database with two empty tables."""
    kind = request.param
    users, rules = unique("users").replace("-", "_"), unique("rules").replace("-", "_")
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/accounts.db"
        made = Database(url, url.replace("sqlite", "sqlite+aiosqlite"), users, rules)
    else:
        port = service(kind).port
        name = "postgres" if kind == "postgresql" else USER
        url = f"{kind}://{USER}:{PASSWORD}@{HOST}:{port}/{name}"
        driver = {"postgresql": "postgresql+asyncpg", "mariadb": "mariadb+aiomysql"}[kind]
        made = Database(url, url.replace(kind, driver), users, rules)
    made.execute(
        f"CREATE TABLE {users} (name VARCHAR(100) PRIMARY KEY, password_hash VARCHAR(300),"
        " is_superuser SMALLINT)",
        f"CREATE TABLE {rules} (name VARCHAR(100), place INTEGER, access VARCHAR(20),"
        " topic VARCHAR(200))",
    )
    yield made
    made.execute(f"DROP TABLE {users}", f"DROP TABLE {rules}")


@contextlib.asynccontextmanager
async def asked(database: Database, **changes: object) -> AsyncIterator[AsyncHarness[Sql]]:
    """The plugin."""
    async with async_harness(Sql, {**database.config, **changes}) as plugin:
        yield plugin


def answers(database: Database, *logins: Login, **changes: object) -> list[Allow | Deny | None]:
    """The plugin's answers."""

    async def ask() -> list[Allow | Deny | None]:
        async with asked(database, **changes) as plugin:
            return [await plugin.authenticate(login) for login in logins]

    return asyncio.run(ask())


def ann(password: bytes | None = b"red", name: str | None = "ann") -> Login:
    """A login."""
    return Login(client_id="c1", username=name, password=password)


def grant_of(answer: Allow | Deny | None) -> Grant:
    """The grant of an answer that allows."""
    assert isinstance(answer, Allow), answer
    return answer.grant


def test_a_user_comes_in_with_the_rules_of_the_database(database: Database) -> None:
    database.add_user("ann")
    database.add_rules("ann", ("deny", "a/secret"), ("readwrite", "a/%u/#"), ("read", "a/%c"))

    right, wrong, none, unknown, nameless = answers(
        database, ann(), ann(b"blue"), ann(None), ann(name="bob"), ann(name=None)
    )

    assert grant_of(right).access_list == (
        ("deny", "a/secret"),
        ("readwrite", "a/ann/#"),
        ("read", "a/c1"),
    )
    assert wrong == none == Deny("bad_credentials")
    assert unknown is nameless is None


def test_rules_of_the_configuration_take_the_place_of_a_query(database: Database) -> None:
    database.add_user("ann")
    config = {key: value for key, value in database.config.items() if key != "acl_query"}

    async def ask() -> Allow | Deny | None:
        async with async_harness(Sql, {**config, "publish": ["own/%u"]}) as plugin:
            return await plugin.authenticate(ann())

    assert grant_of(asyncio.run(ask())).publish == ("own/ann",)


def test_a_superuser_may_do_everything(database: Database) -> None:
    database.add_user("root", superuser=1)

    assert allows(grant_of(answers(database, ann(name="root"))[0]), "publish", "any/thing")


def test_hostile_names_are_nobody(database: Database) -> None:
    database.add_user("ann", superuser=1)

    found = answers(database, *[ann(name=name) for name in HOSTILE], ann())

    assert all(answer is None for answer in found[:-1]), found
    assert isinstance(found[-1], Allow)


@pytest.mark.parametrize("name", ["o'brien", 'a"b', "a\\b", "%s:x", "täst", "a;b--"])
def test_odd_names_are_users_like_others(database: Database, name: str) -> None:
    database.add_user(name)
    database.add_rules(name, ("read", "own"))

    assert grant_of(answers(database, ann(name=name))[0]).access_list == (("read", "own"),)


@pytest.mark.parametrize("name", ["ANN", "Ann", "ann ", "\u00e5nn"])
def test_a_name_that_is_not_exactly_the_same_is_nobody(database: Database, name: str) -> None:
    """MariaDB finds `ann` by each of these names, the others do so by this query."""
    database.add_user("ann", superuser=1)
    simple = "replace(lower({}), '\u00e5', 'a')"
    query = (
        f"SELECT name AS username, password_hash FROM {database.users}"  # noqa: S608 - a name of ours
        f" WHERE trim({simple.format('name')}) = trim({simple.format(':username')})"
    )

    found = answers(database, ann(name=name), ann(), user_query=query)

    assert found[0] is None
    assert isinstance(found[1], Allow)
    assert answers(database, ann(name=name)) == [None]


def test_a_row_without_a_name_refuses(database: Database) -> None:
    database.add_user("ann")
    query = f"SELECT NULL AS username, password_hash FROM {database.users} WHERE name = :username"  # noqa: S608

    answer = answers(database, ann(), user_query=query)[0]

    assert isinstance(answer, Deny)
    assert answer.reason == "server_unavailable"


@pytest.mark.parametrize("hashed", [None, "", "red", "$1$abc$def", "$argon2id$v=19$m=1"])
def test_a_hash_that_is_not_known_admits_nobody(database: Database, hashed: str | None) -> None:
    database.add_user("ann", hashed)

    answer = answers(database, ann())[0]

    assert isinstance(answer, Deny)
    assert answer.reason == ("bad_credentials" if hashed is None else "server_unavailable")


@pytest.mark.parametrize("rule", [("all", "a"), ("read", "a/#/b"), ("", "a"), ("read", "")])
def test_a_rule_that_makes_no_sense_refuses_the_client(
    database: Database, rule: tuple[str, str]
) -> None:
    database.add_user("ann")
    database.add_rules("ann", ("readwrite", "x"), rule)

    answer = answers(database, ann())[0]

    assert isinstance(answer, Deny)
    assert answer.reason == "server_unavailable"


def test_a_query_with_more_than_one_user_refuses(database: Database) -> None:
    database.add_user("ann")
    database.add_user("bob")
    query = f"SELECT name AS username, password_hash FROM {database.users} WHERE name <> :username"  # noqa: S608

    assert isinstance(answers(database, ann(name="x"), user_query=query)[0], Deny)


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


def test_a_wrong_password_of_the_database_stops_the_start(database: Database) -> None:
    if database.url.startswith("sqlite"):
        pytest.skip("SQLite has no password")
    url = database.url.replace(PASSWORD, "wrong-secret")

    with pytest.raises(BackendError) as failure:
        answers(database, url=url)

    assert "wrong-secret" not in str(failure.value)


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
        async with asked(database, connections=2, timeout_s=10.0) as plugin:
            found = await asyncio.gather(*[plugin.authenticate(ann(b"no")) for _ in range(12)])
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
        ({"password": "x", "password_file": "y"}, "give one of"),
        ({"password_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_keys_that_make_no_sense_are_refused(changes: dict[str, str], what: str) -> None:
    config = {"url": "postgresql://u@h/d", "user_query": "SELECT :username", **changes}

    with pytest.raises(Exception, match=what) as failure:
        async_harness(Sql, config)

    assert "evil" not in str(failure.value)
