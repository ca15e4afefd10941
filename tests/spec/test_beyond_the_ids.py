"""What no numbered statement asks for: sizes at their ends, overlaps, every way to leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.config import ServerLimits

from tests import wire as mqtt
from tests.spec.plugins import Doorkeeper
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
Start = Callable[..., "Broker"]

LONGEST = 65_535

# --- payloads and packets -------------------------------------------------------------------------


@pytest.mark.beyond
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_payload_is_a_message(client: Open, topic: str, qos: int) -> None:
    one = client()
    one.subscribe((topic, 2))

    one.publish(topic, b"", qos=qos)

    found = one.receive_publish()
    assert (found.topic, found.payload, found.qos) == (topic, b"", qos)


@pytest.mark.beyond
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_of_every_byte_passes_unchanged(client: Open, topic: str, qos: int) -> None:
    one, payload = client(), bytes(range(256)) * 2
    one.subscribe((topic, 2))

    one.publish(topic, payload, qos=qos)

    assert one.receive_publish().payload == payload


@pytest.mark.beyond
def test_an_empty_payload_waits_for_a_client_that_is_away(client: Open, topic: str) -> None:
    away = client(topic, keep=True)
    away.subscribe((topic, 1))
    away.disconnect()

    client().publish(topic, b"", qos=1)

    assert client(topic, keep=True).receive_publish().payload == b""


@pytest.mark.beyond
def test_a_will_may_be_empty(client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe(topic)

    client(will=Will(topic=topic, payload=b"")).close()

    assert watcher.receive_publish().payload == b""


@pytest.mark.beyond
def test_the_largest_packet_of_the_default_passes_and_one_more_byte_does_not(
    client: Open, version: int, topic: str
) -> None:
    receiver, sender = client(), client()
    receiver.subscribe((topic, 1))
    head = 1 + 3 + 2 + len(topic) + 2 + (version == 5)
    most = ServerLimits().maximum_packet_size
    largest = mqtt.publish(topic, b"x" * (most - head), qos=1, packet_id=1, version=version)
    assert len(largest) == most

    sender.send(largest)
    sender.expect(mqtt.PUBACK)
    sender.send(
        mqtt.publish(topic, b"x" * (most - head + 1), qos=1, packet_id=2, version=version)[:9]
    )

    assert len(receiver.receive_publish().raw) == most
    sender.expect_refusal(0x95)
    receiver.ping()


# --- strings of 65,535 bytes ----------------------------------------------------------------------


@pytest.mark.beyond("3.1.1", "5.0")
def test_a_client_identifier_of_65_535_bytes_is_accepted_where_the_limits_allow_it(
    start_broker: Start, client: Open, wire: Open
) -> None:
    port = start_broker(client_id_bytes=LONGEST, connect_packet_bytes=1 << 20).port
    name = "x" * LONGEST
    client(name, keep=True, port=port).disconnect()

    assert wire(port=port).connect(name, clean=False).session_present
    assert not wire(port=port).connect(name[1:], clean=False).session_present


@pytest.mark.beyond
def test_a_client_identifier_of_65_535_bytes_is_refused_by_the_default(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect("x" * LONGEST, version=one.version)[:64])

    if one.version == 5:
        assert one.expect(mqtt.CONNACK).reason in (0x82, 0x95)
    one.expect_close()


@pytest.mark.beyond
def test_a_will_of_65_535_bytes_is_published_where_the_limits_allow_it(
    start_broker: Start, client: Open
) -> None:
    limits = {"connect_packet_bytes": 1 << 20, "topic_bytes": LONGEST}
    port = start_broker(**limits).port
    watcher, topic = client(port=port), "t" * LONGEST
    watcher.subscribe(topic)

    client(port=port, will=Will(topic=topic, payload=b"x" * LONGEST)).close()

    found = watcher.receive_publish()
    assert (len(found.topic), len(found.payload)) == (LONGEST, LONGEST)


@pytest.mark.beyond("5.0")
@pytest.mark.parametrize("name", ["content_type", "correlation_data"])
def test_a_property_of_65_535_bytes_is_forwarded(client: Open, topic: str, name: str) -> None:
    one = client()
    one.subscribe((topic, 1))

    one.publish(topic, qos=1, props={name: b"x" * LONGEST})

    value = one.receive_publish().property(name)
    assert value in ("x" * LONGEST, b"x" * LONGEST)


@pytest.mark.beyond("5.0")
def test_a_user_property_of_65_535_bytes_is_forwarded_where_the_limit_allows_it(
    start_broker: Start, client: Open, topic: str
) -> None:
    one = client(port=start_broker(user_property_bytes=1 << 20).port)
    one.subscribe((topic, 1))
    pair = ("n" * LONGEST, "v" * LONGEST)

    one.publish(topic, qos=1, props={"user_property": [pair]})

    assert one.receive_publish().property("user_property") == [pair]


@pytest.mark.beyond("5.0")
def test_a_user_property_of_65_535_bytes_is_refused_by_the_default(
    client: Open, topic: str
) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"user_property": ("n", "v" * LONGEST)}))

    one.expect_refusal(0x97)


# --- topic aliases --------------------------------------------------------------------------------


@pytest.mark.beyond("5.0")
def test_an_alias_counts_though_the_message_that_set_it_was_not_allowed(client: Open) -> None:
    watcher, one, name = client(), client(), unique("$SYS/not-yours")
    watcher.subscribe(name)

    refused = [
        one.publish(name, qos=1, props={"topic_alias": 1}),
        one.publish("", qos=1, props={"topic_alias": 1}),
    ]

    assert [each.reason for each in refused] == [0x87, 0x87]
    watcher.ping()


@pytest.mark.beyond("5.0")
def test_a_repeat_of_qos_2_may_set_an_alias_anew(client: Open, topic: str) -> None:
    watcher, one = client(), client()
    watcher.subscribe((f"{topic}/#", 2))

    for level in "ab":
        one.send(mqtt.publish(f"{topic}/{level}", qos=2, packet_id=1, props={"topic_alias": 1}))
        one.expect(mqtt.PUBREC)
    one.publish("", b"by alias", props={"topic_alias": 1})

    found = [watcher.receive_publish() for _ in range(2)]
    assert [each.topic for each in found] == [f"{topic}/a", f"{topic}/b"]
    watcher.ping()


# --- packet identifiers ---------------------------------------------------------------------------


@pytest.mark.beyond
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_may_wrap_its_packet_identifiers(client: Open, topic: str, qos: int) -> None:
    one = client()
    one.subscribe((topic, 2))

    for number in (65_534, 65_535, 1, 2):
        one.publish(topic, b"%d" % number, qos=qos, packet_id=number)

    found = [one.receive_publish().payload for _ in range(4)]
    assert found == [b"65534", b"65535", b"1", b"2"]


# --- a whole conversation at once -----------------------------------------------------------------


@pytest.mark.beyond
@pytest.mark.parametrize("login", [False, True], ids=["anonymous", "asked about"])
def test_all_that_comes_in_one_segment_with_connect_is_done(
    start_broker: Start, client: Open, wire: Open, version: int, topic: str, *, login: bool
) -> None:
    port = start_broker(Doorkeeper()).port
    watcher, one = client(port=port), wire(port=port)
    watcher.subscribe((topic, 2))
    user: dict[str, Any] = {"username": "joe", "password": b"open"} if login else {}

    one.send(
        mqtt.connect(unique("c"), version=version, **user),
        mqtt.publish(topic, b"0", version=version),
        mqtt.publish(topic, b"1", qos=1, packet_id=1, version=version),
        mqtt.publish(topic, b"2", qos=2, packet_id=2, version=version),
        mqtt.ack(mqtt.PUBREL, 2),
        mqtt.disconnect(),
    )

    kinds = [each.kind for each in one.receive_until_close()]
    assert kinds == [mqtt.CONNACK, mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBCOMP]
    assert mqtt.payloads([watcher.receive_publish() for _ in range(3)]) == [b"0", b"1", b"2"]


@pytest.mark.beyond
def test_what_was_sent_before_a_client_vanished_is_done(
    wire: Open, client: Open, version: int, topic: str
) -> None:
    watcher, one = client(), wire()
    watcher.subscribe((topic, 1))

    one.send(
        mqtt.connect(unique("c"), version=version),
        mqtt.publish(topic, b"last words", qos=1, packet_id=1, version=version),
    )
    one.close()

    assert watcher.receive_publish().payload == b"last words"


# --- overlapping subscriptions --------------------------------------------------------------------


@pytest.mark.beyond
def test_overlapping_subscriptions_get_one_copy(client: Open, topic: str) -> None:
    one = client()
    one.subscribe((topic, 0), (f"{topic}/#", 1), ("+", 2))

    client().publish(topic, b"x", qos=2)

    assert one.receive_publish().qos == 2
    one.ping()


@pytest.mark.beyond
def test_what_is_left_of_overlapping_subscriptions_still_delivers(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((topic, 2), (f"{topic}/#", 1))

    one.unsubscribe(topic)

    sender.publish(topic, b"x", qos=2)
    assert one.receive_publish().qos == 1
    one.unsubscribe(f"{topic}/#")
    sender.publish(topic, b"y", qos=2)
    one.ping()


# --- wills on every way to leave ------------------------------------------------------------------


def break_a_rule(one: Wire) -> None:
    """Leaves by a packet that the broker closes for."""
    one.send(b"\xc1\x00")
    one.expect_refusal(0x81)


def cut_a_packet(one: Wire) -> None:
    """Leaves in the middle of a packet."""
    one.send(b"\x30\x7f\x00")
    one.close()


LEAVING_BADLY: dict[str, Callable[[Wire], None]] = {
    "close": Wire.close,
    "reset": Wire.reset,
    "in a packet": cut_a_packet,
    "violation": break_a_rule,
}


@pytest.mark.beyond
@pytest.mark.parametrize("leave", LEAVING_BADLY.values(), ids=LEAVING_BADLY.keys())
@pytest.mark.parametrize("keep", [True, False])
def test_a_client_that_leaves_without_disconnect_leaves_its_will(
    client: Open, topic: str, leave: Callable[[Wire], None], *, keep: bool
) -> None:
    watcher = client()
    watcher.subscribe(topic)

    leave(client(keep=keep, will=Will(topic=topic, payload=b"gone")))

    assert watcher.receive_publish().payload == b"gone"


@pytest.mark.beyond
def test_who_is_replaced_leaves_its_will(client: Open, topic: str) -> None:
    watcher, name = client(), unique("c")
    watcher.subscribe(topic)
    old = client(name, will=Will(topic=topic, payload=b"gone"))

    client(name)

    old.expect_refusal(0x8E)
    assert watcher.receive_publish().payload == b"gone"


@pytest.mark.beyond("5.0")
def test_who_disconnects_with_will_leaves_it(client: Open, topic: str) -> None:
    watcher = client()
    watcher.subscribe(topic)

    client(will=Will(topic=topic, payload=b"gone")).disconnect(0x04)

    assert watcher.receive_publish().payload == b"gone"


@pytest.mark.beyond
def test_a_will_is_published_when_an_administrator_disconnects_its_client(
    start_broker: Start, client: Open, topic: str
) -> None:
    running = start_broker()
    watcher, one = client(port=running.port), unique("c")
    watcher.subscribe(topic)
    told = client(one, port=running.port, will=Will(topic=topic, payload=b"gone"))

    assert running.disconnect(one)

    told.expect_refusal(0x98)
    assert watcher.receive_publish().payload == b"gone"


@pytest.mark.beyond
def test_the_end_of_the_broker_is_reported_and_publishes_wills(
    start_broker: Start, client: Open, topic: str
) -> None:
    running = start_broker(bystander=False)
    watcher = client(port=running.port)
    watcher.subscribe(topic)
    one = client(port=running.port, will=Will(topic=topic, payload=b"gone"))

    running.stop()

    one.expect_refusal(0x8B)
    assert watcher.receive_publish().payload == b"gone"
    watcher.expect_refusal(0x8B)
