"""Abuse table G: names that try to be rules, and rights that nobody gave."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.auth.password_file import PasswordFile
from mqttcore.auth.rules import UserRules, grant_of
from mqttcore.config import Access, Listener
from mqttcore.plugin import Allow, Login, Plugin, hook

from tests.conftest import common
from tests.websocket import WebSocketWire
from tests.wire import CONNACK, Wire, connect, unique

Open = Callable[..., Wire]
Enter = Callable[..., Wire]
DENIED = {3: 0x80, 4: 0x80, 5: 0x87}
REFUSED = {3: 4, 4: 4, 5: 0x86}


class Templates(Plugin):
    """Lets everybody in, with rules that have names in them."""

    rules = UserRules(
        publish=("client/%c/#", "user/%u/#"), subscribe=("client/%c/#", "user/%u/#", "news")
    )

    @hook.authenticate()
    def login(self, login: Login) -> Allow:
        """Fills the names in."""
        user = login.username or ""
        return Allow(grant_of(self.rules, user=user, client_id=login.client_id))


@pytest.fixture
def named() -> Iterator[Broker]:
    """A broker whose rules depend on names."""
    listener = Listener(address="127.0.0.1:0", name="named")
    with Broker(Settings(listeners=(listener,), **common), plugins=[Templates()]) as running:
        yield running


@pytest.mark.parametrize("user", ["#", "+", "a/b", "+/x", "$SYS"])
def test_g01_a_user_name_that_would_change_the_shape_of_a_rule(
    named: Broker, client: Open, version: int, user: str
) -> None:
    one = client(username=user, password=b"x", version=version, port=named.port)

    found = one.subscribe("#", "user/+/x", f"user/{user}/x".replace("#", "y"), "user/b/x", "news")

    # a rule of `user/%u/#` holds for `$SYS`, where it is no first level
    own = 0 if user == "$SYS" else DENIED[version]
    assert found.reasons == (DENIED[version], DENIED[version], own, DENIED[version], 0)


@pytest.mark.parametrize("client_id", [".*", ")(", "a|b", "[a-z]", "(?:x)", "x{1,9}", "^$", "\\w"])
def test_g02_a_client_identifier_is_no_regular_expression(
    named: Broker, client: Open, version: int, client_id: str
) -> None:
    one = client(client_id, username="u", password=b"x", version=version, port=named.port)

    found = one.subscribe(f"client/{client_id}/x", "client/a/x", "client/x/x", "client/+/x")

    assert found.reasons == (0, DENIED[version], DENIED[version], DENIED[version])


def test_g03_no_user_name_has_no_rules_of_a_user(named: Broker, client: Open, version: int) -> None:
    name = unique("c")
    nobody = client(name, version=version, port=named.port)
    empty = client(username="", password=b"", version=version, port=named.port)

    for one in (nobody, empty):
        found = one.subscribe("user//x", "user/x", "user/#", "user/None/x", "user/%u/x", "news")
        assert found.reasons == (DENIED[version],) * 5 + (0,)
    assert nobody.subscribe(f"client/{name}/x").reason == 0


def hashed(password: bytes) -> str:
    """As `mosquitto_passwd` wrote it once; quick."""
    digest = hashlib.sha512(password + b"salt").digest()
    return f"$6${base64.b64encode(b'salt').decode()}${base64.b64encode(digest).decode()}"


@pytest.fixture
def enter(tmp_path: Path, wire: Open) -> Iterator[Callable[..., int]]:
    """Tries the password of the only user under a name: `enter("joe", version=4)`."""
    path = tmp_path / "passwords"
    path.write_text(f"jos\u00e9:{hashed(b'secret')}\n", encoding="utf-8")
    plugin = PasswordFile(PasswordFile.Config(path=path, subscribe=("user/%u",)))
    listener = Listener(address="127.0.0.1:0", name="locked")
    with Broker(Settings(listeners=(listener,), **common), plugins=[plugin]) as running:

        def entered(username: str | bytes, *, version: int) -> int:
            one = wire(version=version, port=running.port)
            login: dict[str, Any] = {"username": username, "password": b"secret"}
            one.send(connect(unique("c"), **login, version=version))
            return one.expect(CONNACK).reason

        yield entered


def test_g17_names_that_look_alike_are_others(enter: Callable[..., int], version: int) -> None:
    alike = [
        "Jos\u00e9",
        "JOS\u00c9",
        "jose\u0301",
        "j\u043es\u00e9",
        "jos\u00e9 ",
        " jos\u00e9",
        "jose",
    ]

    assert enter("jos\u00e9", version=version) == 0
    assert [enter(name, version=version) for name in alike] == [REFUSED[version]] * len(alike)


@pytest.fixture
def closed(wire: Open) -> Iterator[Broker]:
    """Listeners on the loopback that nobody gave anonymous access to."""
    plain = Listener(address="127.0.0.1:0", name="plain")
    web = Listener(address="127.0.0.1:0", name="web", transport="websocket")
    with Broker(Settings(listeners=(plain, web), **common)) as running:
        yield running


def test_g15_who_comes_from_this_machine_is_not_trusted_for_it(
    closed: Broker, wire: Open, version: int
) -> None:
    for login in ({}, {"username": "root", "password": b""}):
        one = wire(version=version, port=closed.port)
        one.send(connect(unique("c"), version=version, **login))  # type: ignore[arg-type]
        assert one.expect(CONNACK).reason in (4, 5, 0x86, 0x87)
        one.expect_close()


@pytest.mark.parametrize(
    "headers",
    [{"X_Forwarded_For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}, {"X_Real_IP": "::1"}],
    ids=lambda headers: next(iter(headers)),
)
def test_g15_nor_for_what_a_proxy_would_say(
    closed: Broker, web: Callable[..., WebSocketWire], headers: dict[str, str]
) -> None:
    one = web(port=closed.addresses[1][1], headers=headers)

    one.send(connect(unique("c")))

    assert one.expect(CONNACK).reason == 0x87


def test_g15_an_open_listener_gives_no_more_than_it_says(wire: Open) -> None:
    listener = Listener(address="127.0.0.1:0", anonymous=Access(subscribe=("news",)))
    with Broker(Settings(listeners=(listener,), **common)) as running:
        one = wire(port=running.port)
        one.connect(unique("c"))

        found = one.subscribe("news", "#", "$SYS/#", "other")

    assert found.reasons == (0, 0x87, 0x87, 0x87)
