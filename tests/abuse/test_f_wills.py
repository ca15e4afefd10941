"""Abuse table F: wills whose clients have no right to them any more, and many wills at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mqttcore import Broker
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Deny, Exchange, Grant, Login, Plugin, hook

from tests import wire as mqtt
from tests.abuse.beside import BesideOf
from tests.wire import AUTH, Will, Wire, unique

Open = Callable[..., Wire]
METHOD = {"authentication_method": "M"}


class Judge(Plugin):
    """Gives those who authenticate the grant of the moment, and everything to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.grant = Grant(publish=["f/#"])

    @hook.enhanced_auth("M")
    async def talk(self, talk: Exchange) -> Allow | Deny:
        """Asks for nothing."""
        return Allow(self.grant, username="someone")

    @hook.authenticate()
    def login(self, login: Login) -> Allow:
        """Asks for nothing either."""
        return Allow(Grant(publish=["#"], subscribe=["#"]))


@pytest.fixture
def judge() -> Judge:
    """The plugin of the test."""
    return Judge()


@pytest.fixture
def judged(judge: Judge, start_broker: Callable[..., Broker]) -> Broker:
    """A broker that asks it."""
    listener = Listener(address="127.0.0.1:0", name="judged")
    return start_broker(judge, listeners=(listener,))


@pytest.mark.parametrize("delay", [0, 1], ids=["at-once", "delayed"])
def test_f07_a_will_whose_client_lost_the_right_is_not_published(
    judge: Judge, judged: Broker, client: Open, delay: int
) -> None:
    watcher = client(username="w", password=b"x", port=judged.port)
    watcher.subscribe("f/#")
    will = Will(topic="f/will", payload=b"once allowed", properties={"will_delay_interval": delay})
    props = {**METHOD, "session_expiry_interval": 60}
    one = client(will=will, props=props, port=judged.port)

    judge.grant = Grant(publish=["g/#"])
    one.send(mqtt.auth(0x19, METHOD))
    assert one.expect(AUTH).reason == 0
    one.reset()

    while judged.stats()["dropped_will"] == 0:
        watcher.ping()
    watcher.ping()


def test_f07_a_will_whose_client_keeps_the_right_is_published(judged: Broker, client: Open) -> None:
    watcher = client(username="w", password=b"x", port=judged.port)
    watcher.subscribe("f/#")

    one = client(will=Will(topic="f/will"), props=METHOD, port=judged.port)
    one.send(mqtt.auth(0x19, METHOD))
    one.expect(AUTH)
    one.reset()

    assert watcher.receive_publish().topic == "f/will"


def test_f09_many_wills_at_once_hold_up_nobody(
    fresh_broker: Broker, client: Open, beside: BesideOf
) -> None:
    port, count = fresh_broker.port, 300
    other, watcher = beside(port), client(port=port)
    watcher.subscribe("f09/#")
    will = {n: Will(topic=f"f09/{n}", payload=b"x" * 1_000) for n in range(count)}
    storm = [client(unique("c"), port=port, will=will[n]) for n in range(count)]

    for each in storm:
        each.reset()
    for _ in range(20):
        other.check()

    found = {watcher.receive_publish().topic for _ in range(count)}
    assert len(found) == count
    assert fresh_broker.stats()["sessions"] <= 3
