"""Keys of JSON Web Tokens: a shared secret, a file of public keys, or a JWK Set at a URL.

A key has one type, which fits its own algorithms only: a public key never verifies an HMAC. The
`kid` of a token is only compared with those of the keys.
"""

import asyncio
import http.client
import json
import logging
import pathlib
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock as hook_clock

try:
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, Key, OctKey, RSAKey
except ImportError as error:
    raise ImportError("joserfc is missing: pip install 'mqttcore[jwt]'") from error

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 5.0
KID_WAIT_S = 5.0
"""Maximum seconds that a login waits for the key of its token; it has to answer within 10 s."""
WAITING_MAX = 1_024
"""Maximum number of logins that wait for keys; others get "Server busy"."""
RETRY_S = 10.0
"""Minimum seconds between two requests for the same key set."""
KEY_SET_BYTES_MAX = 1_048_576
KEYS_MAX = 64
RSA_BITS_MIN = 2_048
KEY_TYPES = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of key by the first two letters of the algorithm."""


class JwtKeyError(ValueError):
    """A key or a key set is invalid."""


class KeysExpiredError(Exception):
    """The keys are no longer valid: the key set could not be fetched for too long."""


class KeySource(Protocol):
    """A source of keys: a fixed set, or a URL."""

    async def start(self) -> None:
        """Gets the keys; raises `JwtKeyError` if there are none."""

    async def stop(self) -> None:
        """Ends the fetches of keys."""

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key for a token, if there is exactly one."""


class Keys:
    """A set of keys, for the algorithms of the configuration."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)

    async def start(self) -> None:
        """Does nothing: the set is fixed."""

    async def stop(self) -> None:
        """Does nothing."""

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Like `pick`."""
        return self.pick(kid, algorithm)

    def pick(self, kid: str | None, algorithm: str) -> Key | None:
        """The key with that `kid` and for that algorithm. Returns None if not exactly one fits.

        A token without `kid` may be signed by any key, a key without `kid` may sign any token.
        """
        named = [key for key in self._keys if kid is not None and key.kid == kid]
        others = [key for key in self._keys if kid is None or key.kid is None]
        fitting = [key for key in named or others if fits(key, algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    def __repr__(self) -> str:
        return f"<Keys {len(self._keys)}>"


def fits(key: Key, algorithm: str) -> bool:
    """Whether the key is for this algorithm, and for signatures."""
    is_of_type = key.key_type == KEY_TYPES[algorithm[:2]]
    return is_of_type and key.alg in (None, algorithm) and key.get("use") in (None, "sig")


def secret_keys(secret: str, algorithms: Sequence[str]) -> Keys:
    """The key of a shared secret.

    Raises:
        JwtKeyError: it is shorter than the hash of an algorithm (RFC 7518 section 3.2).
    """
    least = max(int(algorithm[2:]) // 8 for algorithm in algorithms)
    text = secret.encode()
    if len(text) < least:
        raise JwtKeyError(f"the secret is too short: {max(algorithms)} takes {least} bytes or more")
    try:
        return Keys([OctKey.import_key(text)])
    except ValueError:  # says what it found: no word of that goes on
        raise JwtKeyError("the secret is a public key; write it to a file: key_file") from None


def read_key_file(path: pathlib.Path, algorithms: Sequence[str]) -> Keys:
    """The public keys of a file: PEM, a JWK or a JWK Set.

    Raises:
        JwtKeyError: it cannot be used; the text names the file.
    """
    try:
        data = path.read_bytes()
        if data.lstrip().startswith(b"{"):
            return parse_key_set(data, algorithms)
        return Keys([parse_pem(data, algorithms)])
    except OSError as error:
        raise JwtKeyError(f"{path}: cannot be read: {error.strerror}") from error
    except JwtKeyError as error:
        raise JwtKeyError(f"{path}: {error}") from error


def parse_pem(data: bytes, algorithms: Sequence[str]) -> Key:
    """A public key in PEM.

    Raises:
        JwtKeyError: it is none, or none for these algorithms.
    """
    for key_type in {KEY_TYPES[algorithm[:2]] for algorithm in algorithms}:
        try:
            return checked(JWKRegistry.import_key(data, key_type))
        except (JoseError, ValueError, TypeError) as error:
            if isinstance(error, JwtKeyError):
                raise
    raise JwtKeyError(f"it has no public key for {', '.join(algorithms)}")


def parse_key_set(data: bytes, algorithms: Sequence[str]) -> Keys:
    """A JWK Set, or a JWK. Keys for other purposes or algorithms are left out.

    Raises:
        JwtKeyError: it is none, two keys have the same `kid`, or no key is left.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JwtKeyError("it is not JSON") from error
    members = found.get("keys", [found]) if isinstance(found, dict) else None
    if not isinstance(members, list) or len(members) > KEYS_MAX:
        raise JwtKeyError(f"it is not a JWK Set with at most {KEYS_MAX} keys")
    keys = [key for member in members if (key := parse_jwk(member, algorithms)) is not None]
    if not keys:
        raise JwtKeyError(f"it has no public key for {', '.join(algorithms)}")
    ids = [(key.kid, key.key_type) for key in keys if key.kid is not None]
    if len(set(ids)) < len(ids):
        raise JwtKeyError("two of its keys have the same kid")
    return Keys(keys)


def parse_jwk(member: object, algorithms: Sequence[str]) -> Key | None:
    """One key of a set. Returns None if it cannot be used with any of the algorithms."""
    types = [KEY_TYPES[algorithm[:2]] for algorithm in algorithms]
    if not isinstance(member, dict) or member.get("kty") not in types:
        return None
    try:
        key = checked(JWKRegistry.import_key(member))
    except Exception as error:  # joserfc raises KeyError for an unknown curve, among others
        reason = str(error) if isinstance(error, JwtKeyError) else type(error).__name__
        log.warning("key %a of a JWK Set is left out: %s", member.get("kid"), reason)
        return None
    return key if any(fits(key, algorithm) for algorithm in algorithms) else None


def checked(key: Key) -> Key:
    """The key itself.

    Raises:
        JwtKeyError: it is a private key, or a short one.
    """
    if key.is_private:
        raise JwtKeyError("it is a private key; the broker needs the public one only")
    if isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS_MIN:
        raise JwtKeyError(f"it has fewer than {RSA_BITS_MIN} bits")
    return key


class KeySetUrl:
    """A JWK Set at a URL: fetched again every `refresh_s`, and if a token names an unknown key.

    The interval runs in the background, from `start` to `stop`. A login waits only if its key is
    unknown, for at most `KID_WAIT_S`; all logins share one request, with `RETRY_S` between two of
    them. If a request fails, the old keys stay valid, for `keep_s`.
    """

    def __init__(
        self,
        url: str,
        *,
        algorithms: Sequence[str],
        refresh_s: float,
        keep_s: float,
        ca: pathlib.Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._algorithms = algorithms
        self._refresh_s = refresh_s
        self._keep_s = keep_s
        self._ca = ca
        self._clock = clock
        self._waiting = 0
        self._fetching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetches the keys, and again every `refresh_s`.

        Raises:
            JwtKeyError: they cannot be fetched, or not used.
        """
        self._fetching = None  # after a second start, that is one of another event loop
        self._asked_at = self._clock()
        self._keys = await self._fetch()
        self._fetched_at = self._clock()
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh_by_age())

    async def stop(self) -> None:
        """Stops fetching keys; the result of a running request is discarded."""
        for task in (self._refreshing, self._fetching):
            if task is not None:
                task.cancel()

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key for a token.

        Raises:
            KeysExpiredError: the keys are too old to count.
            OverloadedError: too many logins wait for keys.
        """
        key = self._pick(kid, algorithm)
        if key is None and (kid is not None or self._is_expired()):
            await self._wait_for_refresh()
            key = self._pick(kid, algorithm)
        if self._is_expired():
            raise KeysExpiredError
        return key

    def _pick(self, kid: str | None, algorithm: str) -> Key | None:
        return None if self._is_expired() else self._keys.pick(kid, algorithm)

    def _is_expired(self) -> bool:
        return self._clock() - self._fetched_at >= self._keep_s

    async def _wait_for_refresh(self) -> None:
        fetching = self._refresh()
        if fetching is None:
            return
        if self._waiting >= WAITING_MAX:
            raise OverloadedError("too many logins wait for the keys of tokens")
        self._waiting += 1
        try:
            with hook_clock.without_place():
                await asyncio.wait([fetching], timeout=KID_WAIT_S)
        finally:
            self._waiting -= 1

    async def _refresh_by_age(self) -> None:
        while True:
            has_failed = self._clock() - self._fetched_at >= self._refresh_s
            await asyncio.sleep(min(RETRY_S, self._refresh_s) if has_failed else self._refresh_s)
            if fetching := self._refresh():
                await asyncio.wait([fetching])

    def _refresh(self) -> asyncio.Task[None] | None:
        """Starts a request, unless one was started a moment ago; returns the running one."""
        if self._fetching is None or self._fetching.done():
            if self._clock() - self._asked_at < RETRY_S:
                return None
            self._asked_at = self._clock()
            self._fetching = asyncio.get_running_loop().create_task(self._replace())
        return self._fetching

    async def _replace(self) -> None:
        try:
            self._keys = await self._fetch()
        except JwtKeyError as error:
            log.warning("%s; the keys of before stay in use", error)
        except Exception:
            log.exception("%s: the keys of before stay in use", shown(self._url))
        else:
            self._fetched_at = self._clock()

    async def _fetch(self) -> Keys:
        try:
            data = await asyncio.to_thread(fetch, self._url, ca=self._ca)
            return parse_key_set(data, self._algorithms)
        except (OSError, http.client.HTTPException) as error:
            raise JwtKeyError(f"{shown(self._url)}: cannot be fetched: {error}") from error
        except JwtKeyError as error:
            raise JwtKeyError(f"{shown(self._url)}: {error}") from error


def check_url(url: str) -> None:
    """Refuses a URL that is not allowed for keys.

    Raises:
        ValueError: what is wrong.
    """
    parts = urllib.parse.urlsplit(url)
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        raise ValueError("keys come over https, or over http from this machine")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL has a user name or a password")


def shown(url: str) -> str:
    """A URL for logs, without its query, which may contain a token."""
    return urllib.parse.urlsplit(url)._replace(query="", fragment="").geturl()


class RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: keys come from the configured URL only."""

    def redirect_request(  # noqa: D102 - of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def fetch(url: str, *, ca: pathlib.Path | None, timeout: float = FETCH_TIMEOUT_S) -> bytes:
    """The body at the URL.

    Blocks for `timeout` seconds, at most twice that; longer if the resolver does, or if the issuer
    sends its headers slowly.

    Raises:
        OSError: there is none, or it is too large or too slow.
    """
    deadline = time.monotonic() + timeout
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    handlers = [urllib.request.HTTPSHandler(context=context), RefuseRedirects()]
    if urllib.parse.urlsplit(url).scheme == "http":  # from this machine, so past every proxy
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see check_url
    try:
        with opener.open(request, timeout=timeout) as response:
            return read_body(response, deadline)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"HTTP status {error.code}") from None


def read_body(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Reads the whole body of an answer before the deadline."""
    body = bytearray()
    while part := response.read1(65_536):
        body += part
        if len(body) > KEY_SET_BYTES_MAX:
            raise OSError(f"more than {KEY_SET_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
    return bytes(body)
