"""Abuse table C: JSON Web Tokens that want to be believed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mqttcore import Broker
from mqttcore.auth.jwt import TOKEN_BYTES_MAX, Jwt
from mqttcore.config import Listener
from mqttcore.plugin import Secret

from tests.tokens import SECRET, claims, encoded, hmac_token, rsa_key, token
from tests.wire import CONNACK, DISCONNECT, Wire, connect, unique

Open = Callable[..., Wire]
KEY = rsa_key("one")
PEM = KEY.as_pem(private=False)
REFUSED = {3: 4, 4: 4, 5: 0x86}
EXPIRED = 0xA0


def entered(broker: Broker, wire: Open, password: bytes, version: int) -> int:
    """The code of CONNACK."""
    one = wire(version=version, port=broker.port)
    one.send(connect(unique("c"), username="joe", password=password, version=version))
    return one.expect(CONNACK).reason


@pytest.fixture
def public(tmp_path: Path, start_broker: Callable[..., Broker]) -> Broker:
    """A broker with the public key of an issuer."""
    path = tmp_path / "key.pem"
    path.write_bytes(PEM)
    plugin = Jwt(Jwt.Config(key_file=path, algorithms=("RS256",), subscribe=("#",)))
    listener = Listener(address="127.0.0.1:0", name="public")
    return start_broker(plugin, listeners=(listener,))


@pytest.fixture
def shared(start_broker: Callable[..., Broker]) -> Broker:
    """A broker with a shared secret."""
    config = Jwt.Config(secret=Secret(SECRET), algorithms=("HS256",), leeway_s=0.0, publish=("#",))
    listener = Listener(address="127.0.0.1:0", name="shared")
    return start_broker(Jwt(config), listeners=(listener,))


def unsigned(algorithm: str) -> bytes:
    """A token without a signature."""
    return f"{encoded({'alg': algorithm})}.{encoded(claims())}.".encode()


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_c22_a_token_without_a_signature(
    public: Broker, shared: Broker, wire: Open, version: int, algorithm: str
) -> None:
    for broker in (public, shared):
        assert entered(broker, wire, unsigned(algorithm), version) == REFUSED[version]
    assert entered(public, wire, token(claims(), KEY), version) == 0
    assert entered(shared, wire, hmac_token(claims()), version) == 0


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "RS256", "RS512", "PS256"])
def test_c22_the_public_key_is_no_secret(
    public: Broker, wire: Open, version: int, algorithm: str
) -> None:
    forged = hmac_token(claims(), secret=PEM, header={"alg": algorithm})
    stripped = hmac_token(claims(), secret=PEM.strip(), header={"alg": algorithm})

    assert entered(public, wire, forged, version) == REFUSED[version]
    assert entered(public, wire, stripped, version) == REFUSED[version]


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "../../../../dev/null"},
        {"kid": "/proc/sys/kernel/random/boot_id"},
        {"kid": "http://127.0.0.1:1/keys"},
        {"kid": "x' UNION SELECT 'secret"},
        {"kid": ["one"]},
        {"kid": {"one": 1}},
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "http://127.0.0.1:1/keys"},
        {"jwk": KEY.as_dict(private=False)},
        {"crit": ["exp"], "exp": 0},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
        {"alg": ["RS256"]},
        {"alg": None},
    ],
    ids=range(14),
)
def test_c22_a_header_chooses_no_key(public: Broker, wire: Open, header: dict[str, object]) -> None:
    head = {"alg": "RS256", **header}
    forged = hmac_token(claims(), secret=b"", header=head)

    assert entered(public, wire, forged, 5) == REFUSED[5]


def test_c22_an_attackers_own_key_in_the_header(public: Broker, wire: Open, version: int) -> None:
    own = rsa_key("one")
    forged = token(claims(), own, kid="one", jwk=own.as_dict(private=False))

    assert entered(public, wire, forged, version) == REFUSED[version]


@pytest.mark.parametrize(
    "forged",
    [
        hmac_token(claims(pad="x" * 5_000)).replace(b".", b".e30", 1),
        encoded(b"[" * 6_000).encode() + b".e30.e30",
        hmac_token(b"[" * 5_000),
        hmac_token(b"7"),
        hmac_token(b'"claims"'),
        hmac_token(b"\xff\xfe"),
        hmac_token(claims(), header=b"[]"),
        hmac_token(claims(), header=b'"alg"'),
        hmac_token(claims(), header=b'["alg"]'),
        hmac_token(claims(), header=b"{}"),
        hmac_token(claims()).replace(b".", b"=.", 1),
    ],
    ids=range(11),
)
def test_c22_malformed_tokens(shared: Broker, wire: Open, forged: bytes) -> None:
    one = wire(port=shared.port)
    one.send(connect(unique("c"), username="joe", password=forged))

    assert one.expect(CONNACK).reason in (0x86, 0x87)
    assert entered(shared, wire, hmac_token(claims()), 5) == 0


def test_c22_a_huge_token_ends_at_the_header_of_its_packet(shared: Broker, wire: Open) -> None:
    one = wire(port=shared.port)
    forged = hmac_token(claims(pad="x" * TOKEN_BYTES_MAX))

    one.send(connect(unique("c"), username="joe", password=forged)[:24])

    one.expect_no_entry(0x95)


def test_c22_a_token_that_expires_while_its_client_is_connected(
    shared: Broker, wire: Open, version: int
) -> None:
    one = wire(version=version, port=shared.port)
    password = hmac_token(claims(exp=time.time() + 1.5))
    one.send(connect(unique("c"), username="joe", password=password, version=version))
    assert one.expect(CONNACK).reason == 0

    if version == 5:
        assert one.expect(DISCONNECT).reason == EXPIRED
    one.expect_close()
    assert entered(shared, wire, password, version) == REFUSED[version]
