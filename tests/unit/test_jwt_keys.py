"""`mqttcore.auth.jwt_keys`: which keys count, and how a key set is fetched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey
from mqttcore.auth import jwt_keys
from mqttcore.auth.jwt_keys import (
    JwtKeyError,
    Keys,
    KeySetUrl,
    KeysExpiredError,
    check_url,
    fetch,
    parse_key_set,
    read_key_file,
    secret_keys,
    shown,
)
from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock as hook_clock

from tests.tokens import SECRET, Issuer, rsa_key

ONE, TWO = rsa_key("one"), rsa_key("two")
EC = ECKey.generate_key("P-256", parameters={"kid": "ec"})


def key_set(*keys: dict[str, object]) -> bytes:
    """A JWK Set."""
    return json.dumps({"keys": keys}).encode()


def public(key: RSAKey | ECKey, **changes: object) -> dict[str, object]:
    """The public half of a key as a JWK."""
    return {**key.as_dict(private=False), **changes}


def ids(keys: Keys) -> list[str | None]:
    """Which of the keys are there."""
    return [name for name in ("one", "two", "ec") if keys.pick(name, alg(name)) is not None]


def alg(name: str) -> str:
    """The algorithm of a key of these tests."""
    return "ES256" if name == "ec" else "RS256"


def test_keys_are_picked_by_kid() -> None:
    keys = parse_key_set(key_set(public(ONE), public(TWO), public(EC)), ["RS256", "ES256"])

    assert keys.pick("one", "RS256") == ONE.import_key(public(ONE))  # type: ignore[arg-type] # JSON
    assert keys.pick("one", "ES256") is None
    assert keys.pick("three", "RS256") is None
    assert keys.pick(None, "RS256") is None
    assert keys.pick(None, "ES256") is not None


def test_a_key_without_kid_is_for_any_token() -> None:
    nameless = {name: value for name, value in public(ONE).items() if name != "kid"}
    keys = parse_key_set(key_set(nameless, public(TWO)), ["RS256"])

    assert keys.pick("other", "RS256") is not None
    assert keys.pick(None, "RS256") is None


@pytest.mark.parametrize("changes", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "x"}, {"n": "!"}])
def test_keys_for_something_else_are_left_out(changes: dict[str, object]) -> None:
    keys = parse_key_set(key_set(public(ONE, **changes), public(TWO)), ["RS256"])

    assert ids(keys) == ["two"]


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "brainpoolP256r1", "x": "A" * 43, "y": "A" * 43, "kid": "odd"},
        {"kty": "OKP", "crv": "X1", "x": "A" * 43},
        {"kty": ["RSA"]},
        {"kty": {}},
        {"kty": "RSA", "kid": ["a"]},
        {"kty": "RSA", "n": 7, "e": []},
        {"kty": "EC", "crv": []},
    ],
    ids=range(7),
)
def test_a_key_that_is_not_understood_does_not_take_the_others_away(odd: dict[str, object]) -> None:
    keys = parse_key_set(key_set(odd, public(ONE), public(EC)), ["RS256", "ES256", "EdDSA"])

    assert ids(keys) == ["one", "ec"]


def test_a_shared_secret_in_a_key_set_is_left_out() -> None:
    oct_key = OctKey.import_key(SECRET.encode()).as_dict()
    keys = parse_key_set(key_set({**oct_key, "kid": "oct"}, public(ONE)), ["RS256"])

    assert keys.pick("oct", "RS256") is None
    assert keys.pick("oct", "HS256") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": [1, null, []]}',
        b'{"keys": []}',
        b"[" * 100_000,
        key_set(*[public(ONE)] * 65),
        key_set(public(ONE), public(ONE)),
        key_set(ONE.as_dict(private=True)),  # type: ignore[arg-type] # JSON
    ],
    ids=range(11),
)
def test_a_malformed_key_set_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(JwtKeyError):
        parse_key_set(data, ["RS256"])


@pytest.mark.filterwarnings("ignore:Key size")
def test_short_rsa_keys_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    short = RSAKey.generate_key(1024, parameters={"kid": "short"})

    keys = parse_key_set(key_set(public(short), public(ONE)), ["RS256"])

    assert keys.pick("short", "RS256") is None
    assert "key 'short' of a JWK Set is left out: it has fewer than 2048 bits" in caplog.text


@pytest.mark.parametrize("form", ["pem", "jwk", "set"])
def test_a_file_has_pem_a_key_or_a_set(tmp_path: pathlib.Path, form: str) -> None:
    path = tmp_path / "keys"
    forms = {
        "pem": ONE.as_pem(private=False),
        "jwk": json.dumps(public(ONE)).encode(),
        "set": key_set(public(ONE)),
    }
    path.write_bytes(forms[form])

    assert read_key_file(path, ["RS256"]).pick("one", "RS256") is not None


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (ONE.as_pem(private=True), "it is a private key"),
        (EC.as_pem(private=False), "no public key for RS256"),
        (b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", "no public key"),
        (b"canary", "no public key"),
        (b"{", "not JSON"),
    ],
    ids=range(5),
)
def test_a_wrong_file_is_named(tmp_path: pathlib.Path, data: bytes, fault: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(data)

    with pytest.raises(JwtKeyError, match=f"^{path}: .*{fault}") as caught:
        read_key_file(path, ["RS256"])

    assert "canary" not in str(caught.value)
    with pytest.raises(JwtKeyError, match="none: cannot be read"):
        read_key_file(tmp_path / "none", ["RS256"])


def test_a_secret_is_as_long_as_the_hash() -> None:
    assert secret_keys("x" * 64, ["HS512", "HS256"]).pick("any", "HS256") is not None
    with pytest.raises(JwtKeyError, match="HS512 takes 64 bytes"):
        secret_keys("x" * 63, ["HS256", "HS512"])


# --- from a URL


def silent_until(answered: threading.Event) -> Callable[..., bytes]:
    """A `fetch` that hangs until the event, and then has no keys."""

    def fetch(_url: str, *, ca: pathlib.Path | None) -> bytes:
        answered.wait(60)
        return b""

    return fetch


class Clock:
    """Simulated time."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer with one key."""
    serving = Issuer(ONE)
    yield serving
    serving.close()


def source(issuer: Issuer, clock: Clock) -> KeySetUrl:
    """The keys of the issuer, fetched again after 300 s, and kept for 1,000 s."""
    return KeySetUrl(issuer.url, algorithms=["RS256"], refresh_s=300, keep_s=1_000, clock=clock)


def test_an_unknown_kid_fetches_the_keys_again(issuer: Issuer) -> None:
    async def rotates() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        issuer.rotate(ONE, TWO)
        clock.now += jwt_keys.RETRY_S

        assert await keys.find("two", "RS256") is not None
        assert await keys.find("one", "RS256") is not None
        assert issuer.requests == 2

    asyncio.run(rotates())


def test_a_flood_of_unknown_kids_is_one_request(issuer: Issuer) -> None:
    async def flood() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        assert await keys.find("early", "RS256") is None
        clock.now += jwt_keys.RETRY_S

        found = await asyncio.gather(*(keys.find(f"k{n}", "RS256") for n in range(100)))
        again = await keys.find("late", "RS256")

        assert found == [None] * 100
        assert again is None
        assert issuer.requests == 2

    asyncio.run(flood())


def test_keys_are_fetched_again_without_a_login(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def withdraw() -> None:
        keys = KeySetUrl(issuer.url, algorithms=["RS256"], refresh_s=0.01, keep_s=1_000)
        await keys.start()
        assert await keys.find("one", "RS256") is not None

        issuer.rotate(TWO)

        async with asyncio.timeout(30):
            while keys._keys.pick("one", "RS256") is not None:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert await keys.find("two", "RS256") is not None
        await keys.stop()

    monkeypatch.setattr(jwt_keys, "RETRY_S", 0.0)
    asyncio.run(withdraw())


def test_a_fetch_in_the_background_goes_on_after_each_fault(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_twice() -> None:
        keys = KeySetUrl(issuer.url, algorithms=["RS256"], refresh_s=0.01, keep_s=1_000)
        await keys.start()
        faults: list[Exception] = [OSError("down"), KeyError("not expected")]

        def fetch_or_fail(url: str, *, ca: pathlib.Path | None) -> bytes:
            if faults:
                raise faults.pop()
            return fetch(url, ca=ca)

        monkeypatch.setattr(jwt_keys, "fetch", fetch_or_fail)
        issuer.rotate(TWO)

        async with asyncio.timeout(30):
            while keys._keys.pick("two", "RS256") is None:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        await keys.stop()

    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(jwt_keys, "RETRY_S", 0.0)
    asyncio.run(fail_twice())
    assert caplog.text.count("the keys of before stay in use") == 2


def test_a_login_with_a_known_key_does_not_wait_for_the_issuer(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        clock.now += 900
        monkeypatch.setattr(jwt_keys, "fetch", silent_until(answered))
        unknown = asyncio.create_task(keys.find("two", "RS256"))
        await asyncio.sleep(0)

        assert await keys.find("one", "RS256") is not None
        assert not unknown.done()
        answered.set()
        assert await unknown is None

    answered = threading.Event()
    asyncio.run(hang())


def test_a_login_waits_for_an_unknown_key_for_a_bounded_time(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        clock.now += jwt_keys.RETRY_S
        monkeypatch.setattr(jwt_keys, "fetch", silent_until(answered))

        assert await keys.find("two", "RS256") is None
        assert not answered.is_set()
        answered.set()

    answered = threading.Event()
    monkeypatch.setattr(jwt_keys, "KID_WAIT_S", 0.01)
    asyncio.run(hang())


def test_logins_that_wait_for_keys_take_no_places_and_are_bounded(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, answered = 0, threading.Event()

    async def wait() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        clock.now += jwt_keys.RETRY_S
        monkeypatch.setattr(jwt_keys, "fetch", silent_until(answered))
        monkeypatch.setattr(hook_clock, "without_place", left_place)
        waiting = [asyncio.create_task(keys.find(f"k{n}", "RS256")) for n in range(2)]
        await asyncio.sleep(0)

        with pytest.raises(OverloadedError):
            await keys.find("k2", "RS256")
        assert left == 2
        answered.set()
        assert await asyncio.gather(*waiting) == [None, None]
        assert left == 0

    @contextlib.contextmanager
    def left_place() -> Iterator[None]:
        nonlocal left
        left += 1
        yield
        left -= 1

    monkeypatch.setattr(jwt_keys, "WAITING_MAX", 2)
    asyncio.run(wait())


@pytest.mark.parametrize("fault", ["status", "body"])
def test_keys_stay_while_the_issuer_fails_but_not_for_ever(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    async def outage() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        if fault == "status":
            issuer.status = 500
        else:
            issuer.body = b'{"keys": []}'

        clock.now += 300
        assert await keys.find("two", "RS256") is None
        assert await keys.find("one", "RS256") is not None
        assert "the keys of before stay in use" in caplog.text
        clock.now += 700
        with pytest.raises(KeysExpiredError):
            await keys.find("one", "RS256")
        issuer.status = 200
        issuer.rotate(ONE)
        clock.now += jwt_keys.RETRY_S
        assert await keys.find("one", "RS256") is not None

    caplog.set_level(logging.WARNING)
    asyncio.run(outage())


def test_a_login_that_leaves_does_not_end_the_request_of_others(issuer: Issuer) -> None:
    async def leave() -> None:
        clock = Clock()
        keys = source(issuer, clock)
        await keys.start()
        issuer.rotate(TWO)
        clock.now += 300
        leaves = asyncio.create_task(keys.find("two", "RS256"))
        stays = asyncio.create_task(keys.find("two", "RS256"))
        await asyncio.sleep(0)

        leaves.cancel()

        assert await stays is not None
        assert issuer.requests == 2

    asyncio.run(leave())


def test_no_proxy_is_asked_for_keys_of_this_machine(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    assert fetch(issuer.url, ca=None) == issuer.body


def test_redirects_and_large_answers_are_refused(issuer: Issuer) -> None:
    issuer.body = b"x" * (jwt_keys.KEY_SET_BYTES_MAX + 1)
    with pytest.raises(OSError, match="more than 1048576 bytes"):
        fetch(issuer.url, ca=None)
    issuer.body, issuer.status = b"", 302
    with pytest.raises(OSError, match="302"):
        fetch(issuer.url, ca=None)

    assert issuer.requests == 2


@pytest.mark.parametrize(
    "url", ["https://a/keys", "http://localhost:8080/k", "http://127.0.0.1", "http://[::1]/"]
)
def test_urls_that_keys_may_come_from(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "keys", "https://", "http://a/keys", "http://127.0.0.1.a/", "file:///k", "https://a@b/"],
)
def test_urls_that_keys_must_not_come_from(url: str) -> None:
    with pytest.raises(ValueError, match=r"https|user name"):
        check_url(url)


def test_a_url_is_logged_without_its_query() -> None:
    assert shown("https://a/keys?token=canary#x") == "https://a/keys"
