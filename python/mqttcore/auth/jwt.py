"""Clients whose password is a JSON Web Token (RFC 7519), with the extra `jwt` of this package.

    [[plugins]]
    use = "mqttcore.auth.jwt"
    [plugins.config]
    jwks_url = "https://login.example.com/keys"   # or key_file, or secret
    algorithms = ["RS256"]
    issuer = "https://login.example.com/"
    audience = "mqtt"
    publish = ["%{tenant}/%u/#"]
    subscribe = ["%{tenant}/%u/#", "news/#"]

The claim ``username_claim`` is the user name, whatever CONNECT has there. ``%{NAME}`` in a rule is
the claim ``NAME``, text or a whole number; ``%u`` and ``%c`` are those of
`mqttcore.auth.password_file`. If a claim is missing or would change the shape of a rule, the rule
is treated like one whose name contains ``/`` there. ``a.b`` is the member ``b`` of the claim ``a``.

A token needs ``exp``: the client is disconnected then. Only the algorithms of the configuration
are accepted, whatever a token says; ``none`` is not among them. If a password is no token, the next
plugin is asked: a token has three parts, and the first is a JSON object with ``alg``.
"""

import base64
import json
import pathlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

from mqttcore._core import Login, check_grant_rule
from mqttcore._placed import PlacedRule
from mqttcore._schema import Parsed, Range
from mqttcore.auth.jwt_keys import (
    Keys,
    KeySetUrl,
    KeysExpiredError,
    KeySource,
    check_url,
    read_key_file,
    secret_keys,
)
from mqttcore.auth.marks import marks_of
from mqttcore.auth.rules import RulesPlugin, UserRules
from mqttcore.errors import MqttError
from mqttcore.plugin.answers import Allow, Deny, Grant
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import Secret

# isort: split
from joserfc import jws
from joserfc.errors import JoseError

Algorithm = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
Claims = Mapping[str, object]

TOKEN_BYTES_MAX = 8_192
RULES_MAX = 256
"""Maximum number of topic filters in one claim."""
TOKEN = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]*")
NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of surrogate pairs, which have no UTF-8."""
LATEST = 253_402_300_799
"""The last second of the year 9999."""


class TokenError(ValueError):
    """A token is refused; the text contains nothing of the token."""


class Jwt(RulesPlugin):
    """Admits clients with a token, each with rules from its claims."""

    class Config(UserRules):
        """Keys of ``[plugins.config]``, including those of rules."""

        algorithms: tuple[Algorithm, ...]
        """Algorithms of the signatures; those of a secret and of public keys cannot be mixed."""
        secret: Secret[str] | None = None
        """The shared secret, for HS256, HS384 and HS512."""
        key_file: pathlib.Path | None = None
        """Public keys: PEM, a JWK or a JWK Set; relative to the configuration file."""
        jwks_url: Annotated[str, Parsed(check_url, "https://...")] | None = None
        """URL of the issuer's JWK Set."""
        jwks_ca: pathlib.Path | None = None
        """CA certificates for that URL in PEM; None: those of the system."""
        jwks_refresh_s: Annotated[float, Range(10, 86_400)] = 300.0
        """Seconds between two fetches of the keys."""
        jwks_keep_s: Annotated[float, Range(60, 2_592_000)] = 86_400.0
        """Seconds for which keys are valid if they cannot be fetched again."""
        issuer: str | None = None
        """Required claim ``iss``; None: any issuer."""
        audience: str | None = None
        """Required value in the claim ``aud``; None: tokens must not have this claim."""
        leeway_s: Annotated[float, Range(0, 300)] = 5.0
        """Maximum difference between the clocks of issuer and broker, in seconds."""
        username_claim: str = "sub"
        """The claim that is the user name."""
        client_id_claim: str | None = None
        """The claim that must be equal to the client identifier; None: any identifier."""
        publish_claim: str | None = None
        """A claim with a list of topic filters to publish to, in addition to the rules here."""
        subscribe_claim: str | None = None
        """A claim with a list of topic filters to subscribe to, in addition to the rules here."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        if config.acl_file is not None and (config.publish_claim or config.subscribe_claim):
            raise ValueError("acl_file replaces publish_claim and subscribe_claim: leave them out")
        self._keys = key_source(config)

    async def start(self) -> None:
        """Gets the keys.

        Raises:
            JwtKeyError: no key can be read or fetched.
            AclFileError: the ACL file cannot be used.
        """
        await super().start()
        if self.config.key_file is not None:
            self._keys = read_key_file(self.config.key_file, self.config.algorithms)
        await self._keys.start()

    async def stop(self) -> None:
        """Stops fetching keys."""
        await self._keys.stop()

    @hook.authenticate(timeout=15.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Allows a valid token. Returns None if the password is no token."""
        token = login.password
        if token is None or not is_token(token):
            return None
        try:
            claims = await self.verified(token)
            until = check_times(claims, now=time.time(), leeway_s=self.config.leeway_s)
            check_parties(claims, issuer=self.config.issuer, audience=self.config.audience)
            user = user_of(claims, self.config, client_id=login.client_id)
            return Allow(self._grant(claims, login, user=user, until=until), username=user)
        except TokenError as error:
            return Deny("bad_credentials", str(error))
        except KeysExpiredError:
            return Deny("server_unavailable", "the keys for tokens cannot be fetched")

    async def verified(self, token: bytes) -> Claims:
        """The claims of a token with a valid signature; nothing else is checked.

        Raises:
            TokenError: the token is malformed, its key is unknown, or its signature is wrong.
            KeysExpiredError: the keys are too old to count.
        """
        found = extracted(token)
        header = found.protected
        if "crit" in header or "b64" in header:
            raise TokenError("the header of the token is not supported")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.config.algorithms or not isinstance(kid, str | None):
            raise TokenError("the algorithm of the token is not allowed")
        key = await self._keys.find(kid, str(algorithm))
        if key is None:
            raise TokenError("the key of the token is unknown")
        try:
            is_good = jws.validate_compact(found, key, registry=REGISTRY)
        except (JoseError, ValueError, TypeError):
            is_good = False
        if not is_good:
            raise TokenError("the signature of the token is wrong")
        return parsed(found.payload)

    def _grant(self, claims: Claims, login: Login, *, user: str, until: datetime) -> Grant:
        rules = self.config
        marks = marks_of([*rules.publish, *rules.subscribe, *rules.deny])
        values = {mark: text_of(claim(claims, mark[2:-1])) for mark in marks if mark[1] == "{"}
        own = self.grant_for(user=user, client_id=login.client_id, values=values)
        return replace(
            own,
            publish=[*own.publish, *filters_of(claims, rules.publish_claim)],
            subscribe=[*own.subscribe, *filters_of(claims, rules.subscribe_claim)],
            expires_at=until,
        )


class PinnedRegistry(jws.JWSRegistry):
    """Leaves the checks of header and algorithm to `Jwt.verified`."""

    max_header_length = TOKEN_BYTES_MAX

    def __init__(self) -> None:
        super().__init__(strict_check_header=False)

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - joserfc exports no name for the type
        """The algorithm, without a warning for EdDSA, which got another name."""
        return self.algorithms[name]


REGISTRY = PinnedRegistry()


def key_source(config: Jwt.Config) -> KeySource:
    """The keys that the configuration names; a file is read at the start.

    Raises:
        ValueError: it names no keys, several sources of keys, or algorithms that do not fit.
    """
    given = [config.secret, config.key_file, config.jwks_url]
    if sum(one is not None for one in given) != 1:
        raise ValueError("set exactly one of secret, key_file and jwks_url")
    shared = [name for name in config.algorithms if name.startswith("HS")]
    if not config.algorithms or len(shared) not in (0, len(config.algorithms)):
        raise ValueError("algorithms must be those of a secret (HS...) or of public keys")
    if bool(shared) != (config.secret is not None):
        raise ValueError("HS256, HS384 and HS512 take a secret, the others key_file or jwks_url")
    if config.secret is not None:
        return secret_keys(config.secret.reveal(), config.algorithms)
    if config.jwks_url is None:
        return Keys(())
    return KeySetUrl(
        config.jwks_url,
        algorithms=config.algorithms,
        refresh_s=config.jwks_refresh_s,
        keep_s=config.jwks_keep_s,
        ca=config.jwks_ca,
    )


def is_token(password: bytes) -> bool:
    """Whether a password is a token: three parts, the first a JSON object with ``alg``."""
    head = password.partition(b".")[0]
    if len(head) > TOKEN_BYTES_MAX or not TOKEN.fullmatch(password):
        return False
    try:
        header = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def extracted(token: bytes) -> jws.CompactSignature:
    """Splits a token, without any check."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError(f"the token has more than {TOKEN_BYTES_MAX} bytes")
    try:
        found = jws.extract_compact(token, registry=REGISTRY)
    except (JoseError, ValueError, TypeError, RecursionError):
        raise TokenError("the token is malformed") from None
    header: object = found.protected  # whatever JSON was there
    if not isinstance(header, dict):
        raise TokenError("the token is malformed")
    return found


def parsed(payload: bytes) -> Claims:
    """The claims of a payload whose signature is valid."""
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise TokenError("the claims of the token are not JSON") from None
    if not isinstance(claims, dict):
        raise TokenError("the claims of the token are not a JSON object")
    return cast(Claims, claims)


def check_times(claims: Claims, *, now: float, leeway_s: float) -> datetime:
    """The time of the disconnect: ``exp`` plus the leeway.

    Raises:
        TokenError: the token is expired, not valid yet, or has no ``exp``.
    """
    expires = seconds_of(claims, "exp")
    if expires is None:
        raise TokenError("the token has no exp")
    if expires + leeway_s <= now:
        raise TokenError("the token is expired")
    for name in ("nbf", "iat"):
        since = seconds_of(claims, name)
        if since is not None and since - leeway_s > now:
            raise TokenError("the token is not valid yet")
    return datetime.fromtimestamp(min(expires + leeway_s, LATEST), UTC)


def seconds_of(claims: Claims, name: str) -> float | None:
    """A time in seconds since 1970. Returns None if the claim is missing."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LATEST:
        return float(value)
    raise TokenError(f"the claim {name} is not a time")  # NaN, too


def check_parties(claims: Claims, *, issuer: str | None, audience: str | None) -> None:
    """Refuses a token of another issuer, or for another audience.

    Raises:
        TokenError: the issuer or the audience is another one.
    """
    if issuer is not None and claims.get("iss") != issuer:
        raise TokenError("the issuer of the token is wrong")
    named = claims.get("aud")
    audiences = named if isinstance(named, list) else [named]
    is_meant = "aud" not in claims if audience is None else audience in audiences
    if not is_meant:
        raise TokenError("the token is for another audience")


def user_of(claims: Claims, config: Jwt.Config, *, client_id: str) -> str:
    """The user name.

    Raises:
        TokenError: there is none, or the token belongs to another client identifier.
    """
    pinned = config.client_id_claim
    if pinned is not None and claim(claims, pinned) != client_id:
        raise TokenError("the token is for another client identifier")
    user = claim(claims, config.username_claim)
    if not isinstance(user, str) or not user or NOT_IN_NAMES.search(user):
        raise TokenError(f"the claim {config.username_claim} is not a user name")
    return user


def claim(claims: Claims, name: str) -> object:
    """The claim of that name, or the member of a claim: ``a.b``. Returns None if it is missing."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def text_of(value: object) -> str:
    """A claim as text for a rule; empty, which fits no rule, if it is neither text nor number."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or isinstance(value, str) else ""


def filters_of(claims: Claims, name: str | None) -> Sequence[str]:
    """The topic filters in a claim; none if the claim is not configured or missing.

    Raises:
        TokenError: the claim is not a list of topic filters.
    """
    found = None if name is None else claim(claims, name)
    if found is None:
        return ()
    try:
        if not isinstance(found, list) or len(found) > RULES_MAX:
            raise TypeError
        for rule in found:
            check_grant_rule(rule)
    except (MqttError, TypeError, ValueError):
        raise TokenError(f"the claim {name} is not a list of topic filters") from None
    return [
        PlacedRule(rule, f"claim {name}, rule {number}") for number, rule in enumerate(found, 1)
    ]
