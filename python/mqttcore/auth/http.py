"""Clients about whom an HTTP service decides, with the extra `http` of this package.

    [[plugins]]
    use = "mqttcore.auth.http"
    [plugins.config]
    url = "https://accounts.example.com/mqtt/login"
    acl_url = "https://accounts.example.com/mqtt/acl"    # or publish and subscribe, or acl_file

Requests and answers are those of EMQX (``style = "emqx"``) or of mosquitto-go-auth (``style =
"go-auth"``), so that a service for one of them works. A redirect is not followed, and what is no
clear answer refuses the client with 0x88. Clients without user name are left to the next plugin.
"""

import pathlib
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from mqttcore._core import Ask, Login
from mqttcore._schema import Parsed, Range
from mqttcore.auth.backend import (
    BackendError,
    BackendPlugin,
    BadAnswerError,
    ServerConfig,
    has_no_lists,
    is_local,
    secret_of,
    tls_context,
)
from mqttcore.auth.http_answers import Verdict, emqx_verdict, go_auth_verdict
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import PluginConfig, Secret

try:
    import aiohttp
except ImportError as error:
    raise ImportError("aiohttp is missing: pip install 'mqttcore[http]'") from error

BODY_BYTES_MAX = 65_536
"""Bytes of an answer that are read."""
READ, WRITE, SUBSCRIBE = 1, 2, 4
"""Numbers of go-auth for accesses."""
UNAVAILABLE = (408, 503)
"""Statuses of a service that is unavailable."""
TOO_MANY = 429
"""No answer about the password. A service may count by user: only this client is refused."""


def check_url(url: str) -> None:
    """Refuses an unusable URL.

    Raises:
        ValueError: what is wrong.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a URL that begins with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL may not have a user name or a password: use headers")


Url = Annotated[str, Parsed(check_url, "https://...")]


class Header(PluginConfig):
    """A header of each request."""

    name: str
    """The name."""
    value: Secret[str] | None = None
    """The value, such as a token."""
    value_file: pathlib.Path | None = None
    """A file with the value, instead of ``value``; relative to the configuration file."""


class Http(BackendPlugin):
    """Asks an HTTP service about logins and rights."""

    class Config(ServerConfig):
        """Keys of ``[plugins.config]``, including those of rules and limits."""

        url: Url
        """URL for each login."""
        acl_url: Url | None = None
        """URL for each publish and subscribe that no rule decides."""
        superuser_url: Url | None = None
        """For go-auth: URL that identifies superusers."""
        style: Literal["emqx", "go-auth"] = "emqx"
        """The form of requests and answers."""
        params: Literal["json", "form"] = "json"
        """Encoding of parameters: JSON or a form."""
        response: Literal["status", "json", "text"] = "status"
        """Format of answers of go-auth: the status, ``{"ok": true}``, or ``ok``."""
        headers: tuple[Header, ...] = ()
        """Headers of each request."""
        acl_cache_s: Annotated[float, Range(0, 86_400)] = 60.0
        """Seconds for which an answer of ``acl_url`` is cached."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        check_config(config)
        self._headers = headers_of(config.headers)
        self._context: ssl.SSLContext | bool = True
        if any(url.startswith("https:") for url in urls_of(config)):
            self._context = tls_context(config)
        timeout = 2 * config.timeout_s
        self.hooks = {
            name: replace(mark, timeout=timeout, cache=config.acl_cache_s)
            if mark.point == "authorize"
            else mark
            for name, mark in self.hooks.items()
            if mark.point != "authorize" or config.acl_url is not None
        }

    async def start(self) -> None:
        """Opens the connections.

        Raises:
            AclFileError: the ACL file cannot be used.
        """
        await super().start()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.config.connections, ssl=self._context),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", **self._headers},
            timeout=aiohttp.ClientTimeout(total=self.config.timeout_s),
            auto_decompress=False,
        )

    async def stop(self) -> None:
        """Closes the connections."""
        await self._session.close()

    @hook.authenticate
    async def login(self, login: Login) -> Allow | Deny | None:
        """Asks about a user; for a client without user name, the next plugin is asked."""
        if login.username is None:
            return None
        if (password := text_of(login.password)) is None:
            return Deny("bad_credentials")
        try:
            return await self.request(lambda: self._login(login, login.username or "", password))
        except BadAnswerError as error:
            return self.refused(login, error)

    @hook.authorize(action="publish", filter="#", explain=True)
    async def may_publish(self, ask: Ask) -> bool | None:
        """Asks about a topic."""
        return await self._asked(ask, "publish", WRITE)

    @hook.authorize(action="subscribe", filter="#", explain=True)
    async def may_subscribe(self, ask: Ask) -> bool | None:
        """Asks about a topic filter."""
        return await self._asked(ask, "subscribe", SUBSCRIBE, READ)

    async def _login(self, login: Login, user: str, password: str) -> Allow | Deny | None:
        sent = {"username": user, "password": password, "clientid": login.client_id}
        if self.config.style == "emqx":
            sent["peerhost"] = login.peer[0]
        verdict = await self._post(self.config.url, sent)
        if verdict.says == "ignore":
            return None
        if verdict.says == "deny":
            return Deny("bad_credentials")
        if verdict.is_superuser or await self._is_superuser(user):
            allow = self.allowed_everything(login, user)
        elif verdict.rules is None:
            allow = Allow(self.grant_for(user=user, client_id=login.client_id))
        elif not has_no_lists(self.config):
            raise BadAnswerError("it has an acl, and so has the configuration")
        else:
            allow = self.allowed(login, user, verdict.rules)
        if verdict.expires_at is None:
            return allow
        return replace(allow, grant=replace(allow.grant, expires_at=verdict.expires_at))

    async def _is_superuser(self, user: str) -> bool:
        if self.config.superuser_url is None:
            return False
        return (await self._post(self.config.superuser_url, {"username": user})).says == "allow"

    async def _asked(self, ask: Ask, action: str, *accesses: int) -> bool | None:
        """Whether a client may do it. With go-auth, a subscriber must also be allowed to read."""
        client, topic = ask.client, ask.topic
        sent: dict[str, str | int] = {"username": client.username or "", "topic": topic}
        sent["clientid"] = client.client_id

        async def answers() -> list[Verdict]:
            url = self.config.acl_url or ""
            if self.config.style == "emqx":
                more = {"action": action, "peerhost": client.peer[0]}
                return [await self._post(url, {**sent, **more})]
            return [await self._post(url, {**sent, "acc": access}) for access in accesses]

        try:
            verdicts = await self.request(answers)
        except BadAnswerError as error:
            self._failures.warn(self.name, ascii(client.client_id[:120]), f"refused: {error}")
            return False
        if any(verdict.says == "ignore" for verdict in verdicts):
            return None
        return all(verdict.says == "allow" for verdict in verdicts)

    async def _post(self, url: str, sent: Mapping[str, str | int]) -> Verdict:
        """Sends a request; sends it once more if the server had closed the connection."""
        try:
            status, body = await self._exchange(url, sent)
        except aiohttp.ServerDisconnectedError:
            status, body = await self._exchange(url, sent)
        is_emqx = self.config.style == "emqx"
        if status in UNAVAILABLE:
            raise BackendError(f"the server failed: status {status}")
        is_refusal = 400 <= status < 500 and status != TOO_MANY
        if status in (401, 403) or (is_refusal and not is_emqx):
            return Verdict("deny")
        if not 200 <= status < 300:
            raise BadAnswerError(f"the HTTP service answered with status {status}")
        return (
            emqx_verdict(status, body) if is_emqx else go_auth_verdict(self.config.response, body)
        )

    async def _exchange(self, url: str, sent: Mapping[str, str | int]) -> tuple[int, bytes]:
        """Status and body of an answer."""
        is_form = self.config.params == "form"
        form = {name: str(value) for name, value in sent.items()} if is_form else None
        async with self._session.post(
            url, json=None if is_form else sent, data=form, allow_redirects=False
        ) as response:
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > BODY_BYTES_MAX:
                    raise BadAnswerError(f"the answer has more than {BODY_BYTES_MAX} bytes")
            return response.status, bytes(body)


def check_config(config: Http.Config) -> None:
    """Refuses keys that contradict each other.

    Raises:
        ValueError: what is wrong.
    """
    for url in urls_of(config):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "http" and not is_local(parts.hostname) and not config.plaintext:
            raise ValueError(
                f"{parts.hostname} would get passwords without TLS: use https, or set plaintext"
            )
    if config.style == "emqx" and (config.superuser_url or config.response != "status"):
        raise ValueError('superuser_url and response need style = "go-auth"')
    if config.acl_url and config.acl_file is not None:
        raise ValueError("acl_file decides everything: leave out acl_url")


def urls_of(config: Http.Config) -> list[str]:
    """The URLs that are asked."""
    return [url for url in (config.url, config.acl_url, config.superuser_url) if url is not None]


def headers_of(headers: tuple[Header, ...]) -> dict[str, str]:
    """Names and values of headers.

    Raises:
        ValueError: one of them has no value, or is no header.
    """
    found: dict[str, str] = {}
    for header in headers:
        value = secret_of(header.value, header.value_file, name="value")
        is_name = header.name.isascii() and header.name.replace("-", "").isalnum()
        if not is_name or value is None:
            raise ValueError(f"header {header.name!r} has no value, or is no header")
        if not value.isprintable() or not value.isascii():
            raise ValueError(
                f"the value of header {header.name!r} has characters that a header may not have"
            )
        found[header.name] = value
    return found


def text_of(password: bytes | None) -> str | None:
    """A password as text; None without one, or if it is not text."""
    try:
        return (password or b"").decode() or None
    except UnicodeDecodeError:
        return None
