"""Rows of the abuse table that take more than one identity: who may what, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mqttcore import Broker
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, hook

from tests.wire import PUBLISH, Will, Wire, unique

Open = Callable[..., Wire]


class Doorman(Plugin):
    """Lets in whom its table names, with what the table says at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.grants = {
            "everything": Grant(publish=["#"], subscribe=["#"]),
            "reader": Grant(subscribe=["f/+", "g/#"]),
            "writer": Grant(publish=["f/+", "g/#"]),
            "fenced": Grant(publish=["f/#"], subscribe=["f/#"], deny=["f/secret"]),
            "loud": Grant(publish=["$SHARE/#", "t"], subscribe=["$SHARE/#"]),
        }

    @hook.authenticate()
    def login(self, login: Login) -> Allow | Deny:
        """One password for all."""
        grant = self.grants.get(login.username or "")
        if grant is None or login.password != b"secret":
            return Deny("bad_credentials")
        return Allow(grant)


@pytest.fixture
def doorman() -> Doorman:
    """The table of this test."""
    return Doorman()


@pytest.fixture
def guarded(doorman: Doorman, start_broker: Callable[..., Broker]) -> Broker:
    """A broker that asks the doorman."""
    listener = Listener(address="127.0.0.1:0", name="guarded")
    return start_broker(doorman, listeners=(listener,))


@pytest.fixture
def enter(guarded: Broker, client: Open) -> Open:
    """Connects as somebody: `enter("reader", "client id", version=4)`."""

    def connected(username: str, client_id: str | None = None, **options: object) -> Wire:
        login = {"username": username, "password": b"secret", "port": guarded.port}
        return client(client_id, **login, **options)

    return connected


def keep(version: int) -> dict[str, Any]:
    """What makes a session outlive its connection."""
    props = {"session_expiry_interval": 60} if version == 5 else None
    return {"version": version, "clean": False, "props": props}


@pytest.mark.parametrize("password", [None, b"", b"Secret", b"secret\x00"])
def test_c07_a_wrong_or_missing_password_is_a_failed_login(
    guarded: Broker, wire: Open, version: int, password: bytes | None
) -> None:
    one = wire(version=version, port=guarded.port)

    refused = 0x86 if version == 5 else 4
    one.connect(unique("c"), username="everything", password=password, reason=refused)

    one.expect_close()


def test_c08_nobody_is_anonymous_here(guarded: Broker, wire: Open, version: int) -> None:
    logins: tuple[dict[str, Any], ...] = ({}, {"username": "", "password": b""})
    for login in logins:
        one = wire(version=version, port=guarded.port)
        refused = 0x86 if version == 5 else 4
        one.connect(unique("c"), **login, reason=refused)
        one.expect_close()


def test_c24_another_user_may_not_take_over(
    guarded: Broker, wire: Open, enter: Open, version: int
) -> None:
    name = unique("c")
    owner, thief = enter("reader", name), wire(version=version, port=guarded.port)

    refused = 0x85 if version == 5 else 2
    thief.connect(name, username="everything", password=b"secret", reason=refused)

    thief.expect_close()
    owner.ping()
    enter("reader", name).ping()
    owner.expect_refusal(0x8E)


def test_c24_another_user_may_not_have_a_session_that_waits(
    guarded: Broker, wire: Open, enter: Open, version: int, topic: str
) -> None:
    name = unique("c")
    owner = enter("everything", name, **keep(version))
    owner.subscribe((topic, 1))
    owner.disconnect()
    enter("everything").publish(topic, b"for the owner", qos=1)
    thief = wire(version=version, port=guarded.port)

    options = keep(version)
    del options["version"]
    refused = 0x85 if version == 5 else 2
    thief.connect(name, username="fenced", password=b"secret", reason=refused, **options)

    thief.expect_close()
    again = enter("everything", name, **keep(version))
    assert again.receive_publish().payload == b"for the owner"


def test_e14_the_widest_filter_needs_the_widest_grant(enter: Open, version: int) -> None:
    one = enter("reader", version=version)

    suback = one.subscribe("#", "$SYS/#", "+/x", "f/x/y", "f/x", "g/x/y", "$share/group/#")

    refused = 0x87 if version == 5 else 0x80
    assert suback.reasons == (refused, refused, refused, refused, 0, 0, refused)


def test_f03_what_a_user_retained_stays_hidden_where_it_may_not_be_read(
    enter: Open, version: int
) -> None:
    enter("everything").publish("f/secret", b"hidden", qos=1, retain=True)
    enter("everything").publish("f/open", b"shown", qos=1, retain=True)
    one = enter("fenced", version=version)

    one.subscribe("f/#")

    assert one.receive_publish().topic == "f/open"
    one.ping()


def test_f04_retaining_takes_the_right_to_publish(enter: Open, version: int) -> None:
    one, watcher = enter("reader", version=version), enter("everything")

    denied = one.publish("f/x", b"planted", qos=1, retain=True)

    assert denied.reason == (0x87 if version == 5 else 0)
    watcher.subscribe("f/x")
    watcher.ping()


def test_f05_clearing_takes_the_right_to_publish(enter: Open, version: int) -> None:
    enter("everything").publish("f/x", b"kept", qos=1, retain=True)
    one, watcher = enter("reader", version=version), enter("everything")

    denied = one.publish("f/x", b"", qos=1, retain=True)

    assert denied.reason == (0x87 if version == 5 else 0)
    watcher.subscribe("f/x")
    assert watcher.receive_publish().payload == b"kept"


def test_f07_a_will_takes_the_right_to_publish(
    guarded: Broker, wire: Open, enter: Open, version: int
) -> None:
    one = wire(version=version, port=guarded.port)
    login: dict[str, Any] = {"username": "reader", "password": b"secret"}

    refused = 0x87 if version == 5 else 5
    one.connect(unique("c"), **login, will=Will(topic="f/x"), reason=refused)

    one.expect_close()
    enter("writer", will=Will(topic="f/x")).ping()


def test_f16_a_session_that_goes_on_has_the_subscriptions_of_today(
    doorman: Doorman, enter: Open, version: int
) -> None:
    name = unique("c")
    one, sender = enter("reader", name, **keep(version)), enter("everything")
    one.subscribe(("f/a", 1), ("g/a", 1))
    one.disconnect()

    doorman.grants["reader"] = Grant(subscribe=["g/#"])
    again = enter("reader", name, **keep(version))

    for topic in ("f/a", "g/a"):
        sender.publish(topic, b"live", qos=1)
    assert again.receive_publish().topic == "g/a"
    again.ping()


def test_f16_queued_messages_are_checked_against_the_present_rights(
    doorman: Doorman, enter: Open, version: int
) -> None:
    name = unique("c")
    one, sender = enter("reader", name, **keep(version)), enter("everything")
    one.subscribe(("f/a", 1), ("g/a", 1))
    one.disconnect()
    for topic in ("f/a", "g/a"):
        sender.publish(topic, b"queued", qos=1)

    doorman.grants["reader"] = Grant(subscribe=["g/#"])
    again = enter("reader", name, **keep(version))

    assert again.receive_publish().topic == "g/a"
    again.ping()


def test_f16_a_new_deny_rule_counts_for_queued_messages(
    doorman: Doorman, enter: Open, version: int
) -> None:
    name = unique("c")
    one, sender = enter("reader", name, **keep(version)), enter("everything")
    one.subscribe(("g/#", 1))
    one.disconnect()
    for topic in ("g/secret", "g/open"):
        sender.publish(topic, b"queued", qos=1)

    doorman.grants["reader"] = Grant(subscribe=["g/#"], deny=["g/secret"])
    again = enter("reader", name, **keep(version))

    assert again.receive_publish().topic == "g/open"
    again.ping()


@pytest.mark.parametrize(
    ("name", "other"),
    [("d//b", "d/b"), ("d/A", "d/a"), ("d/\u00e9", "d/e\u0301"), ("/d", "d"), ("d/", "d")],
)
def test_d25_rules_compare_topics_byte_by_byte(
    doorman: Doorman, enter: Open, version: int, name: str, other: str
) -> None:
    doorman.grants["exact"] = Grant(publish=[name], subscribe=[name])
    doorman.grants["fenced"] = Grant(publish=["#"], subscribe=["#"], deny=[name])
    exact, fenced = enter("exact", version=version), enter("fenced", version=version)
    denied, allowed = (0x80, 0) if version < 5 else (0x87, 0)

    assert exact.subscribe(name, other).reasons == (allowed, denied)
    assert fenced.subscribe(name, other).reasons == (denied, allowed)
    # each may publish to its own topic, and to that alone
    for one, payload in ((exact, b"exact"), (fenced, b"fenced")):
        for topic in (name, other):
            one.publish(topic, payload, qos=1)
    assert (exact.receive_publish().topic, fenced.receive_publish().topic) == (name, other)
    exact.ping()
    fenced.ping()


def test_e06_another_case_is_an_ordinary_filter(enter: Open, version: int) -> None:
    one = enter("loud", version=version)
    assert one.subscribe(("$SHARE/g/t", 1)).reason == 1

    one.publish("t", b"of a group", qos=1)
    one.publish("$SHARE/g/t", b"of the filter", qos=1)

    assert one.receive_publish().payload == b"of the filter"
    one.ping()


@pytest.mark.parametrize("filter_", ["f/#", "f/+", "$share/group/f/#"])
def test_g07_a_denied_topic_is_left_out_of_a_wider_filter(
    enter: Open, version: int, filter_: str
) -> None:
    one, sender = enter("fenced", version=version), enter("everything")
    assert one.subscribe((filter_, 1)).reason == 1

    sender.publish("f/secret", b"hidden", qos=1)
    sender.publish("f/open", b"shown", qos=1)

    assert one.receive_publish().topic == "f/open"
    one.ping()


def test_g07_a_denied_topic_is_left_out_of_the_queue(enter: Open, version: int) -> None:
    name = unique("c")
    one, sender = enter("fenced", name, **keep(version)), enter("everything")
    one.subscribe(("f/#", 1))
    one.disconnect()

    sender.publish("f/secret", b"hidden", qos=1)
    sender.publish("f/open", b"shown", qos=1)

    again = enter("fenced", name, **keep(version))
    assert again.expect(PUBLISH).topic == "f/open"


def test_g08_a_denied_filter_is_denied_in_a_group_too(enter: Open, version: int) -> None:
    one = enter("fenced", version=version)

    suback = one.subscribe("f/secret", "$share/group/f/secret", "$share/group/f/open")

    refused = 0x87 if version == 5 else 0x80
    assert suback.reasons == (refused, refused, 0)


def test_a_denied_publish_of_quality_0_reaches_nobody(enter: Open, version: int) -> None:
    one, watcher = enter("reader", version=version), enter("everything")
    watcher.subscribe("f/x")

    one.publish("f/x", b"planted")

    enter("writer").publish("f/x", b"allowed", qos=1)
    assert watcher.receive_publish().payload == b"allowed"
