"""Abuse table C: CONNECT and authentication."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
REFUSED_LOGIN = {3: (4, 5), 4: (4, 5), 5: (0x86, 0x87)}


@pytest.mark.parametrize("kind", range(2, 16), ids=lambda kind: mqtt.NAMES[kind])
def test_c01_any_packet_before_connect(wire: Open, kind: int) -> None:
    one = wire()

    one.send(bytes([kind << 4 | (0x02 if kind in (6, 8, 10) else 0), 0x7F]))

    one.expect_close()


def test_c02_a_second_connect_sends_the_will(client: Open, topic: str, version: int) -> None:
    watcher = client()
    watcher.subscribe(topic)
    one = client(version=version, will=Will(topic=topic))

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_refusal(0x82)
    assert watcher.receive_publish().topic == topic


@pytest.mark.parametrize("name", [b"", b"mqtt", b"MQTT5", b"HTTP", b"MQIsdP"])
def test_c03_a_wrong_protocol_name_is_closed(wire: Open, name: bytes) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), name=name))

    one.expect_close()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_c03_a_level_before_3_is_answered_in_the_old_form(wire: Open, level: int) -> None:
    one = wire(version=4)

    one.send(mqtt.connect(unique("c"), version=4, level=level))

    one.expect_bytes(b"\x20\x02\x00\x01")
    one.expect_close()


@pytest.mark.parametrize("level", [6, 7, 255])
def test_c03_a_level_after_5_is_answered_in_the_new_form(wire: Open, level: int) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), level=level))

    assert one.expect(mqtt.CONNACK).reason == 0x84
    one.expect_close()


@pytest.mark.parametrize(("name", "level"), [(b"MQTT", 3), (b"MQIsdp", 4), (b"MQIsdp", 5)])
def test_c04_a_name_and_a_level_of_different_versions(wire: Open, name: bytes, level: int) -> None:
    one = wire(version=4)

    one.send(mqtt.connect(unique("c"), version=level, name=name, level=level))

    one.expect_bytes(b"\x20\x02\x00\x01")
    one.expect_close()


@pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])
def test_c05_the_reserved_flag(wire: Open, version: int) -> None:
    one = wire(version=version)

    one.send(mqtt.connect(unique("c"), version=version, flags=0x03))

    if version == 5:
        assert one.expect(mqtt.CONNACK).reason == 0x81
    one.expect_close()


def test_c05_3_1_has_no_reserved_flag(wire: Open) -> None:
    one = wire(version=3)

    one.send(mqtt.connect(unique("c"), version=3, flags=0x03))

    one.expect_bytes(b"\x20\x02\x00\x00")


def test_c06_a_password_without_a_user_in_3_1_1(wire: Open) -> None:
    one = wire(version=4)

    one.send(mqtt.connect(unique("c"), version=4, password=b"secret"))

    one.expect_close()


def test_c06_a_password_without_a_user_in_5_0_is_allowed(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), password=b"secret"))

    assert one.expect(mqtt.CONNACK).reason == 0


@pytest.fixture
def guarded(start_broker: Callable[..., Broker]) -> int:
    """The port of a broker where all may come in but two users, who need their password."""
    from mqttcore.plugin import Allow, Deny, Login, Plugin, hook

    class Accounts(Plugin):
        @hook.authenticate()
        def login(self, login: Login) -> Allow | Deny | None:
            if login.username not in ("admin", ""):
                return None
            return Allow() if login.password == b"secret" else Deny("bad_credentials")

    return start_broker(Accounts()).port


@pytest.mark.parametrize("password", [None, b""])
def test_c07_a_user_without_a_password_is_a_failed_login(
    wire: Open, guarded: int, version: int, password: bytes | None
) -> None:
    one = wire(version=version, port=guarded)

    one.send(mqtt.connect(unique("c"), version=version, username="admin", password=password))

    assert one.expect(mqtt.CONNACK).reason in REFUSED_LOGIN[version]
    one.expect_close()


def test_c08_an_empty_user_name_is_not_none(wire: Open, guarded: int, version: int) -> None:
    empty, none = wire(version=version, port=guarded), wire(version=version, port=guarded)

    empty.send(mqtt.connect(unique("c"), version=version, username="", password=b""))
    none.send(mqtt.connect(unique("c"), version=version))

    assert empty.expect(mqtt.CONNACK).reason in REFUSED_LOGIN[version]
    empty.expect_close()
    assert none.expect(mqtt.CONNACK).reason == 0


@pytest.mark.parametrize("flags", [0x0A, 0x22, 0x1E], ids=["qos", "retain", "qos 3"])
def test_c09_will_bits_without_a_will_or_of_quality_three(
    wire: Open, version: int, flags: int
) -> None:
    one = wire(version=version)

    one.send(mqtt.connect(unique("c"), version=version, flags=flags))

    if version == 5:
        assert one.expect(mqtt.CONNACK).reason == 0x81
    one.expect_close()


def test_c10_bytes_behind_the_last_field(wire: Open, version: int) -> None:
    one = wire(version=version)
    data = mqtt.connect("c10", version=version)

    one.send(bytes([data[0], data[1] + 1]) + data[2:] + b"\x00")

    if version == 5:
        assert one.expect(mqtt.CONNACK).reason == 0x81
    one.expect_close()


def test_c11_an_empty_client_identifier_without_clean_session(wire: Open) -> None:
    one = wire(version=4)

    one.connect("", clean=False, reason=2)

    one.expect_close()


def test_c11_5_0_gets_an_identifier_with_and_without_clean_start(wire: Open) -> None:
    session = {"session_expiry_interval": 60}
    given = {}
    for clean in (True, False):
        connack = (one := wire()).connect("", clean=clean, props=session)
        assert not connack.session_present
        given[clean] = connack.property("assigned_client_identifier")
        one.disconnect()

    assert given[True] != given[False]
    for name in given.values():
        assert isinstance(name, str)
        assert wire().connect(name, clean=False).session_present


@pytest.mark.parametrize(
    "name",
    ["x" * 257, "a+b", "a#b", "a\r\nb", "a\x7fb", "a\u0001b"],
    ids=["long", "plus", "hash", "line", "delete", "control"],
)
def test_c12_client_identifiers_that_matter_elsewhere(wire: Open, version: int, name: str) -> None:
    one = wire(version=version)

    one.connect(name, reason=0x85 if version == 5 else 2)

    one.expect_close()


@pytest.mark.parametrize("name", ["c12/a", "/c12", "c12/../..", ".."])
def test_c12_client_identifiers_with_slashes_and_dots_are_accepted(
    client: Open, version: int, name: str
) -> None:
    client(name, version=version).ping()


def test_c12_the_longest_client_identifier(client: Open, version: int) -> None:
    client("x" * 256, version=version).ping()


def test_c12_a_client_identifier_of_64_kib(wire: Open) -> None:
    one = wire(version=4)

    one.send(mqtt.connect("x" * 65_535, version=4)[:16])

    one.expect_close()


def test_c13_bytes_do_not_move_the_deadline_of_connect(
    start_broker: Callable[..., Broker], wire: Open
) -> None:
    port = start_broker(connect_deadline_s=0.5).port
    one = wire(version=4, port=port)
    began = time.monotonic()

    for byte in mqtt.connect("slow" * 20, version=4):
        if one.is_closed():
            break
        one.send(bytes([byte]))
        try:
            one.receive(within_s=0.1)
        except TimeoutError:
            continue
        except mqtt.ClosedByPeerError:
            break

    # before the last byte, of which each took its tenth of a second
    assert one.is_closed()
    assert time.monotonic() - began > 0.4


def test_c13_a_silent_connection_is_closed(start_broker: Callable[..., Broker], wire: Open) -> None:
    one = wire(port=start_broker(connect_deadline_s=0.5).port)

    one.expect_close()


def test_c15_the_pool_of_unfinished_connections_is_bounded(
    start_broker: Callable[..., Broker], wire: Open, client: Open
) -> None:
    port = start_broker(pending_connections=5).port
    one = client(port=port)
    waiting = [wire(port=port) for _ in range(5)]
    for each in waiting:
        each.send(b"\x10")

    wire(port=port).expect_close()

    one.ping()
    waiting[0].reset()


def test_c19_an_authentication_method_that_nobody_offers(wire: Open) -> None:
    one = wire()

    one.connect(unique("c"), props={"authentication_method": "SCRAM-SHA-1"}, reason=0x8C)

    one.expect_close()


def test_c19_authentication_data_without_a_method(wire: Open) -> None:
    one = wire()

    one.connect(unique("c"), props={"authentication_data": b"x"}, reason=0x82)

    one.expect_close()


@pytest.mark.parametrize("reason", [0x00, 0x18, 0x19])
def test_c19_auth_without_a_method(client: Open, reason: int) -> None:
    one = client()

    one.send(mqtt.auth(reason, {"authentication_method": "PLAIN"}))

    one.expect_refusal(0x82)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_c25_a_storm_of_takeovers_leaves_one_client(
    client: Open, wire: Open, version: int, end: str
) -> None:
    name = unique("c")
    storm = [client(name, version=version) for _ in range(30)]

    for each in storm[:-1]:
        each.expect_refusal(0x8E)

    storm[-1].ping()
    getattr(storm[-1], end)()


def test_c26_an_old_connection_cannot_acknowledge_any_more(
    client: Open, topic: str, version: int
) -> None:
    name = unique("c")
    keep: dict[str, Any] = {"clean": False, "version": version}
    if version == 5:
        keep["props"] = {"session_expiry_interval": 60}
    old, sender = client(name, **keep), client()
    old.subscribe((topic, 2))
    sender.publish(topic, b"x", qos=2)
    first = old.expect(mqtt.PUBLISH)

    new = client(name, **keep)
    old.expect_refusal(0x8E)
    again = new.expect(mqtt.PUBLISH)

    assert (again.packet_id, again.dup) == (first.packet_id, True)
    new.acknowledge(again)
    new.ping()


def test_c27_a_long_client_identifier_of_3_1(client: Open) -> None:
    client("c27-" + "x" * 60, version=3).ping()


def test_c28_an_endless_keep_alive_is_replaced_in_5_0(wire: Open) -> None:
    connack = wire().connect(unique("c"), keep_alive=0)

    assert connack.property("server_keep_alive") == 3_600


def test_c28_an_endless_keep_alive_of_3_x_is_honoured(client: Open) -> None:
    client(version=4, keep_alive=0).ping()
