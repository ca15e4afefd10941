"""`mqttcore.auth.sql` with a file of SQLite, whose queries run in a thread of the broker."""

import asyncio
import contextlib
import pathlib
import sqlite3
import time

import pytest
from mqttcore._core import hash_password
from mqttcore.auth.backend import BackendError
from mqttcore.auth.sql import Sql
from mqttcore.plugin import Allow, Deny, Login
from mqttcore.testing import async_harness

ENDLESS = (
    "WITH RECURSIVE numbers(n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE :username = 'endless')"
    " SELECT name AS username, NULL AS password_hash"
    " FROM users, (SELECT max(n) AS most FROM numbers) WHERE most < 0 OR name = :username"
)
"""A query that never ends for one user name."""


def test_a_query_that_takes_too_long_is_interrupted(tmp_path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "accounts.db")) as database:
        database.execute("CREATE TABLE users (name)")
    url = f"sqlite:///{tmp_path}/accounts.db"
    config = {"url": url, "user_query": ENDLESS, "timeout_s": 0.3, "connections": 1}

    async def ask() -> float:
        async with async_harness(Sql, config) as plugin:
            started = time.monotonic()
            with pytest.raises(BackendError, match="no answer in time"):
                await plugin.authenticate(Login(client_id="c", username="endless", password=b"x"))
            other = Login(client_id="c", username="ann", password=b"x")
            assert await plugin.authenticate(other) is None
            return time.monotonic() - started

    assert asyncio.run(ask()) < 8


def test_a_rule_knows_its_row(tmp_path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "accounts.db")) as database:
        database.execute("CREATE TABLE users (name, hash)")
        hashed = hash_password(b"pw", salt=bytes(16))
        database.execute("INSERT INTO users VALUES ('ann', ?)", (hashed,))
        database.execute("CREATE TABLE rules (access, topic)")
        database.execute("INSERT INTO rules VALUES ('deny', 'a/b'), ('read', 'a/%u/#')")
        database.commit()
    config = {
        "url": f"sqlite:///{tmp_path}/accounts.db",
        "user_query": "SELECT name AS username, hash AS password_hash FROM users"
        " WHERE name = :username",
        "acl_query": "SELECT access, topic FROM rules WHERE :username = 'ann' ORDER BY rowid",
    }

    async def ask() -> Allow | Deny | None:
        async with async_harness(Sql, config) as plugin:
            return await plugin.authenticate(Login(client_id="c", username="ann", password=b"pw"))

    answer = asyncio.run(ask())

    assert isinstance(answer, Allow)
    rules = answer.grant.access_list or ()
    assert rules == (("deny", "a/b"), ("read", "a/ann/#"))
    places = [getattr(rule, "place", None) for _, rule in rules]
    assert places == ["acl_query, row 1", "acl_query, row 2"]
