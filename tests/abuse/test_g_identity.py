"""Abuse table G: names that try to be rules, and rights that nobody gave."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mqttcore import Broker
from mqttcore.auth.password_file import PasswordFile
from mqttcore.auth.rules import UserRules, grant_of
from mqttcore.config import Access, Listener
from mqttcore.plugin import Allow, Event, Grant, Login, Plugin, hook
from mqttcore.streams.client import StreamClient

from tests.abuse.beside import Beside
from tests.eventually import eventually
from tests.streams.plant import plant_settings
from tests.websocket import WebSocketWire
from tests.wire import CONNACK, PINGRESP, Will, Wire, connect, pingreq, unique

Open = Callable[..., Wire]
Enter = Callable[..., Wire]
# The bit of the protocol level with which Mosquitto's bridges announce themselves in 3.x.
BRIDGE = 0x80
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
def named(start_broker: Callable[..., Broker]) -> Broker:
    """A broker whose rules depend on names."""
    listener = Listener(address="127.0.0.1:0", name="named")
    return start_broker(Templates(), listeners=(listener,))


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
def enter(tmp_path: Path, wire: Open, start_broker: Callable[..., Broker]) -> Callable[..., int]:
    """Tries the password of the only user under a name: `enter("joe", version=4)`."""
    path = tmp_path / "passwords"
    path.write_text(f"jos\u00e9:{hashed(b'secret')}\n", encoding="utf-8")
    plugin = PasswordFile(PasswordFile.Config(path=path, subscribe=("user/%u",)))
    listener = Listener(address="127.0.0.1:0", name="locked")
    running = start_broker(plugin, listeners=(listener,))

    def entered(username: str | bytes, *, version: int) -> int:
        one = wire(version=version, port=running.port)
        login: dict[str, Any] = {"username": username, "password": b"secret"}
        one.send(connect(unique("c"), **login, version=version))
        return one.expect(CONNACK).reason

    return entered


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
def closed(start_broker: Callable[..., Broker]) -> Broker:
    """Listeners on the loopback that nobody gave anonymous access to."""
    plain = Listener(address="127.0.0.1:0", name="plain")
    web = Listener(address="127.0.0.1:0", name="web", transport="websocket")
    return start_broker(listeners=(plain, web))


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


def test_g15_an_open_listener_gives_no_more_than_it_says(
    client: Open, start_broker: Callable[..., Broker]
) -> None:
    listener = Listener(address="127.0.0.1:0", anonymous=Access(subscribe=("news",)))
    one = client(port=start_broker(listeners=(listener,)).port)

    found = one.subscribe("news", "#", "$SYS/#", "other")

    assert found.reasons == (0, 0x87, 0x87, 0x87)


@pytest.fixture
def bridge(wire: Open) -> Enter:
    """Opens a bridge of another broker: `bridge("id", version=3, port=..., username=...)`.

    In 5.0 there is no mark: a bridge is a client like any other.
    """

    def opened(
        client_id: str = "",
        *,
        version: int,
        port: int | None = None,
        reason: int = 0,
        **login: Any,  # noqa: ANN401 -- passed on to `connect`
    ) -> Wire:
        one = wire(version=version, port=port)
        level = version if version == 5 else version | BRIDGE
        name = client_id or unique("bridge")
        one.send(connect(name, version=version, level=level, **login))
        assert one.expect(CONNACK).reason == reason
        return one

    return opened


def test_g12_a_bridge_has_the_rights_of_its_own_login(
    named: Broker, client: Open, bridge: Enter, version: int
) -> None:
    other = client(username="other", password=b"x", port=named.port)
    other.subscribe("user/other/#")
    name = unique("bridge")
    peer = bridge(name, version=version, port=named.port, username="peer", password=b"x")

    foreign = ("#", "user/other/x", "$share/g/user/other/x", "client/other/x", "$SYS/#")
    found = peer.subscribe(*foreign, "user/peer/x", f"client/{name}/x")
    assert found.reasons == (DENIED[version],) * len(foreign) + (0, 0)

    before = named.stats()["denied"]
    for qos in (0, 1, 2):
        # 3.x acknowledges what is refused: it has no code for it
        refused = peer.publish("user/other/x", b"forged", qos=qos)
        assert refused.reason == (0x87 if version == 5 and qos else 0)
    assert named.stats()["denied"] == before + 3
    other.ping()


@pytest.mark.parametrize(
    "topic", ["$SYS/broker/version", "$SYS/spark/query", "$share/g/t", "$queue/t", "$CONTROL/x"]
)
def test_g12_a_bridge_cannot_write_what_only_the_broker_writes(
    client: Open, bridge: Enter, version: int, topic: str
) -> None:
    watch = client(version=5)
    watch.subscribe("$SYS/broker/version", "$SYS/spark/#", "t")
    genuine = watch.receive_publish()
    peer = bridge(version=version)

    for qos in (1, 2):
        refused = peer.publish(topic, b"forged", qos=qos, retain=True)
        assert refused.reason == (0x87 if version == 5 else 0)
    watch.ping()
    late = client(version=5)
    late.subscribe("$SYS/broker/version", "$SYS/spark/#", "t")
    assert late.receive_publish().payload == genuine.payload
    late.ping()
    will = Will(topic=topic, payload=b"forged", retain=True)
    bridge(version=version, will=will, reason=0x87 if version == 5 else 5)


class Wide(Plugin):
    """Lets a peer publish everywhere, below `$` too, and keeps what it is told of refusals."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: list[Event] = []

    @hook.authenticate()
    def login(self, login: Login) -> Allow:
        """Whoever is not the peer may publish to `open` alone."""
        everything = ("#", "$#")
        publish = everything if login.username == "peer" else ("open",)
        return Allow(Grant(publish=publish, subscribe=everything))

    @hook.events("denied")
    def note(self, events: Sequence[Event]) -> None:
        """Keeps them."""
        self.denied += events


@pytest.fixture
def wide(start_broker: Callable[..., Broker]) -> tuple[Broker, Wide]:
    """A broker with a peer that may publish everywhere."""
    plugin = Wide()
    listener = Listener(address="127.0.0.1:0", name="wide")
    return start_broker(plugin, listeners=(listener,)), plugin


@pytest.mark.parametrize("topic", ["$share/g/open", "$queue/open", "$exclusive/open", "$CONTROL/x"])
def test_g12_no_grant_of_a_peer_opens_what_has_a_function(
    wide: tuple[Broker, Wide], client: Open, bridge: Enter, version: int, topic: str
) -> None:
    running, _ = wide
    watch = client(username="watch", password=b"x", port=running.port)
    watch.subscribe("#", "$share/g/open", "$CONTROL/#", "$exclusive/#", "$queue/#")
    peer = bridge(version=version, port=running.port, username="peer", password=b"x")

    refused = peer.publish(topic, b"forged", qos=1)

    assert refused.reason == (0x87 if version == 5 else 0)
    watch.send(pingreq())
    while (found := watch.receive()).kind != PINGRESP:
        assert found.topic is not None
        assert found.topic.startswith("bystander-"), found


def test_g12_a_refusal_names_the_login_and_no_claim(
    wide: tuple[Broker, Wide], bridge: Enter, version: int
) -> None:
    running, plugin = wide
    name = unique("bridge")
    peer = bridge(name, version=version, port=running.port, username="guest", password=b"x")
    claims = {"user_property": [("username", "peer"), ("client_id", "admin")]}

    peer.publish("closed", b"x", qos=1, props=claims if version == 5 else None)

    eventually(lambda: bool(plugin.denied), told=lambda: plugin.denied)
    (event,) = plugin.denied
    assert (event.client_id, event.username, event.topic) == (name, "guest", "closed")


def test_g12_a_bridge_takes_no_session_of_somebody_else(
    named: Broker, client: Open, bridge: Enter, version: int
) -> None:
    name = unique("c")
    owner = client(name, username="owner", password=b"x", port=named.port)

    refused = 0x85 if version == 5 else 2
    login = {"username": "peer", "password": b"x"}
    bridge(name, version=version, port=named.port, reason=refused, **login)

    owner.ping()


def test_g12_the_mark_of_a_bridge_makes_no_version_of_its_own(wire: Open) -> None:
    one = wire(version=5)

    one.send(connect(unique("bridge"), version=5, level=5 | BRIDGE))

    assert one.expect(CONNACK).reason == 0x84
    one.expect_close()


def test_g12_rows_name_the_connection_whatever_the_message_claims(
    tmp_path: Path, bridge: Enter
) -> None:
    claims = [("client_id", "admin"), ("username", "root"), ("topic", "plant/other")]
    with (
        Broker(plant_settings(tmp_path)) as running,
        Beside(running.port),
        StreamClient(running.settings.data) as reader,
    ):
        names = {version: unique(f"bridge-{version}") for version in (3, 4, 5)}
        for version, name in names.items():
            peer = bridge(name, version=version, port=running.port)
            props = {"user_property": claims} if version == 5 else None
            peer.publish(f"plant/{version}", b"admin", qos=1, props=props)
        eventually(lambda: running.stats()["stream_rows"] == 3, told=running.stats)
        rows = []
        for number, bounds in enumerate(reader.stream("plant").partitions):
            with (
                reader.rows("plant", partition=number, start=0, end=bounds.end) as raw,
                pa.ipc.open_stream(raw) as batches,
            ):
                rows += batches.read_all().to_pylist()

    assert {(row["topic"], row["client_id"]) for row in rows} == {
        (f"plant/{version}", name) for version, name in names.items()
    }
    kept = [row["user_properties"] for row in rows if row["user_properties"]]
    assert [[(pair["key"], pair["value"]) for pair in pairs] for pairs in kept] == [claims]
