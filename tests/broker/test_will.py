"""Wills: when they are published, when not, and as what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def watcher(client: Open, topic: str) -> Wire:
    """A v5 subscriber to this test's topic, at QoS 2, with Retain As Published."""
    one = client()
    one.subscribe((f"{topic}/#", 2 | 0x08))
    return one


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_lost_connection_publishes_the_will(
    client: Open, watcher: Wire, topic: str, version: int, end: str
) -> None:
    one = client(version=version, will=Will(topic=f"{topic}/will", payload=b"gone"))

    getattr(one, end)()

    found = watcher.receive_publish()
    assert (found.topic, found.payload) == (f"{topic}/will", b"gone")
    assert (found.qos, found.retain) == (0, False)


def test_disconnect_forgets_the_will(client: Open, watcher: Wire, topic: str, version: int) -> None:
    one = client(version=version, will=Will(topic=f"{topic}/will"))

    one.disconnect()

    client().publish(f"{topic}/after")
    assert watcher.receive_publish().topic == f"{topic}/after"


def test_disconnect_with_will_publishes_it(client: Open, watcher: Wire, topic: str) -> None:
    one = client(will=Will(topic=f"{topic}/will"))

    one.disconnect(0x04)

    assert watcher.receive_publish().topic == f"{topic}/will"


def test_a_broken_rule_publishes_the_will(
    client: Open, watcher: Wire, topic: str, version: int
) -> None:
    one = client(version=version, will=Will(topic=f"{topic}/will"))

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_refusal(0x82)
    assert watcher.receive_publish().topic == f"{topic}/will"


def test_a_keep_alive_that_ran_out_publishes_the_will(
    client: Open, watcher: Wire, topic: str, version: int
) -> None:
    client(version=version, keep_alive=1, will=Will(topic=f"{topic}/will"))

    assert watcher.receive_publish().topic == f"{topic}/will"


def test_a_takeover_publishes_the_will(
    client: Open, watcher: Wire, topic: str, version: int
) -> None:
    name = unique("c")
    client(name, version=version, will=Will(topic=f"{topic}/will"))

    client(name, version=version)

    assert watcher.receive_publish().topic == f"{topic}/will"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_has_its_quality(
    client: Open, watcher: Wire, topic: str, version: int, qos: int
) -> None:
    one = client(version=version, will=Will(topic=f"{topic}/will", payload=b"\x00", qos=qos))

    one.close()

    assert watcher.receive_publish().qos == qos


def test_a_retained_will_is_retained(client: Open, watcher: Wire, topic: str, version: int) -> None:
    one = client(version=version, will=Will(topic=f"{topic}/will", payload=b"gone", retain=True))

    one.close()

    assert watcher.receive_publish().retain
    late = client(version=version)
    late.subscribe(f"{topic}/will")
    found = late.receive_publish()
    assert (found.payload, found.retain) == (b"gone", True)
    late.publish(f"{topic}/will", b"", retain=True)


def test_a_will_has_its_properties_but_not_its_delay(
    client: Open, watcher: Wire, topic: str
) -> None:
    props = {
        "payload_format_indicator": 1,
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": b"\x01",
        "user_property": [("a", "1"), ("a", "2")],
    }
    will = Will(topic=f"{topic}/will", properties={"will_delay_interval": 0, **props})

    client(will=will).close()

    assert watcher.receive_publish().properties == props


def test_a_will_waits_for_its_delay(
    client: Open, watcher: Wire, topic: str, let_time_pass: Callable[..., None]
) -> None:
    session = {"session_expiry_interval": 60}
    will = Will(topic=f"{topic}/late", properties={"will_delay_interval": 1})
    client(props=session, will=will).close()
    client(will=Will(topic=f"{topic}/at-once")).close()

    assert watcher.receive_publish().topic == f"{topic}/at-once"
    assert watcher.receive_publish().topic == f"{topic}/late"


def test_a_delayed_will_is_forgotten_when_the_session_goes_on(
    client: Open, watcher: Wire, topic: str
) -> None:
    name, session = unique("c"), {"session_expiry_interval": 60}
    for who in (name, unique("c")):
        will = Will(topic=f"{topic}/{who}", properties={"will_delay_interval": 1})
        client(who, props=session, will=will).close()

    client(name, clean=False, props=session)

    assert watcher.receive_publish().topic != f"{topic}/{name}"
    watcher.ping()


def test_a_delayed_will_does_not_outlive_its_session(
    client: Open, watcher: Wire, topic: str
) -> None:
    will = Will(topic=f"{topic}/will", properties={"will_delay_interval": 3_600})

    client(props={"session_expiry_interval": 1}, will=will).close()

    assert watcher.receive_publish().topic == f"{topic}/will"


def test_a_clean_start_publishes_a_delayed_will_at_once(
    client: Open, watcher: Wire, topic: str
) -> None:
    name = unique("c")
    will = Will(topic=f"{topic}/will", properties={"will_delay_interval": 3_600})
    client(name, props={"session_expiry_interval": 3_600}, will=will).close()

    client(name, clean=True)

    assert watcher.receive_publish().topic == f"{topic}/will"


def test_a_will_reaches_a_client_of_another_version(client: Open, topic: str, version: int) -> None:
    receiver = client(version=version)
    receiver.subscribe((topic, 1))
    will = Will(topic=topic, payload=b"x", qos=1, properties={"content_type": "text/plain"})

    client(will=will).close()

    assert receiver.receive_publish().payload == b"x"


def test_a_new_connection_brings_its_own_will(client: Open, watcher: Wire, topic: str) -> None:
    name, session = unique("c"), {"session_expiry_interval": 60}
    client(name, props=session, will=Will(topic=f"{topic}/old")).disconnect()

    client(name, clean=False, props=session, will=Will(topic=f"{topic}/new")).close()

    assert watcher.receive_publish().topic == f"{topic}/new"
    watcher.ping()
