"""Base of plugins that ask a server about each login: limits, failures, access lists, secrets.

If a server cannot be reached, is late or sends an invalid answer, the login is refused with 0x88,
never as a wrong password. Errors and log lines name the kind of failure, never the text of a
library, which may contain a password.
"""

import asyncio
import ipaddress
import logging
import os
import pathlib
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Annotated, TypeVar, get_args

from mqttcore._core import Login
from mqttcore._schema import Range
from mqttcore.auth.acl_file import SHOWN_CHARS, Rule
from mqttcore.auth.rules import RulesPlugin, UserRules, denials, filled
from mqttcore.errors import MqttError, OverloadedError
from mqttcore.plugin.answers import AccessWord, Allow, Degraded, Deny, Grant
from mqttcore.plugin.chain import FailureLog
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import Secret

log = logging.getLogger(__name__)

T = TypeVar("T")

RULES_MAX = 1_024
"""Maximum number of rules of one client."""
HASHING_S = 10.0
"""Seconds of a login in addition to its requests: a password may have to be hashed."""
SECRET_BYTES_MAX = 65_536
EVERYTHING = Grant(publish=("#",), subscribe=("#", "$SYS/#"))
"""Rights of a superuser, except ``deny`` of the configuration."""


class BackendError(MqttError):
    """The server failed: it is unreachable or late, or TLS failed. Counts as a failure."""


class BadAnswerError(MqttError):
    """An invalid answer about one client. Only this client is refused.

    The circuit breaker does not count it: otherwise a client with a special name could block the
    plugin for all others.
    """


class ServerConfig(UserRules):
    """Keys of ``[plugins.config]`` that all plugins with a server have."""

    timeout_s: Annotated[float, Range(0.1, 10)] = 3.0
    """Seconds that the server has to answer about one login."""
    connections: Annotated[int, Range(1, 64)] = 8
    """Maximum number of connections to the server; further logins wait for at most
    ``timeout_s``."""
    cache_s: Annotated[float, Range(0, 86_400)] = 0.0
    """Seconds for which an allowed login is cached; 0: not cached."""
    ca: pathlib.Path | None = None
    """CA certificates of the server in PEM; None: those of the system."""
    plaintext: bool = False
    """Allow a connection without TLS to another machine."""


class BackendPlugin(RulesPlugin):
    """A plugin that asks a server."""

    class Config(ServerConfig):
        """The rules and the limits."""

    config: ServerConfig

    def __init__(self, config: ServerConfig, /) -> None:
        super().__init__(config)
        # two requests at most, each of which may wait for a connection first
        timeout = 4 * config.timeout_s + HASHING_S
        self.hooks = {
            name: replace(mark, timeout=timeout, cache=config.cache_s)
            if mark.point == "authenticate"
            else replace(mark, timeout=timeout, is_alone=True)
            if mark.point == "grant"
            else mark
            for name, mark in type(self).hooks.items()
        }
        self._failures = FailureLog()
        self._fault: str | None = None

    async def start(self) -> None:
        """Reads the ACL file and prepares the limit of requests for this event loop."""
        await super().start()
        self._places = asyncio.Semaphore(self.config.connections)

    @hook.health
    async def health(self) -> Degraded | None:
        """Degraded after a failed request, until one succeeds."""
        return None if self._fault is None else Degraded(self._fault)

    async def request(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs ``work``, which uses the server, as soon as a connection is free.

        Raises:
            OverloadedError: no connection was free in time.
            BadAnswerError: the answer makes no sense.
            BackendError: it failed, or took too long.
        """
        try:
            async with asyncio.timeout(self.config.timeout_s):
                await self._places.acquire()
        except TimeoutError:
            raise OverloadedError("all connections to the server are in use") from None
        try:
            async with asyncio.timeout(self.config.timeout_s):
                answer = await work()
        except BadAnswerError:
            self._fault = None
            raise
        except BackendError as error:
            self._fault = str(error)
            raise
        except Exception as error:  # whatever a library raises; its text may have a secret
            self._fault = f"the server failed: {reason(error)}"
            raise BackendError(self._fault) from None
        finally:
            self._places.release()
        self._fault = None
        return answer

    def warn_of_name(self, login: Login, name: str) -> None:
        """Logs that the server found a user whose name is written differently."""
        found = f"the server finds {name[:SHOWN_CHARS]!a}, but has no name that is exactly the same"
        self._failures.warn(self.name, ascii(login.client_id[:120]), f"{found}: not that user")

    def refused(self, login: Login, error: BadAnswerError) -> Deny:
        """Logs an invalid answer, and refuses the client with 0x88."""
        self._failures.warn(self.name, ascii(login.client_id[:120]), f"refused: {error}")
        return Deny("server_unavailable", "the server's answer makes no sense")

    def allowed(self, login: Login, user: str, rules: Iterable[tuple[str, str]]) -> Allow:
        """Allows a client, with an access list of the server.

        Raises:
            BadAnswerError: the list cannot be used.
        """
        own = self.grant_for(user=user, client_id=login.client_id)
        return Allow(replace(own, access_list=access_list(rules, user=user, login=login)))

    def allowed_everything(self, login: Login, user: str) -> Allow:
        """Allows a superuser."""
        own = self.grant_for(user=user, client_id=login.client_id)
        return Allow(replace(EVERYTHING, deny=own.deny))


def access_list(rules: Iterable[tuple[str, str]], *, user: str, login: Login) -> tuple[Rule, ...]:
    """Rules of a server with ``%u`` and ``%c`` inserted, in their order.

    A rule whose levels or wildcards a name would change is left out; a rule that denies is widened.

    Raises:
        BadAnswerError: there are too many, or one of them is none.
    """
    names = {"%u": user, "%c": login.client_id}
    found: list[Rule] = []
    for access, topic in rules:
        if access not in get_args(AccessWord):
            raise BadAnswerError(f"a rule has the access {access[:40]!a}")
        topics = denials(topic, names) if access == "deny" else filled((topic,), names)
        found += [(access_word(access), text) for text in topics]
        if len(found) > RULES_MAX:
            raise BadAnswerError(f"there are more than {RULES_MAX} rules")
    try:
        Grant(access_list=found)
    except (MqttError, ValueError):
        raise BadAnswerError("a rule is no topic filter") from None
    return tuple(found)


def access_word(text: str) -> AccessWord:
    """An access word as its type."""
    return next(word for word in get_args(AccessWord) if word == text)


def has_no_lists(config: UserRules) -> bool:
    """Whether the configuration leaves the rights of clients to the server."""
    return not config.publish and not config.subscribe and config.acl_file is None


def reason(error: BaseException) -> str:
    """The kind of failure of an exception, without its text."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    verify = next((one for one in reversed(list(causes(error))) if is_tls(one)), None)
    if verify is not None:
        return f"TLS: {getattr(verify, 'reason', None) or type(verify).__name__}"
    known = next((one for one in causes(error) if isinstance(one, OSError) and one.errno), None)
    if known is not None and known.errno is not None and known.errno > 0:
        return os.strerror(known.errno)
    return type(error).__name__


def is_tls(error: BaseException) -> bool:
    """Whether an exception is a fault of TLS."""
    return isinstance(error, ssl.SSLError | ssl.CertificateError)


def causes(error: BaseException) -> Iterable[BaseException]:
    """An exception and its causes."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def is_local(host: str | None) -> bool:
    """Whether a host is this machine."""
    if not host or host == "localhost" or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def tls_context(config: ServerConfig) -> ssl.SSLContext:
    """Makes the TLS settings for connections to the server.

    Raises:
        ValueError: the CA certificates cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=None if config.ca is None else str(config.ca))
    except OSError as error:
        raise ValueError(f"ca: {config.ca} cannot be used: {reason(error)}") from None


def secret_of(text: Secret[str] | None, path: pathlib.Path | None, *, name: str) -> str | None:
    """A secret of the configuration, or of a file; one newline at the end of that is left out.

    Raises:
        ValueError: both are given, or the file cannot be used.
    """
    if text is not None and path is not None:
        raise ValueError(f"set one of {name} and {name}_file")
    if path is None:
        return None if text is None else text.reveal()
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        found = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}_file: {path} cannot be read: {reason(error)}") from None
    found = found.removesuffix("\n").removesuffix("\r")
    if not found or len(data) > SECRET_BYTES_MAX:
        raise ValueError(f"{name}_file: {path} is empty or too long")
    return found
