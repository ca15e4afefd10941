"""Section 3.3.2.3 of MQTT 5.0: the properties of PUBLISH."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]

ALL = bytes.fromhex(
    "26 00 01 7a 00 01 31"  # user property z = 1
    "08 00 03 72 2f 74"  # response topic r/t
    "26 00 01 61 00 01 32"  # user property a = 2
    "09 00 04 00 ff 00 c3"  # correlation data
    "01 01"  # payload format indicator
    "26 00 01 7a 00 01 31"  # user property z = 1
    "03 00 04 e6 b8 a9 21"  # content type
    "26 00 00 00 00"  # an empty user property
)


@pytest.fixture
def receiver(client: Open, topic: str) -> Wire:
    """A subscriber at QoS 2."""
    one = client()
    one.subscribe((topic, 2))
    return one


def sent_properties(client: Open, receiver: Wire, topic: str, properties: bytes) -> bytes:
    """What arrives of the property list of a PUBLISH without payload."""
    client().publish(topic, props=properties)
    raw = receiver.receive_publish().raw
    lengths = mqtt.split_var_int(raw[1:])
    assert lengths is not None
    body = lengths[1][2 + len(topic) :]
    split = mqtt.split_var_int(body)
    assert split is not None
    assert split[0] == len(split[1])
    return split[1]


@pytest.mark.spec("5.0", "MQTT-3.3.2-4")
@pytest.mark.spec("5.0", "MQTT-3.3.2-15")
@pytest.mark.spec("5.0", "MQTT-3.3.2-16")
@pytest.mark.spec("5.0", "MQTT-3.3.2-17")
@pytest.mark.spec("5.0", "MQTT-3.3.2-18")
@pytest.mark.spec("5.0", "MQTT-3.3.2-20")
def test_properties_are_forwarded_unchanged(client: Open, receiver: Wire, topic: str) -> None:
    found = sent_properties(client, receiver, topic, ALL)

    assert user_properties(found) == user_properties(ALL)
    assert sorted(split(found)) == sorted(split(ALL))


def split(properties: bytes) -> list[bytes]:
    """Each property with its identifier, in the order of the packet."""
    parts = []
    while properties:
        length = {0x01: 2, 0x26: pair_length(properties)}.get(
            properties[0], 3 + int.from_bytes(properties[1:3], "big")
        )
        parts.append(properties[:length])
        properties = properties[length:]
    return parts


def pair_length(properties: bytes) -> int:
    """How long a user property at the front is."""
    name = int.from_bytes(properties[1:3], "big")
    return 5 + name + int.from_bytes(properties[3 + name : 5 + name], "big")


def user_properties(properties: bytes) -> list[bytes]:
    """The user properties, in their order."""
    return [each for each in split(properties) if each[0] == 0x26]


@pytest.mark.spec("5.0", "MQTT-3.3.2-15")
@pytest.mark.spec("5.0", "MQTT-3.3.2-16")
@pytest.mark.spec("5.0", "MQTT-3.3.2-17")
@pytest.mark.spec("5.0", "MQTT-3.3.2-18")
@pytest.mark.spec("5.0", "MQTT-3.3.2-20")
@pytest.mark.parametrize("way", ["retained", "waiting", "shared", "in flight again"])
def test_properties_are_forwarded_unchanged_on_every_way(
    client: Open, topic: str, way: str
) -> None:
    filters = (f"$share/{topic}/{topic}" if way == "shared" else topic, 1)
    one, sender = client(topic, keep=True), client()
    if way == "waiting":
        one.subscribe(filters)
        one.disconnect()
        sender.publish(topic, qos=1, props=ALL)
        one = client(topic, keep=True)
    elif way == "retained":
        sender.publish(topic, b"x", qos=1, retain=True, props=ALL)
        one.subscribe(filters)
    else:
        one.subscribe(filters)
        sender.publish(topic, qos=1, props=ALL)
    if way == "in flight again":
        one.expect(mqtt.PUBLISH)
        one.close()
        one = client(topic, keep=True)

    found = one.receive_publish()

    expected, rest = mqtt.split_properties(mqtt.var_int(len(ALL)) + ALL)
    assert rest == b""
    assert found.properties == expected
    sender.publish(topic, b"", retain=True)


@pytest.mark.spec("5.0", "MQTT-3.3.2-17")
@pytest.mark.spec("5.0", "MQTT-3.3.2-18")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("before", "behind"),
    [(b"\x23\x00\x01", b""), (b"", b"\x23\x00\x01"), (b"\x02\x00\x00\x0e\x10", b"")],
    ids=["alias before", "alias behind", "expiry"],
)
def test_properties_keep_their_order_where_others_are_taken_out_or_put_in(
    client: Open, topic: str, before: bytes, behind: bytes, qos: int
) -> None:
    one = client()
    one.subscribe((topic, 2), props={"subscription_identifier": 77})

    one.publish(topic, b"x", qos=qos, props=before + ALL + behind)

    found = dict(one.receive_publish().properties or {})
    expected, _ = mqtt.split_properties(mqtt.var_int(len(ALL)) + ALL)
    assert found.pop("subscription_identifier") == [77]
    assert found.pop("message_expiry_interval", 3_600) == 3_600
    assert found == expected


@pytest.mark.spec("5.0", "MQTT-3.3.2-4")
@pytest.mark.parametrize("properties", [b"", b"\x01\x00", b"\x01\x01"])
def test_the_payload_format_indicator_is_forwarded_as_it_came(
    client: Open, receiver: Wire, topic: str, properties: bytes
) -> None:
    assert sent_properties(client, receiver, topic, properties) == properties


# --- message expiry -------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.3.2-5")
@pytest.mark.spec("5.0", "MQTT-3.3.2-6")
def test_a_message_that_waits_grows_older_and_is_deleted_at_its_expiry(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    away, full, sender = client(topic, keep=True), client(props={"receive_maximum": 1}), client()
    away.subscribe((topic, 2))
    away.disconnect()
    full.subscribe((topic, 2), (f"{topic}/first", 1))
    sender.publish(f"{topic}/first", qos=1)
    in_flight = full.expect(mqtt.PUBLISH)
    for payload, qos, seconds in ((b"gone", 1, 1), (b"left", 2, 60), (b"gone", 2, 1)):
        sender.publish(topic, payload, qos=qos, props={"message_expiry_interval": seconds})
    sender.publish(topic, b"endless", qos=1)

    let_time_pass()

    full.acknowledge(in_flight)
    for each in (full, client(topic, keep=True)):
        left, endless = each.receive_publish(), each.receive_publish()
        assert (left.payload, endless.payload) == (b"left", b"endless")
        assert left.property("message_expiry_interval") in range(50, 60)
        assert endless.property("message_expiry_interval") is None
        each.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.2-5")
@pytest.mark.spec("5.0", "MQTT-3.3.2-6")
def test_a_retained_message_grows_older_and_is_deleted_at_its_expiry(
    client: Open, topic: str, let_time_pass: Callable[..., None]
) -> None:
    sender, late = client(), client()
    for level, seconds in (("gone", 1), ("left", 60)):
        props = {"message_expiry_interval": seconds}
        sender.publish(f"{topic}/{level}", b"x", qos=1, retain=True, props=props)

    let_time_pass()

    late.subscribe((f"{topic}/+", 1))
    found = late.receive_publish()
    assert found.topic == f"{topic}/left"
    assert found.property("message_expiry_interval") in range(50, 60)
    late.ping()
    sender.publish(f"{topic}/left", b"", retain=True)


@pytest.mark.spec("5.0", "MQTT-3.3.2-6")
@pytest.mark.parametrize("seconds", [1, 60, 0xFFFF_FFFF])
def test_a_message_that_did_not_wait_keeps_its_expiry(
    client: Open, receiver: Wire, topic: str, seconds: int
) -> None:
    interval = b"\x02" + seconds.to_bytes(4, "big")

    assert sent_properties(client, receiver, topic, interval) == interval


# --- topic alias ----------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.3.2-7")
def test_an_alias_of_the_client_ends_with_its_connection(client: Open, topic: str) -> None:
    name = unique("c")
    first = client(name, keep=True)
    first.publish(topic, props={"topic_alias": 1})
    first.close()

    again = client(name, keep=True)
    again.send(mqtt.publish("", props={"topic_alias": 1}))

    again.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.3.2-7")
def test_an_alias_of_the_broker_ends_with_the_connection(client: Open, topic: str) -> None:
    long, sender = f"{topic}/a-topic-worth-an-alias", client()
    options = {"keep": True, "props": {"topic_alias_maximum": 5}}
    first = client(topic, **options)
    first.subscribe((long, 1))
    for _ in range(4):
        sender.publish(long, qos=1)
    found = [first.receive_publish() for _ in range(4)]
    assert found[-1].topic == ""
    first.close()
    sender.publish(long, qos=1)

    assert client(topic, **options).receive_publish().topic == long


@pytest.mark.spec("5.0", "MQTT-3.3.2-7")
def test_an_alias_belongs_to_one_connection_only(client: Open, topic: str) -> None:
    one, other = client(), client()
    one.publish(topic, props={"topic_alias": 1})

    other.send(mqtt.publish("", props={"topic_alias": 1}))

    other.expect_refusal(0x82)
    one.publish("", props={"topic_alias": 1})


@pytest.mark.spec("5.0", "MQTT-3.3.2-8")
@pytest.mark.parametrize("name", ["", "a"])
def test_alias_0_ends_the_connection(client: Open, name: str) -> None:
    one = client()

    one.send(mqtt.publish(name, props=b"\x23\x00\x00"))

    one.expect_refusal(0x94)


@pytest.mark.spec("5.0", "MQTT-3.3.2-9")
@pytest.mark.parametrize("alias", [11, 0xFFFF])
def test_an_alias_above_the_servers_maximum_reaches_nobody(
    client: Open, receiver: Wire, topic: str, alias: int
) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"topic_alias": alias}))

    one.expect_refusal(0x94)
    receiver.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.2-12")
def test_every_alias_up_to_the_servers_maximum_is_accepted(
    wire: Open, client: Open, topic: str
) -> None:
    receiver, sender = client(), wire()
    receiver.subscribe(f"{topic}/#")
    maximum = sender.connect(unique("c")).property("topic_alias_maximum")
    assert isinstance(maximum, int)

    for alias in range(1, maximum + 1):
        sender.publish(f"{topic}/{alias}", props={"topic_alias": alias})
    for alias in range(1, maximum + 1):
        sender.publish("", props={"topic_alias": alias})
    sender.publish(f"{topic}/new", props={"topic_alias": 1})
    sender.publish("", props={"topic_alias": 1})

    found = [receiver.receive_publish() for _ in range(2 * maximum + 2)]
    numbers = [f"{topic}/{alias}" for alias in range(1, maximum + 1)]
    assert [each.topic for each in found] == [*numbers, *numbers, *[f"{topic}/new"] * 2]
    assert not any(each.properties for each in found)


# --- response topic and content type --------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.3.2-13")
@pytest.mark.spec("5.0", "MQTT-3.3.2-19")
@pytest.mark.parametrize("text", [b"\xff", b"a\x00", b"\xed\xa0\x80", b"\xc0\x80"])
@pytest.mark.parametrize("name", ["response_topic", "content_type"])
def test_a_response_topic_or_content_type_that_is_no_text_reaches_nobody(
    client: Open, receiver: Wire, topic: str, name: str, text: bytes
) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={name: text}))

    one.expect_refusal(0x81)
    receiver.ping()


@pytest.mark.spec("5.0", "MQTT-3.3.2-14")
@pytest.mark.parametrize("text", ["#", "a/#", "+", "a/+/b", "a+"])
def test_a_response_topic_with_a_wildcard_reaches_nobody(
    client: Open, receiver: Wire, topic: str, text: str
) -> None:
    one = client()

    one.send(mqtt.publish(topic, props={"response_topic": text}))

    one.expect_refusal(0x82)
    receiver.ping()
