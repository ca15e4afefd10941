"""Tables of one test in SQLite, PostgreSQL or MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from mqttcore.auth.sql import Sql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.services.logins import RED
from tests.services.state import HOST, PASSWORD, USER, Running
from tests.wire import unique


@dataclass(frozen=True, slots=True)
class Database:
    """A database with tables of this test."""

    plugin: ClassVar = Sql
    acl_key: ClassVar = "acl_query"
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

    def add_user(
        self, name: str, password_hash: str | None = RED, *, superuser: bool = False
    ) -> None:
        """A user with the password ``red``."""
        insert = f"INSERT INTO {self.users} VALUES (:name, :hash, {int(superuser)})"  # noqa: S608
        self.execute(insert, name=name, hash=password_hash)

    def add_rules(self, name: str, *rules: tuple[str, str]) -> None:
        """An access list."""
        for place, (access, topic) in enumerate(rules):
            insert = f"INSERT INTO {self.rules} VALUES (:name, {place}, :access, :topic)"  # noqa: S608
            self.execute(insert, name=name, access=access, topic=topic)


@contextlib.contextmanager
def empty_tables(
    kind: str, folder: pathlib.Path, service: Callable[[str], Running]
) -> Iterator[Database]:
    """A database with two empty tables; that of SQLite is a file in a folder."""
    users, rules = unique("users").replace("-", "_"), unique("rules").replace("-", "_")
    if kind == "sqlite":
        url = f"sqlite:///{folder}/accounts.db"
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
    try:
        yield made
    finally:
        made.execute(f"DROP TABLE {users}", f"DROP TABLE {rules}")
