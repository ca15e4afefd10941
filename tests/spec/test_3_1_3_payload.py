"""Section 3.1.3 of MQTT 3.1.1 and 5.0: what CONNECT carries, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.spec.plugins import Doorkeeper
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-1")
@pytest.mark.spec("5.0", "MQTT-3.1.3-1")
def test_the_payload_is_read_in_its_order(
    start_broker: Callable[..., Broker], wire: Open, version: int
) -> None:
    port = start_broker(Doorkeeper()).port
    watcher, one = wire(port=port), wire(port=port)
    watcher.connect("watcher")
    watcher.subscribe("will")
    properties = b"\x00" if version == 5 else b""
    body = (
        b"\x00\x04MQTT" + bytes([version]) + b"\xc6\x00\x3c" + properties + b"\x00\x02id"
        b"" + properties + b"\x00\x04will\x00\x04gone\x00\x04user\x00\x04open"
    )

    one.send(bytes([0x10, len(body)]), body)

    assert one.expect(mqtt.CONNACK).reason == 0
    one.close()
    assert watcher.receive_publish().payload == b"gone"


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-2")
@pytest.mark.spec("5.0", "MQTT-3.1.3-2")
@pytest.mark.parametrize("other", ["{}x", "{} ", "{}\u0301", "X{}"])
def test_each_client_identifier_has_a_session_of_its_own(
    client: Open, wire: Open, other: str
) -> None:
    name = unique("c")
    client(name, keep=True).disconnect()

    assert not wire().connect(other.format(name), clean=False).session_present
    assert not wire().connect(name.upper(), clean=False).session_present
    assert wire().connect(name, clean=False).session_present


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-3")
@pytest.mark.spec("5.0", "MQTT-3.1.3-3")
def test_a_connect_without_a_client_identifier_field_is_refused(wire: Open, version: int) -> None:
    one = wire()
    properties = b"\x00" if version == 5 else b""
    body = b"\x00\x04MQTT" + bytes([version]) + b"\x02\x00\x3c" + properties

    one.send(bytes([0x10, len(body)]), body)

    one.expect_no_entry(0x81)


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-5")
@pytest.mark.spec("5.0", "MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "name",
    ["0", "z", "0123456789ABCDEFGHIJKLM", "NOPQRSTUVWXYZabcdefghij", "klmnopqrstuvwxyz0123456"],
)
def test_client_identifiers_of_1_to_23_letters_and_digits_are_accepted(
    wire: Open, name: str
) -> None:
    one = wire()

    one.connect(name)

    one.ping()
    one.disconnect()


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-6")
@pytest.mark.spec("5.0", "MQTT-3.1.3-6")
def test_clients_with_an_empty_identifier_do_not_meet(client: Open, topic: str) -> None:
    one, other = client(""), client("")
    one.subscribe(f"{topic}/one")

    other.publish(f"{topic}/one", b"x")

    assert one.receive_publish().payload == b"x"
    other.ping()


@pytest.mark.spec("5.0", "MQTT-3.1.3-7")
@pytest.mark.spec("5.0", "MQTT-3.2.2-16")
def test_an_assigned_identifier_is_returned_and_unique(wire: Open) -> None:
    connacks = [wire().connect("", clean=clean) for clean in (True, False) for _ in range(10)]

    assigned = {each.property("assigned_client_identifier") for each in connacks}
    assert len(assigned) == 20
    assert assigned.isdisjoint({None, ""})
    assert not any(each.session_present for each in connacks)


@pytest.mark.spec("5.0", "MQTT-3.1.3-7")
def test_an_assigned_identifier_names_the_session(wire: Open, client: Open) -> None:
    one = wire()
    connack = one.connect("", props={"session_expiry_interval": 60})
    one.close()

    again = wire().connect(str(connack.property("assigned_client_identifier")), clean=False)

    assert again.session_present
    assert again.property("assigned_client_identifier") is None


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-7")
@pytest.mark.spec("3.1.1", "MQTT-3.1.3-8")
def test_an_empty_identifier_with_a_kept_session_is_refused(wire: Open) -> None:
    one = wire()

    one.send(bytes.fromhex("10 0c 00 04 4d 51 54 54 04 00 00 3c 00 00"))

    one.expect_bytes(bytes.fromhex("20 02 00 02"))
    one.expect_close()


@pytest.mark.spec("3.1.1", "MQTT-3.1.3-9")
@pytest.mark.spec("5.0", "MQTT-3.1.3-8")
@pytest.mark.parametrize("name", ["a+b", "a#", "../+", "x" * 257, "a\x01"])
def test_an_identifier_that_the_broker_does_not_take_is_refused(
    wire: Open, version: int, name: str
) -> None:
    one = wire()

    one.send(mqtt.connect(name, version=version))

    assert one.expect(mqtt.CONNACK).reason == (0x85 if version == 5 else 2)
    one.expect_close()
