"""Sessions: what is kept, for how long, and what Session Present says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.wire import Wire, unique

Open = Callable[..., Wire]
Pass = Callable[..., None]


def keep(version: int, seconds: int = 60) -> dict[str, Any]:
    """What makes a session outlive its connection."""
    props = {"session_expiry_interval": seconds} if version == 5 else None
    return {"clean": False, "props": props}


def test_a_kept_session_is_present(wire: Open, version: int) -> None:
    name = unique("c")
    first, second = wire(version=version), wire(version=version)
    assert not first.connect(name, **keep(version)).session_present
    first.disconnect()

    connack = second.connect(name, **keep(version))

    # The byte of MQTT 3.1 has no such flag.
    assert connack.session_present == (version > 3)


def test_a_kept_session_keeps_its_subscriptions(client: Open, version: int, topic: str) -> None:
    name = unique("c")
    first = client(name, version=version, **keep(version))
    first.subscribe((topic, 1))
    first.disconnect()

    second = client(name, version=version, **keep(version))
    second.publish(topic, b"x", qos=1)

    assert second.receive_publish().payload == b"x"


def test_a_clean_start_forgets_subscriptions_and_messages(
    client: Open, wire: Open, version: int, topic: str
) -> None:
    name = unique("c")
    first = client(name, version=version, **keep(version))
    first.subscribe((topic, 1))
    first.disconnect()
    client().publish(topic, b"queued", qos=1)
    second = wire(version=version)

    connack = second.connect(name, clean=True)
    client().publish(topic, b"live", qos=1)

    assert not connack.session_present
    second.ping()


def test_a_clean_session_ends_with_its_connection(wire: Open, version: int) -> None:
    name = unique("c")
    first = wire(version=version)
    first.connect(name, clean=True)
    first.disconnect()

    connack = wire(version=version).connect(name, clean=False)

    assert not connack.session_present


def test_a_clean_session_of_3_x_leaves_nothing_behind(wire: Open) -> None:
    name = unique("c")
    for clean in (False, True):
        one = wire(version=4)
        one.connect(name, clean=clean)
        one.disconnect()

    assert not wire(version=4).connect(name, clean=False).session_present


def test_a_v5_session_without_expiry_ends_with_its_connection(wire: Open) -> None:
    name = unique("c")
    first = wire()
    first.connect(name, clean=False)
    first.disconnect()

    assert not wire().connect(name, clean=False).session_present


def test_a_clean_start_of_v5_begins_a_session_that_is_kept(wire: Open) -> None:
    name = unique("c")
    first = wire()
    first.connect(name, clean=True, props={"session_expiry_interval": 60})
    first.disconnect()

    assert wire().connect(name, clean=False).session_present


def test_a_session_expires(wire: Open, let_time_pass: Pass) -> None:
    name = unique("c")
    first = wire()
    first.connect(name, **keep(5, seconds=1))
    first.disconnect()

    let_time_pass()

    assert not wire().connect(name, clean=False).session_present


def test_a_session_does_not_expire_early_or_while_connected(
    wire: Open, let_time_pass: Pass
) -> None:
    name, other = unique("c"), unique("c")
    first, second = wire(), wire()
    first.connect(name, **keep(5, seconds=30))
    first.disconnect()
    second.connect(other, **keep(5, seconds=1))

    let_time_pass()

    second.ping()
    assert wire().connect(name, clean=False).session_present
    assert wire().connect(other, clean=False).session_present


def test_disconnect_may_shorten_the_expiry(wire: Open) -> None:
    name = unique("c")
    first = wire()
    first.connect(name, **keep(5))
    first.disconnect(0, props={"session_expiry_interval": 0})

    assert not wire().connect(name, clean=False).session_present


def test_disconnect_may_lengthen_an_expiry_that_is_not_zero(
    wire: Open, let_time_pass: Pass
) -> None:
    name = unique("c")
    first = wire()
    first.connect(name, **keep(5, seconds=1))
    first.disconnect(0, props={"session_expiry_interval": 60})

    let_time_pass()

    assert wire().connect(name, clean=False).session_present


def test_an_endless_session_is_told_its_end(wire: Open) -> None:
    one = wire()

    connack = one.connect(unique("c"), props={"session_expiry_interval": 0xFFFF_FFFF})

    assert connack.property("session_expiry_interval") == 7 * 24 * 3_600
    one.disconnect(0, props={"session_expiry_interval": 0})


def test_a_session_may_go_on_in_another_version(wire: Open, topic: str) -> None:
    name = unique("c")
    first, second = wire(version=4), wire(version=5)
    first.connect(name, clean=False)
    first.subscribe((topic, 1))
    first.disconnect()
    wire().connect(unique("c"))

    connack = second.connect(name, clean=False, props={"session_expiry_interval": 0})
    second.publish(topic, b"x")

    assert connack.session_present
    assert second.receive_publish().payload == b"x"


def test_two_sessions_share_nothing(client: Open, topic: str, version: int) -> None:
    one, other = client(version=version), client(version=version)
    one.subscribe(topic)

    one.publish(topic, b"x")

    assert one.receive_publish().payload == b"x"
    other.ping()


@pytest.mark.parametrize("end", ["disconnect", "close", "reset"])
def test_a_session_outlives_any_end_of_its_connection(
    wire: Open, client: Open, version: int, topic: str, end: str
) -> None:
    name = unique("c")
    first = client(name, version=version, **keep(version))
    first.subscribe((topic, 1))
    getattr(first, end)()
    client().publish(topic, b"queued", qos=1)

    second = wire(version=version)
    second.connect(name, **keep(version))

    assert second.receive_publish().payload == b"queued"
