"""Users and rules in Redis or Valkey, with the extra `redis` of this package.

    [[plugins]]
    use = "mqttcore.auth.redis"
    [plugins.config]
    url = "rediss://cache.example.com:6379/0"
    password_file = "redis-password"
    user_key = "mqtt:user:%u"        # a hash with password_hash, and is_superuser if wanted
    acl_key = "mqtt:acl:%u"          # a hash: topic filter -> publish, subscribe, all or deny

A user without a key is left to the next plugin. Hashes of passwords are those of
`mqttcore.auth.password_file`; rules that deny come first. Without ``acl_key`` all users have the
rules of the configuration.
"""

import asyncio
import contextlib
import pathlib
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
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
from mqttcore.auth.stored_users import StoredUsers, User
from mqttcore.plugin.options import Secret

try:
    from redis.asyncio import ConnectionPool, Redis, SSLConnection, UnixDomainSocketConnection
    from redis.asyncio.connection import AbstractConnection, Connection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import ResponseError
except ImportError as error:
    raise ImportError("redis is missing: pip install 'mqttcore[redis]'") from error

STOP_S = 2.0
ACCESSES = {"publish": "write", "subscribe": "read", "all": "readwrite", "deny": "deny"}
VALUE_BYTES_MAX = 4_096
SCHEMES = ("redis", "rediss", "unix")
PORT = 6_379
DOWN = ("LOADING", "MASTERDOWN", "CLUSTERDOWN")
"""Errors of Redis that are not about one client."""


class RedisUsers(StoredUsers):
    """Admits the users whose hashes Redis has."""

    class Config(ServerConfig):
        """Keys of ``[plugins.config]``, including those of rules and limits."""

        url: str
        """``redis://host:6379/0``, ``rediss://`` with TLS, or ``unix:///run/redis.sock``."""
        username: str | None = None
        """The user name for Redis, if it requires one."""
        password: Secret[str] | None = None
        """The password."""
        password_file: pathlib.Path | None = None
        """A file with the password; relative to the configuration file."""
        user_key: str = "mqtt:user:%u"
        """The key of a user; it ends with the user name."""
        acl_key: str | None = None
        """The key of the rules of a user; it ends with the user name."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        check_keys(config)
        self._password = secret_of(config.password, config.password_file, name="password")
        self._arguments, self._kind = connection_of(config)

    async def start(self) -> None:
        """Connects.

        Raises:
            BackendError: that failed.
            AclFileError: the ACL file cannot be used.
        """
        await super().start()
        pool = ConnectionPool(
            connection_class=self._kind,
            max_connections=self.config.connections,
            username=self.config.username,
            password=self._password,
            socket_timeout=self.config.timeout_s,
            socket_connect_timeout=self.config.timeout_s,
            # the server may have closed a connection that was idle
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            **self._arguments,
        )
        self._redis = Redis.from_pool(pool)
        try:
            await self.request(self._redis.ping)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Closes the connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._redis.aclose()

    async def find(self, login: Login, name: str) -> User | None:
        """The hash of a user."""
        key = self.config.user_key.removesuffix("%u") + name
        with bad_answers():
            found = await self._redis.hmget(key, ["password_hash", "is_superuser"])
            if found == [None, None] and not await self._redis.exists(key):
                return None
        hashed, superuser = found
        return User(text_of(hashed), is_superuser=truth_of(superuser))

    async def rules(self, login: Login, name: str) -> list[tuple[str, str]] | None:
        """The rules of a user, denials first; None: those of the configuration."""
        if self.config.acl_key is None:
            return None
        key = self.config.acl_key.removesuffix("%u") + name
        with bad_answers():
            if await self._redis.hlen(key) > RULES_MAX:
                raise BadAnswerError(f"there are more than {RULES_MAX} rules")
            found: Mapping[Any, Any] = await self._redis.hgetall(key)
        return rules_of(found, self.config.acl_key)


def rules_of(found: Mapping[object, object], key: str) -> list[tuple[str, str]]:
    """The rules of a hash, denials first; their place is its key, with ``%u``.

    Raises:
        BadAnswerError: one of them is no rule.
    """
    pairs = [
        (access_of(access), PlacedRule(text_of(topic) or "", key))
        for topic, access in found.items()
    ]
    return sorted(pairs, key=lambda pair: (pair[0] != "deny", pair[1]))


@contextlib.contextmanager
def bad_answers() -> Iterator[None]:
    """Converts errors that Redis returns for one client to bad answers.

    Raises:
        BackendError: the error is not about one client.
    """
    try:
        yield
    except ResponseError as error:
        word = str(error).split(" ", 1)[0]
        if word in DOWN:
            raise BackendError(f"the server failed: {word}") from None
        raise BadAnswerError(f"Redis answered with the error {word[:40]!a}") from None


def check_keys(config: RedisUsers.Config) -> None:
    """Refuses keys that a user name could turn into each other.

    Raises:
        ValueError: the keys are refused; the text says why.
    """
    keys = [key for key in (config.user_key, config.acl_key) if key is not None]
    if any(not key.endswith("%u") or key.count("%u") != 1 or key == "%u" for key in keys):
        raise ValueError("user_key and acl_key begin with text and end with %u, the user name")
    starts = [key.removesuffix("%u") for key in keys]
    if len(starts) == 2 and (starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])):
        raise ValueError("user_key and acl_key begin alike: a user name could make one the other")
    if config.acl_key is not None and not has_no_lists(config):
        raise ValueError("acl_key replaces publish, subscribe and acl_file: leave them out")


def connection_of(config: RedisUsers.Config) -> tuple[dict[str, Any], type[AbstractConnection]]:
    """Arguments and class of the connections.

    Raises:
        ValueError: the URL cannot be used.
    """
    parts = urllib.parse.urlsplit(config.url)
    if parts.scheme not in SCHEMES or parts.username or parts.password or parts.query:
        raise ValueError("url is not like rediss://host:6379/0, without user, password and options")
    if parts.scheme == "unix":
        return {"path": parts.path}, UnixDomainSocketConnection
    number = parts.path.strip("/") or "0"
    if not parts.hostname or not number.isascii() or not number.isdigit():
        raise ValueError("url has no host, or no number of a database")
    address = {"host": parts.hostname, "port": parts.port or PORT, "db": int(number)}
    if parts.scheme == "redis":
        if not is_local(parts.hostname) and not config.plaintext:
            raise ValueError(
                f"{parts.hostname} would be reached without TLS: use rediss, or set plaintext"
            )
        return address, Connection
    tls_context(config)  # a file that cannot be read stops the start
    ca = None if config.ca is None else str(config.ca)
    verified = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    return {**address, **verified, "ssl_ca_certs": ca}, SSLConnection


def text_of(value: object) -> str | None:
    """A value as text.

    Raises:
        BadAnswerError: it is too long, or no text.
    """
    if value is None:
        return None
    if not isinstance(value, bytes) or len(value) > VALUE_BYTES_MAX:
        raise BadAnswerError("a value is not text, or too long")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadAnswerError("a value is not text") from None


def truth_of(value: object) -> bool:
    """Whether a value is true: ``1`` or ``true``.

    Raises:
        BadAnswerError: the value is neither true nor false.
    """
    found = (text_of(value) or "0").lower()
    if found not in ("0", "1", "true", "false"):
        raise BadAnswerError("is_superuser must be true or false")
    return found in ("1", "true")


def access_of(value: object) -> str:
    """Converts an access of Redis to an access word.

    Raises:
        BadAnswerError: the access is unknown.
    """
    found = ACCESSES.get(text_of(value) or "")
    if found is None:
        raise BadAnswerError("a rule is not publish, subscribe, all or deny")
    return found
