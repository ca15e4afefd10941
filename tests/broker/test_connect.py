"""CONNECT and CONNACK: who gets in, with what, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


@pytest.mark.parametrize("version", [3, 4], ids=["3.1", "3.1.1"])
def test_a_3_x_client_gets_four_bytes(wire: Open, version: int) -> None:
    one = wire(version=version)

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_bytes(b"\x20\x02\x00\x00")


def test_a_v5_client_is_told_the_limits(client: Open, wire: Open) -> None:
    connack = wire().connect(unique("c"))

    assert not connack.session_present
    assert connack.property("receive_maximum") == 64
    assert connack.property("maximum_packet_size") == (1 << 20) + (64 << 10)
    assert connack.property("topic_alias_maximum") == 10
    for name in ("wildcard", "subscription_identifier", "shared"):
        available = f"{name}_subscription_available".replace(
            "identifier_subscription", "identifier"
        )
        assert connack.property(available) in (None, 1)
    assert connack.property("maximum_qos") is None
    assert connack.property("assigned_client_identifier") is None


def test_a_second_connect_ends_the_connection(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_refusal(0x82)


def test_disconnect_is_answered_by_the_end_only(client: Open, version: int) -> None:
    client(version=version).disconnect()


def test_what_follows_connect_in_the_same_segment_is_handled(wire: Open, version: int) -> None:
    one, topic = wire(version=version), unique()

    one.send(
        mqtt.connect(unique("c"), version=version),
        mqtt.subscribe(topic, version=version),
        mqtt.publish(topic, b"early", version=version),
        mqtt.pingreq(),
    )

    assert one.expect(mqtt.CONNACK).reason == 0
    assert one.expect(mqtt.SUBACK).reason == 0
    assert {one.receive().kind, one.receive().kind} == {mqtt.PUBLISH, mqtt.PINGRESP}


def test_ping_is_answered(client: Open, version: int) -> None:
    one = client(version=version)

    one.send(mqtt.pingreq())

    one.expect_bytes(b"\xd0\x00")


def test_3_1_refuses_an_empty_client_identifier(wire: Open) -> None:
    one = wire(version=3)
    one.connect("", reason=2)
    one.expect_close()


def test_3_1_1_takes_an_empty_client_identifier_with_a_clean_session(client: Open) -> None:
    client("", version=4).ping()


def test_3_1_1_refuses_an_empty_client_identifier_without(wire: Open) -> None:
    one = wire(version=4)
    one.connect("", clean=False, reason=2)
    one.expect_close()


def test_5_0_assigns_a_client_identifier_that_can_be_used_again(wire: Open) -> None:
    one, other = wire(), wire()
    session = {"session_expiry_interval": 60}
    assigned = one.connect("", props=session).property("assigned_client_identifier")
    second = other.connect("", clean=False).property("assigned_client_identifier")
    assert isinstance(assigned, str)
    assert assigned
    assert assigned != second
    one.disconnect()

    again = wire().connect(assigned, clean=False)

    assert again.session_present
    assert again.property("assigned_client_identifier") is None


@pytest.mark.parametrize(
    ("asked", "told"), [(60, None), (3_600, None), (0, 3_600), (65_535, 3_600)]
)
def test_a_long_keep_alive_is_replaced(wire: Open, asked: int, told: int | None) -> None:
    connack = wire().connect(unique("c"), keep_alive=asked)

    assert connack.property("server_keep_alive") == told


def test_a_takeover_ends_the_old_connection_and_the_new_one_works(
    client: Open, version: int
) -> None:
    name = unique("c")
    old = client(name, version=version)

    new = client(name, version=version)

    old.expect_refusal(0x8E)
    new.ping()


def test_a_takeover_may_change_the_version(client: Open) -> None:
    name = unique("c")
    old = client(name, version=5)

    new = client(name, version=3)

    old.expect_refusal(0x8E)
    new.ping()


def test_a_takeover_keeps_the_session(client: Open, wire: Open, topic: str) -> None:
    name, session = unique("c"), {"session_expiry_interval": 60}
    old = client(name, props=session)
    old.subscribe((topic, 1))
    new = wire()

    connack = new.connect(name, clean=False, props=session)
    client().publish(topic, b"to the new one", qos=1)

    assert connack.session_present
    assert new.receive_publish().payload == b"to the new one"
    old.expect_refusal(0x8E)


@pytest.mark.parametrize("asked", [0, 1])
def test_acknowledgements_are_explained_only_where_allowed(client: Open, asked: int) -> None:
    one = client(props={"request_problem_information": asked})

    denied = one.publish("$SYS/broker/version", b"mine", qos=1)

    assert denied.reason == 0x87
    if not asked:
        assert not denied.properties


def test_disconnect_has_its_reason_without_problem_information(client: Open) -> None:
    one = client(props={"request_problem_information": 0})

    one.send(mqtt.connect(unique("c")))

    one.expect_refusal(0x82)


def test_a_listener_accepts_the_versions_that_it_names(
    start_broker: Callable[..., Broker], client: Open, wire: Open
) -> None:
    from mqttcore.config import Listener

    listener = Listener(address="127.0.0.1:0", anonymous=True, protocol_versions=("3.1.1",))
    broker = start_broker(listeners=(listener,))

    for version, code in ((3, 1), (5, 0x84)):
        refused = wire(version=version, port=broker.port)
        refused.send(mqtt.connect("refused", version=version))
        answers = refused.receive_until_close()
        assert [(answer.kind, answer.reason) for answer in answers] == [(mqtt.CONNACK, code)]

    client("let in", version=4, port=broker.port)
    assert broker.stats()["connects_refused_protocol_version"] == 2
