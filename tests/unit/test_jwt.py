"""`mqttcore.auth.jwt`: which tokens let a client in, and what it may do then."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from joserfc.jwk import ECKey, OKPKey
from mqttcore import Broker, ConfigError, Settings
from mqttcore.auth.jwt import TOKEN_BYTES_MAX, Claims, Jwt, TokenError, check_parties, check_times
from mqttcore.auth.jwt_keys import Keys
from mqttcore.config import Listener, PluginUse
from mqttcore.plugin import Allow, Deny, Login, Secret

from tests.tokens import HOUR_S, SECRET, Issuer, claims, hmac_token, rsa_key, token
from tests.wire import Wire

RSA = rsa_key("one")
LISTENER = Listener(address="127.0.0.1:0", name="tokens")


def shared(**config: object) -> Jwt:
    """A plugin with a secret."""
    return Jwt(Jwt.Config(secret=Secret(SECRET), algorithms=("HS256",), **config))  # type: ignore[arg-type] # fields


def asked(plugin: Jwt, password: bytes | None, username: str | None = None) -> Allow | Deny | None:
    """The plugin's answer to one CONNECT."""

    async def ask() -> Allow | Deny | None:
        await plugin.start()
        return await plugin.login(Login(client_id="c1", username=username, password=password))

    return asyncio.run(ask())


def refusal(plugin: Jwt, password: bytes) -> str:
    """The text of a refusal for bad credentials."""
    answer = asked(plugin, password)
    assert isinstance(answer, Deny)
    assert answer.reason == "bad_credentials"
    return str(answer.text)


def test_a_token_gives_user_name_rules_and_end() -> None:
    plugin = shared(
        publish=("%{tenant}/%u/#", "c/%c", "n/%{site.number}"),
        subscribe=("news/#",),
        deny=("%{tenant}/secret",),
        leeway_s=0.0,
    )
    until = int(time.time()) + HOUR_S

    answer = asked(
        plugin,
        hmac_token(claims(tenant="acme", site={"number": 7}, exp=until)),
        username="whoever",
    )

    assert isinstance(answer, Allow)
    assert answer.username == "joe"
    assert answer.grant.publish == ("acme/joe/#", "c/c1", "n/7")
    assert answer.grant.subscribe == ("news/#",)
    assert answer.grant.deny == ("acme/secret",)
    assert answer.grant.expires_at == datetime.fromtimestamp(until, UTC)


@pytest.mark.parametrize("tenant", ["#", "+", "a/b", "", None, True, ["acme"], {"a": 1}])
def test_a_claim_that_would_change_a_rule_takes_it_away(tenant: object) -> None:
    plugin = shared(publish=("%{tenant}/x", "plain"), deny=("d/%{tenant}/x",))

    answer = asked(plugin, hmac_token(claims(tenant=tenant)))

    assert isinstance(answer, Allow)
    assert answer.grant.publish == ("plain",)
    assert answer.grant.deny == ("d/#",)


@pytest.mark.parametrize("tenant", ["\ud800", "a\x00b", "x" * 5_000])
def test_a_claim_that_no_topic_can_have_takes_the_rule_away(tenant: str) -> None:
    rule = "%{tenant}" * 14
    answer = asked(shared(publish=(rule, "plain")), hmac_token(claims(tenant=tenant)))

    assert isinstance(answer, Allow)
    assert list(answer.grant.publish) == ["plain"]


def test_a_claim_with_a_mark_in_it_stays_what_it_is() -> None:
    answer = asked(shared(publish=("%{tenant}/x",)), hmac_token(claims(tenant="%u")))

    assert isinstance(answer, Allow)
    assert answer.grant.publish == ("%u/x",)


def test_a_token_may_list_topic_filters() -> None:
    plugin = shared(publish=("own",), publish_claim="acl.pub", subscribe_claim="subs")

    answer = asked(plugin, hmac_token(claims(acl={"pub": ["a/#"]}, subs=["b/+", "$SYS/#"])))
    without = asked(plugin, hmac_token(claims()))
    assert isinstance(answer, Allow)
    places = [getattr(rule, "place", None) for rule in answer.grant.subscribe]
    assert places == ["claim subs, rule 1", "claim subs, rule 2"]

    assert isinstance(answer, Allow)
    assert isinstance(without, Allow)
    assert answer.grant.publish == ("own", "a/#")
    assert answer.grant.subscribe == ("b/+", "$SYS/#")
    assert (without.grant.publish, without.grant.subscribe) == (("own",), ())


@pytest.mark.parametrize("found", ["a/#", ["a/#/b"], [1], [["a"]], {"a": 1}, 7, ["a"] * 257])
def test_a_list_that_is_none_refuses_the_token(found: object) -> None:
    plugin = shared(subscribe_claim="subs")

    assert "not a list of topic filters" in refusal(plugin, hmac_token(claims(subs=found)))


@pytest.mark.parametrize(
    "password",
    [
        None,
        b"",
        b"secret",
        b"a.b",
        b"a.b.c",
        b"my.pass.word",
        b"a.b.c.d",
        b"a b.c.d",
        b"..",
        hmac_token(claims(), header=b"[1]"),
        hmac_token(claims(), header={"typ": "JWT"}),
        hmac_token(claims(), header=b"[" * 5_000),
        hmac_token(claims(), header={"alg": "HS256", "pad": "x" * TOKEN_BYTES_MAX}),
    ],
    ids=range(13),
)
def test_a_password_that_is_no_token_is_left_to_the_next_plugin(password: bytes | None) -> None:
    assert asked(shared(), password) is None


@pytest.mark.parametrize("sub", [None, "", 7, True, ["joe"], "a\nb", "a\x00b", "\x85", "\ud800"])
def test_a_token_without_a_user_name_is_refused(sub: object) -> None:
    assert "not a user name" in refusal(shared(), hmac_token(claims(sub=sub)))


def test_a_huge_token_is_refused_before_it_is_read() -> None:
    """A re-configured broker may take packets of that size."""
    forged = hmac_token(claims(pad="x" * TOKEN_BYTES_MAX))

    assert refusal(shared(), forged) == "the token has more than 8192 bytes"


def test_a_token_may_be_for_one_client_identifier_only() -> None:
    plugin = shared(client_id_claim="device.id")

    mine = asked(plugin, hmac_token(claims(device={"id": "c1"})))
    other = asked(plugin, hmac_token(claims(device={"id": "c2"})))
    nobody = asked(plugin, hmac_token(claims()))

    assert isinstance(mine, Allow)
    assert isinstance(other, Deny)
    assert isinstance(nobody, Deny)


# --- times and parties

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("found", "until"),
    [
        ({"exp": NOW + 1}, NOW + 1),
        ({"exp": NOW + 0.5}, NOW + 0.5),
        ({"exp": NOW + 10, "nbf": NOW, "iat": NOW}, NOW + 10),
    ],
)
def test_a_token_counts_until_its_exp(found: Claims, until: float) -> None:
    assert check_times(found, now=NOW, leeway_s=0).timestamp() == until


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"exp": NOW},
        {"exp": NOW - 1},
        {"exp": NOW + 1, "nbf": NOW + 0.1},
        {"exp": NOW + 1, "iat": NOW + 0.1},
        {"exp": None},
        {"exp": "1000001"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"exp": -1},
        {"exp": [NOW + 1]},
        {"exp": NOW + 1, "nbf": None},
        {"exp": NOW + 1, "nbf": float("nan")},
        {"exp": NOW + 1, "iat": "now"},
    ],
)
def test_a_token_at_the_wrong_time_or_with_none_is_refused(found: Claims) -> None:
    with pytest.raises(TokenError):
        check_times(found, now=NOW, leeway_s=0)


def test_the_leeway_is_for_both_ends() -> None:
    late = check_times({"exp": NOW - 4}, now=NOW, leeway_s=5)
    check_times({"exp": NOW + 1, "nbf": NOW + 5, "iat": NOW + 5}, now=NOW, leeway_s=5)

    assert late.timestamp() == NOW + 1
    for found in ({"exp": NOW - 5}, {"exp": NOW + 9, "nbf": NOW + 6}):
        with pytest.raises(TokenError):
            check_times(found, now=NOW, leeway_s=5)


@pytest.mark.parametrize(
    ("found", "issuer", "audience"),
    [
        ({}, None, None),
        ({"iss": "x"}, None, None),
        ({"iss": "x"}, "x", None),
        ({"aud": "mqtt"}, None, "mqtt"),
        ({"aud": ["web", "mqtt"]}, None, "mqtt"),
    ],
)
def test_a_token_for_us(found: Claims, issuer: str | None, audience: str | None) -> None:
    check_parties(found, issuer=issuer, audience=audience)


@pytest.mark.parametrize(
    ("found", "issuer", "audience"),
    [
        ({}, "x", None),
        ({"iss": "X"}, "x", None),
        ({"iss": ["x"]}, "x", None),
        ({}, None, "mqtt"),
        ({"aud": "web"}, None, "mqtt"),
        ({"aud": ["web"]}, None, "mqtt"),
        ({"aud": "mqtt-2"}, None, "mqtt"),
        ({"aud": {"mqtt": 1}}, None, "mqtt"),
        ({"aud": "mqtt"}, None, None),
        ({"aud": None}, None, None),
        ({"aud": []}, None, None),
    ],
)
def test_a_token_for_others(found: Claims, issuer: str | None, audience: str | None) -> None:
    with pytest.raises(TokenError):
        check_parties(found, issuer=issuer, audience=audience)


# --- algorithms and keys

EC = ECKey.generate_key("P-256", parameters={"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", parameters={"kid": "ed"})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "PS384"), (EC, "ES256"), (ED, "Ed25519")],
    ids=["RS256", "PS384", "ES256", "Ed25519"],
)
def test_public_keys_of_each_kind(tmp_path: pathlib.Path, key: object, algorithm: str) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(key.as_pem(private=False))  # type: ignore[attr-defined] # of each kind
    plugin = Jwt(Jwt.Config(key_file=path, algorithms=(algorithm,)))  # type: ignore[arg-type] # a word

    good = asked(plugin, token(claims(), key, algorithm))  # type: ignore[arg-type] # as above
    cut = token(claims(), key, algorithm)[:-8]  # type: ignore[arg-type] # as above

    assert isinstance(good, Allow)
    assert "signature" in refusal(plugin, cut)


def test_a_signature_of_another_key_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(RSA.as_pem(private=False))
    plugin = Jwt(Jwt.Config(key_file=path, algorithms=("RS256",)))

    assert "signature" in refusal(plugin, token(claims(), rsa_key("one")))


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({}, "set exactly one of"),
        ({"secret": SECRET, "key_file": "x"}, "set exactly one of"),
        ({"secret": SECRET, "algorithms": ["RS256"]}, "take a secret"),
        ({"secret": SECRET, "algorithms": ["HS256", "RS256"]}, "algorithms must be"),
        ({"secret": SECRET, "algorithms": []}, "algorithms must be"),
        ({"key_file": "x", "algorithms": ["HS256"]}, "take a secret"),
        ({"secret": SECRET, "algorithms": ["none"]}, "algorithms"),
        ({"secret": "short"}, "too short: HS256 takes 32 bytes"),
        ({"secret": "x" * 63, "algorithms": ["HS256", "HS512"]}, "HS512 takes 64 bytes"),
        ({"jwks_url": "http://example.com/keys", "algorithms": ["RS256"]}, "https"),
        ({"jwks_url": "file:///etc/passwd", "algorithms": ["RS256"]}, "https"),
        ({"jwks_url": "https://joe:secret@example.com", "algorithms": ["RS256"]}, "user name"),
        ({"secret": RSA.as_pem(private=False).decode()}, "is a public key"),
    ],
)
def test_a_wrong_configuration_stops_the_start(config: dict[str, object], fault: str) -> None:
    use = PluginUse(use="mqttcore.auth.jwt", config={"algorithms": ["HS256"], **config})

    with pytest.raises(ConfigError, match=fault) as caught:
        Broker(Settings(listeners=(LISTENER,), plugins=(use,))).start()

    assert SECRET not in str(caught.value)


def test_a_public_key_as_the_secret_is_not_shown() -> None:
    pem = RSA.as_pem(private=False).decode()

    with pytest.raises(ValueError, match="is a public key") as caught:
        Jwt(Jwt.Config(secret=Secret(pem), algorithms=("HS256",)))

    assert pem[40:80] not in repr(caught.value)


# --- over the wire


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer with one key."""
    serving = Issuer(RSA)
    yield serving
    serving.close()


def test_a_client_comes_in_with_a_token_of_the_issuer(issuer: Issuer) -> None:
    use = PluginUse(
        use="mqttcore.auth.jwt",
        config={"jwks_url": issuer.url, "algorithms": ["RS256"], "publish": ["u/%u/#"]},
    )
    with (
        Broker(Settings(listeners=(LISTENER,), plugins=(use,))) as broker,
        Wire(broker.port) as joe,
        Wire(broker.port) as thief,
    ):
        joe.connect("c1", username="anything", password=token(claims(), RSA, kid="one"))
        thief.connect("c2", username="joe", password=hmac_token(claims()), reason=0x86)

        assert joe.publish("u/joe/x", qos=1, packet_id=1).reason in (0, 0x10)
        assert joe.publish("u/ann/x", qos=1, packet_id=2).reason == 0x87


def test_a_broker_does_not_start_without_the_keys(issuer: Issuer) -> None:
    issuer.status = 503
    use = PluginUse(
        use="mqttcore.auth.jwt", config={"jwks_url": issuer.url, "algorithms": ["RS256"]}
    )

    with pytest.raises(Exception, match=r"mqttcore\.auth\.jwt.*cannot be fetched.*503"):
        Broker(Settings(listeners=(LISTENER,), plugins=(use,))).start()


def test_tokens_and_secrets_are_in_no_log_line_or_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    use = PluginUse(
        use="mqttcore.auth.jwt",
        config={"secret": SECRET, "algorithms": ["HS256"], "publish": ["%{tenant}/#"]},
    )
    passwords = [
        hmac_token(claims(tenant="a/b")),
        hmac_token(claims(), secret=b"x" * 32),
        hmac_token(claims(exp=1)),
    ]
    with Broker(Settings(listeners=(LISTENER,), plugins=(use,), log_level="debug")) as broker:
        for password, reason in zip(passwords, (0, 0x86, 0x86), strict=True):
            with Wire(broker.port) as client:
                client.connect("c1", username="u", password=password, reason=reason)

    said = caplog.text + repr(asked(shared(), passwords[1]))
    assert SECRET not in said
    for password in passwords:
        for part in password.decode().split("."):
            assert part not in said or part == passwords[0].decode().split(".")[0]
    assert SECRET not in repr(shared().config) + repr(Keys([RSA]))
