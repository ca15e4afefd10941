"""Section 4.8 of MQTT 5.0: shared subscriptions; and how subscriptions of one client overlap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def group(topic: str) -> str:
    """A shared filter for the topic of the test."""
    return f"$share/group/{topic}"


# --- what a shared filter must look like ----------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.8.2-1")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
@pytest.mark.parametrize("filter_", ["$share//a", "$share//", "$share/", "$share///a"])
def test_a_share_name_of_no_character_ends_the_connection(
    client: Open, build: Callable[..., bytes], filter_: str
) -> None:
    one = client()

    one.send(build(filter_))

    one.expect_refusal(0x8F)


@pytest.mark.spec("5.0", "MQTT-4.8.2-1")
@pytest.mark.parametrize("name", ["g", " ", "$share", "a b", "\u9375", "x" * 100])
def test_a_share_name_of_any_other_characters_is_taken(client: Open, topic: str, name: str) -> None:
    one = client()

    assert one.subscribe(f"$share/{name}/{topic}").reason == 0

    client().publish(topic, b"x")
    assert one.receive_publish().payload == b"x"


@pytest.mark.spec("5.0", "MQTT-4.8.2-2")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
@pytest.mark.parametrize(
    "filter_", ["$share/+/a", "$share/#/a", "$share/g+/a", "$share/g#/a", "$share/+g/a", "$share/#"]
)
def test_a_wildcard_in_a_share_name_ends_the_connection(
    client: Open, build: Callable[..., bytes], filter_: str
) -> None:
    one = client()

    one.send(build(filter_))

    one.expect_refusal(0x8F)


@pytest.mark.spec("5.0", "MQTT-4.8.2-2")
@pytest.mark.parametrize("build", [mqtt.subscribe, mqtt.unsubscribe])
@pytest.mark.parametrize("filter_", ["$share/g", "$share/g/"])
def test_a_share_name_that_no_filter_follows_ends_the_connection(
    client: Open, build: Callable[..., bytes], filter_: str
) -> None:
    one = client()

    one.send(build(filter_))

    one.expect_refusal(0x8F)


@pytest.mark.spec("5.0", "MQTT-4.8.2-2")
@pytest.mark.parametrize("filter_", ["a#", "a/#/b", "a+", "a/+b"])
def test_what_follows_a_share_name_must_be_a_filter(client: Open, filter_: str) -> None:
    one = client()

    one.send(mqtt.subscribe(f"$share/g/{filter_}"))

    one.expect_refusal(0x8F)


@pytest.mark.spec("5.0", "MQTT-4.8.2-2")
@pytest.mark.parametrize("below", ["", "/#", "/+/c", "//"])
def test_the_filter_behind_a_share_name_matches_as_ever(
    client: Open, topic: str, below: str
) -> None:
    one = client()
    one.subscribe(f"$share/g/{topic}{below}")
    name = {"": topic, "/#": f"{topic}/a/b", "/+/c": f"{topic}/b/c", "//": f"{topic}//"}[below]

    client().publish(name, b"x")

    assert one.receive_publish().topic == name


# --- the granted QoS ------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.8.2-3")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_shared_message_comes_with_the_lower_qos(
    client: Open, topic: str, group: str, published: int, granted: int
) -> None:
    one = client()
    one.subscribe((group, granted))

    client().publish(topic, b"x", qos=published)

    assert one.receive_publish().qos == min(published, granted)


@pytest.mark.spec("5.0", "MQTT-4.8.2-3")
def test_each_member_gets_its_own_granted_qos(client: Open, topic: str, group: str) -> None:
    members, sender = [client() for _ in range(3)], client()
    for granted, member in enumerate(members):
        member.subscribe((group, granted))

    # One round for each of them.
    for _ in range(3):
        sender.publish(topic, qos=2)

    assert [member.receive_publish().qos for member in members] == [0, 1, 2]


# --- a member that drops --------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.8.2-4")
def test_a_qos_2_message_of_a_member_that_dropped_waits_for_it(
    client: Open, topic: str, group: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((group, 2))
    client().publish(topic, b"mine", qos=2)
    first = one.expect(mqtt.PUBLISH)
    other = client()
    other.subscribe((group, 2))

    one.reset()

    other.ping()
    again = client(name, keep=True)
    second = again.receive_publish()
    assert (second.payload, second.packet_id, second.dup) == (b"mine", first.packet_id, True)
    other.ping()


@pytest.mark.spec("5.0", "MQTT-4.8.2-4")
def test_a_qos_2_message_whose_release_is_open_is_finished_with_its_member(
    client: Open, topic: str, group: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((group, 2))
    client().publish(topic, b"mine", qos=2)
    first = one.expect(mqtt.PUBLISH)
    one.send(mqtt.ack(mqtt.PUBREC, first.packet_id or 0))
    one.expect(mqtt.PUBREL)
    other = client()
    other.subscribe((group, 2))

    one.reset()

    again = client(name, keep=True)
    assert again.expect(mqtt.PUBREL).packet_id == first.packet_id
    again.send(mqtt.ack(mqtt.PUBCOMP, first.packet_id or 0))
    again.ping()
    other.ping()


@pytest.mark.spec("5.0", "MQTT-4.8.2-5")
@pytest.mark.parametrize("state", ["published", "released"])
def test_a_qos_2_message_of_a_session_that_ends_goes_to_nobody_else(
    client: Open, topic: str, group: str, state: str
) -> None:
    name = unique("c")
    one = client(name, keep=True)
    one.subscribe((group, 2))
    client().publish(topic, b"mine", qos=2)
    first = one.expect(mqtt.PUBLISH)
    if state == "released":
        one.send(mqtt.ack(mqtt.PUBREC, first.packet_id or 0))
        one.expect(mqtt.PUBREL)
    other = client()
    other.subscribe((group, 2))

    one.reset()
    client(name, clean=True).ping()

    other.ping()
    client().publish(topic, b"next", qos=2)
    assert other.receive_publish().payload == b"next"


@pytest.mark.spec("5.0", "MQTT-4.8.2-5")
def test_a_qos_2_message_of_a_session_that_is_not_kept_goes_to_nobody_else(
    client: Open, topic: str, group: str
) -> None:
    one, other = client(), client()
    one.subscribe((group, 2))
    client().publish(topic, b"mine", qos=2)
    one.expect(mqtt.PUBLISH)
    other.subscribe((group, 2))

    one.disconnect()

    other.ping()


# --- a member that refuses ------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.8.2-6")
@pytest.mark.parametrize("code", [0x80, 0x87, 0x97])
@pytest.mark.parametrize(("qos", "kind"), [(1, mqtt.PUBACK), (2, mqtt.PUBREC)])
def test_a_message_that_a_member_refuses_goes_to_nobody_else(
    client: Open, topic: str, group: str, qos: int, kind: int, code: int
) -> None:
    name = unique("c")
    one, other = client(name, keep=True), client()
    one.subscribe((group, qos))
    client().publish(topic, b"refused", qos=qos)
    found = one.expect(mqtt.PUBLISH)
    other.subscribe((group, qos))

    one.send(mqtt.ack(kind, found.packet_id or 0, code))

    one.ping()
    other.ping()
    one.close()
    client(name, keep=True).ping()


# --- beyond the statements ------------------------------------------------------------------------


@pytest.mark.beyond
def test_each_message_goes_to_one_member_of_each_group(client: Open, topic: str) -> None:
    ones, twos = [client(), client()], [client(), client()]
    for name, members in (("one", ones), ("two", twos)):
        for member in members:
            member.subscribe((f"$share/{name}/{topic}", 1))
    sender = client()

    sender.publish(topic, b"1", qos=1)
    sender.publish(topic, b"2", qos=1)

    for members in (ones, twos):
        assert sorted(member.receive_publish().payload for member in members) == [b"1", b"2"]
        for member in members:
            member.ping()


@pytest.mark.beyond("5.0")
def test_a_shared_subscription_gets_no_retained_messages(
    client: Open, topic: str, group: str
) -> None:
    one = client()
    one.publish(topic, b"kept", retain=True)

    one.subscribe(group)

    one.ping()
    one.publish(topic, retain=True)


@pytest.mark.beyond("5.0")
def test_a_shared_and_a_plain_subscription_of_one_client_both_deliver(
    client: Open, topic: str, group: str
) -> None:
    one = client()
    one.subscribe(topic, props={"subscription_identifier": 1})
    one.subscribe(group, props={"subscription_identifier": 2})

    client().publish(topic, b"x", qos=1)

    found = [one.receive_publish().property("subscription_identifier") for _ in range(2)]
    assert sorted(found, key=str) == [[1], [2]]
    one.ping()


@pytest.mark.beyond
def test_overlapping_filters_bring_one_message(client: Open, topic: str) -> None:
    one = client()
    one.subscribe(f"{topic}/#", f"{topic}/+", f"{topic}/a", "+/a")

    client().publish(f"{topic}/a", b"x", qos=1)

    assert one.receive_publish().payload == b"x"
    one.ping()


@pytest.mark.beyond
def test_an_overlap_that_ends_leaves_the_others(client: Open, topic: str) -> None:
    one, sender = client(), client()
    one.subscribe((f"{topic}/#", 1), (f"{topic}/a", 2))

    one.unsubscribe(f"{topic}/a")

    sender.publish(f"{topic}/a", b"x", qos=2)
    assert one.receive_publish().qos == 1
    one.ping()


@pytest.mark.beyond
def test_each_overlapping_filter_brings_its_retained_messages(client: Open, topic: str) -> None:
    one = client()
    one.publish(f"{topic}/a", b"kept", retain=True)

    one.subscribe(f"{topic}/#")
    one.receive_publish()
    one.subscribe(f"{topic}/+")

    assert one.receive_publish().payload == b"kept"
    one.publish(f"{topic}/a", retain=True)
