"""Users and rules in a database (PostgreSQL, MySQL, MariaDB, SQLite), with the extra `sql`.

    [[plugins]]
    use = "mqttcore.auth.sql"
    [plugins.config]
    url = "postgresql://mqtt@db.example.com/accounts"
    password_file = "database-password"
    user_query = "SELECT name AS username, password_hash FROM users WHERE name = :username"
    acl_query = "SELECT access, topic FROM rules WHERE name = :username ORDER BY position"

Queries name ``:username``, ``:client_id`` and ``:peer``; their values are always bound, never put
into the text. A user without a row is left to the next plugin, and so is one whose name is not
exactly the ``username`` of the row: many databases compare without regard to case. Hashes are those
of `mqttcore.auth.password_file`, access words those of an ACL file. Without ``acl_query`` all users
have the rules of the configuration.
"""

import asyncio
import contextlib
import pathlib
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from mqttcore._core import Login
from mqttcore._placed import PlacedRule
from mqttcore.auth.backend import (
    RULES_MAX,
    BackendError,
    BadAnswerError,
    ServerConfig,
    has_no_lists,
    is_local,
    secret_of,
    tls_context,
)
from mqttcore.auth.sqlite_deadline import interrupt_late_queries
from mqttcore.auth.stored_users import StoredUsers, User
from mqttcore.plugin.options import Secret

try:
    from sqlalchemy import URL, TextClause, make_url, text
    from sqlalchemy.exc import ArgumentError, DBAPIError
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
except ImportError as error:
    raise ImportError("sqlalchemy is missing: pip install 'mqttcore[sql]'") from error

DRIVERS = {
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+aiomysql",
    "mariadb": "mariadb+aiomysql",
    "sqlite": "sqlite+aiosqlite",
}
SOCKET_KEYS = {"postgresql": "host", "mysql": "unix_socket", "mariadb": "unix_socket"}
"""The key of a Unix socket in a URL."""
VALUES = ("username", "client_id", "peer")
QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
NAMED = re.compile(r"(?<![:\w]):\w")
RECYCLE_S = 1_800
STOP_S = 2.0
ERROR_CHARS_MAX = 300

Row = Mapping[str, object]


class Sql(StoredUsers):
    """Admits the users of a database."""

    class Config(ServerConfig):
        """Keys of ``[plugins.config]``, including those of rules and limits."""

        url: Secret[str]
        """``postgresql://user@host/database``, or with ``mysql``, ``mariadb``, ``sqlite``."""
        password: Secret[str] | None = None
        """The password of the database, if it is not in the URL."""
        password_file: pathlib.Path | None = None
        """A file with the password; relative to the configuration file."""
        user_query: str
        """Query for ``username``, ``password_hash`` and optionally ``is_superuser`` of one user."""
        acl_query: str | None = None
        """Query for ``access`` and ``topic`` of the rules of one user, in their order."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        if config.acl_query is not None and not has_no_lists(config):
            raise ValueError("acl_query replaces publish, subscribe and acl_file: leave them out")
        self._password = secret_of(config.password, config.password_file, name="password")
        self._url = url_of(config.url.reveal(), self._password)
        self._arguments = connect_arguments(self._url, config)
        self._user_query = checked_query(config.user_query, "user_query")
        acl = config.acl_query
        self._acl_query = None if acl is None else checked_query(acl, "acl_query")

    async def start(self) -> None:
        """Connects, and tries the queries with an empty user name.

        Raises:
            BackendError: that failed; the text has the reason.
            AclFileError: the ACL file cannot be used.
        """
        await super().start()
        self._engine = self._connect()
        try:
            await self.request(self._try_queries)
        except BadAnswerError as error:
            await self.stop()
            raise BackendError(str(error)) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Closes the connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._engine.dispose()

    async def find(self, login: Login, name: str) -> User | None:
        """The row of a user."""
        rows = await self._rows(self._user_query, login, most=1)
        if not rows:
            return None
        if name_of(rows[0]) != name:
            self.warn_of_name(login, name)
            return None
        return User(text_of(rows[0], "password_hash"), is_superuser=is_superuser(rows[0]))

    async def rules(self, login: Login, name: str) -> list[tuple[str, str]] | None:
        """The rules of a user; None: those of the configuration."""
        if self._acl_query is None:
            return None
        rows = await self._rows(self._acl_query, login, most=RULES_MAX)
        return [rule_of(row, number) for number, row in enumerate(rows, 1)]

    async def _rows(self, query: TextClause, login: Login, *, most: int) -> Sequence[Row]:
        """The rows of one client; column names in lower case."""
        values = {
            "username": login.username or "",
            "client_id": login.client_id,
            "peer": login.peer[0],
        }
        async with self._engine.connect() as connection:
            try:
                result = await connection.execute(query, values)
                rows = result.mappings().fetchmany(most + 1)
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                raise BadAnswerError(
                    f"a query failed: {error_text(error, self._secrets())}"
                ) from None
        if len(rows) > most:
            raise BadAnswerError(f"a query found more than {most} rows")
        return [{str(key).lower(): value for key, value in row.items()} for row in rows]

    async def _try_queries(self) -> None:
        """Tries each query.

        Raises:
            BadAnswerError: it failed, or a column is missing.
        """
        wanted = [(self._user_query, {"username", "password_hash"})]
        if self._acl_query is not None:
            wanted.append((self._acl_query, {"access", "topic"}))
        try:
            async with self._engine.connect() as connection:
                for query, columns in wanted:
                    result = await connection.execute(query, dict.fromkeys(VALUES, ""))
                    found = result.keys()
                    missing = columns - {name.lower() for name in found}
                    if missing:
                        raise BadAnswerError(f"a query has no column {', '.join(sorted(missing))}")
        except DBAPIError as error:
            raise BadAnswerError(error_text(error, self._secrets())) from None

    def _connect(self) -> AsyncEngine:
        """A pool of connections; none is open yet."""
        engine = create_async_engine(
            self._url,
            connect_args=self._arguments,
            pool_size=self.config.connections,
            max_overflow=0,
            pool_timeout=self.config.timeout_s,
            pool_pre_ping=True,
            pool_recycle=RECYCLE_S,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )
        if self._url.get_backend_name() == "sqlite":
            interrupt_late_queries(engine, self.config.timeout_s)
        return engine

    def _secrets(self) -> list[str]:
        return [secret for secret in (self._password, self._url.password) if secret]


def url_of(given: str, password: str | None) -> URL:
    """The address of the database, for its driver.

    Raises:
        ValueError: the URL is not valid, or has parts that are not allowed.
    """
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise ValueError("url is not like postgresql://user@host/database") from None
    driver = DRIVERS.get(url.drivername)
    if driver is None:
        raise ValueError(f"url begins with none of {', '.join(DRIVERS)}")
    if url.drivername == "sqlite":
        return sqlite_url(url)
    keys = [SOCKET_KEYS[url.drivername]]
    is_path = all(isinstance(name, str) and name.startswith("/") for name in url.query.values())
    if list(url.query) not in ([], keys) or not is_path:
        raise ValueError(f"url may only have the key {keys[0]}, with the path of a Unix socket")
    if bool(url.query) == bool(url.host):
        raise ValueError("url has no host, or one beside the path of a Unix socket")
    if password is not None and url.password is not None:
        raise ValueError("url has a password already")
    url = url.set(drivername=driver)
    return url if password is None else url.set(password=password)


def sqlite_url(url: URL) -> URL:
    """The URL of an existing file, opened read-only."""
    if not url.database or url.database == ":memory:" or url.query or url.host:
        raise ValueError("url has to name a file: sqlite:////var/lib/accounts.db")
    path = pathlib.Path(url.database).absolute()
    if not path.is_file():
        raise ValueError(f"url: {path} is not a file")
    database, query = f"file:{urllib.parse.quote(str(path))}", {"mode": "ro", "uri": "true"}
    return URL.create(DRIVERS["sqlite"], database=database, query=query)


def connect_arguments(url: URL, config: Sql.Config) -> dict[str, Any]:
    """Arguments of a driver for connections; TLS, unless the server is this machine.

    Raises:
        ValueError: the CA certificates cannot be read.
    """
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"timeout": config.timeout_s}
    has_tls = config.ca is not None or not (config.plaintext or is_local(url.host))
    context = tls_context(config) if has_tls else None
    if kind == "postgresql":
        return {"timeout": config.timeout_s, "ssl": context or False}
    return {
        "connect_timeout": config.timeout_s,
        "charset": "utf8mb4",
        "ssl": context,
        "async_creator_fn": mysql_connection,
    }


async def mysql_connection(**arguments: Any) -> object:  # noqa: ANN401 - those of the driver
    """A connection to MySQL; if there are CA certificates, only with TLS.

    The driver itself would continue without TLS if the server, or an attacker in between, does not
    offer it.
    """
    import aiomysql  # only where it is needed
    from pymysql.constants import CLIENT

    class Connection(aiomysql.Connection):  # type: ignore[misc] # it has no types
        async def _request_authentication(self) -> None:
            if self._ssl_context and not self.server_capabilities & CLIENT.SSL:
                raise ConnectionError("the server has no TLS")
            await super()._request_authentication()

    connection = Connection(**arguments)
    await connection._connect()
    return connection


def checked_query(query: str, name: str) -> TextClause:
    """A query with bound values.

    Raises:
        ValueError: it has a parameter in quotes, an unknown one, or none for the user.
    """
    if "\\" in query:
        raise ValueError(f"{name} has a backslash")
    if any(NAMED.search(part) for part in QUOTED.findall(query)):
        raise ValueError(f"{name} has a value in quotes or in a comment: write :username alone")
    clause = text(query)
    named = set(clause.compile().params)
    if "username" not in named or not named <= set(VALUES):
        allowed = ", ".join(f":{value}" for value in VALUES)
        raise ValueError(f"{name} has to name :username; allowed: {allowed}")
    return clause


def name_of(user: Row) -> str:
    """The user name of a row.

    Raises:
        BadAnswerError: the row has no user name.
    """
    name = text_of(user, "username")
    if name is None:
        raise BadAnswerError("username is NULL")
    return name


def text_of(row: Row, column: str) -> str | None:
    """The text in a column.

    Raises:
        BadAnswerError: it is no text.
    """
    found = row.get(column)
    if found is None:
        return None
    try:
        return found.decode() if isinstance(found, bytes) else str(found)
    except UnicodeDecodeError:
        raise BadAnswerError(f"{column} is not text") from None


def is_superuser(user: Row) -> bool:
    """Whether the user is a superuser: the column is true, or 1.

    Raises:
        BadAnswerError: it is neither a truth value nor a whole number.
    """
    found = user.get("is_superuser")
    if found is not None and not isinstance(found, int):  # a bool is an int
        raise BadAnswerError("is_superuser must be true or false")
    return found == 1


def rule_of(row: Row, number: int) -> tuple[str, str]:
    """Access word and topic of a row; the place of the rule is the query and its ``number``.

    Raises:
        BadAnswerError: the row has no access or no topic.
    """
    access, topic = row.get("access"), row.get("topic")
    if not isinstance(access, str) or not isinstance(topic, str):
        raise BadAnswerError("a rule has no access or no topic")
    return access, PlacedRule(topic, f"acl_query, row {number}")


def error_text(error: DBAPIError, secrets: Sequence[str]) -> str:
    """The text of the database's error in one line, without passwords."""
    said = " ".join(str(error.orig).split())
    for secret in secrets:
        said = said.replace(secret, "***")
    return ascii(said[:ERROR_CHARS_MAX])[1:-1]
