"""Every rule of the reference matters: when one is changed, some history notices."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.model import reference, world
from tests.model.brokers import serving
from tests.model.machine import explore

if TYPE_CHECKING:
    from mqttcore import Broker

SOURCE = Path(reference.__file__).read_text()
# What a run may take to notice; most notice within a few hundred.
STEPS = 60_000

CHANGES = {
    "No Local does not matter": ("and not (subscription.no_local and name == publisher)", ""),
    "the retain flag is never passed on": (
        "message.retain and any(one.retain_as_published for one in subscriptions)",
        "False",
    ),
    "the retain flag is always passed on": (
        "message.retain and any(one.retain_as_published for one in subscriptions)",
        "message.retain",
    ),
    "a repeated SUBSCRIBE sends what is retained": ("1: is_new", "1: True"),
    "retain handling 2 is 0": ("2: False}", "2: True}"),
    "an empty payload is retained": ("            if message.payload:\n", "            if True:\n"),
    "wildcards reach $ topics": ('if topic.startswith("$")', 'if topic.startswith("?")'),
    "a/# does not match a": ('if level == "#":', 'if level == "#" and place < len(levels):'),
    "the lowest QoS counts": ("max(one.qos for one", "min(one.qos for one"),
    "identifiers are not passed on": ("if one.identifier})", "if one.identifier == 7})"),
    "a goodbye sends the will": ("        if not with_will:\n", "        if False:\n"),
    "no will is ever sent": ("if connection.will is not None", "if connection.will is connection"),
    "sessions never last": ("session.lasting = lasting", "session.lasting = False"),
    "a clean start keeps the session": ("        if clean:\n", "        if False:\n"),
    "a QoS 2 message comes again while it is held": (
        "            if packet_id in incoming:\n                return\n",
        "",
    ),
    "nothing waits for who is away": (
        "        session.queue.append(delivery)\n",
        "        session.queue += [delivery] * (name in self.connections)\n",
    ),
    "nothing comes again after a reconnect": (
        "            flight.waits = True\n",
        "            flight.waits = flight.received\n",
    ),
    "PUBREL does not come again": (
        "if flight.waits and (flight.received or",
        "if flight.waits and (not flight.received and",
    ),
    "an error in PUBREC does not end the exchange": ("and not refused:", "and True:"),
    "the window is wider": (
        "while session.queue and self.in_flight(name) < connection.window",
        "while session.queue and self.in_flight(name) <= connection.window",
    ),
    "every member of a group gets the message": (
        "        if len(members) == 1:\n            [(name, delivery)] = members.items()\n",
        "        for name, delivery in members.items():\n",
    ),
}


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    """For all runs of this file."""
    with serving() as broker:
        yield broker


@pytest.fixture
def changed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a reference with one rule changed in the place of the right one."""
    old, new = CHANGES[request.getfixturevalue("change")]
    assert SOURCE.count(old) == 1, "the reference has moved on"
    other = types.ModuleType("tests.model.other_reference")
    monkeypatch.setitem(sys.modules, other.__name__, other)
    text = SOURCE.replace(old, new)
    if new.startswith("        for name, delivery"):
        text = text.replace(
            "        else:\n            ready = self.ready",
            "        if False:\n            ready = self.ready",
        )
    exec(compile(text, other.__name__, "exec"), other.__dict__)  # noqa: S102 -- our own text
    for name in ("Delivery", "Flight", "Message", "Reference", "Subscription", "matches"):
        monkeypatch.setattr(world, name, getattr(other, name))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_rule_is_told_from_the_broker(one_broker: Broker, change: str) -> None:
    run = explore(one_broker.port, steps=STEPS, shrinks=False)

    assert run.difference, change
