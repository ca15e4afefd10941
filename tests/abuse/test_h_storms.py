"""Abuse tables E and H: many requests at once, and what others notice of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests import wire as mqtt
from tests.abuse.beside import BesideOf
from tests.eventually import eventually
from tests.soak.run import resident_bytes
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def settle(broker: Broker, key: str, at_most: int) -> None:
    """Waits until a counter has come down."""
    eventually(lambda: broker.stats()[key] <= at_most, told=broker.stats)


def test_e16_a_client_that_asks_for_everything_again_and_again(
    fresh_broker: Broker, client: Open, beside: BesideOf
) -> None:
    port, other = fresh_broker.port, beside(fresh_broker.port)
    one = client(port=port)
    for number in range(1_000):
        one.send(mqtt.publish(f"e16/{number}", b"x" * 4_000, retain=True))
    one.ping()
    before = resident_bytes(os.getpid())

    greedy = client(port=port)
    greedy.socket.setblocking(False)
    for _ in range(200):
        # 10,000 replays of 4 MB each, of which nothing is read
        try:
            greedy.socket.send(mqtt.subscribe("e16/#") * 50)
        except BlockingIOError:
            break
    for _ in range(20):
        other.check()

    assert resident_bytes(os.getpid()) - before < 50_000_000
    greedy.reset()
    settle(fresh_broker, "clients_connected", 3)
    assert fresh_broker.stats()["messages_sent"] < 200_000


def test_h06_a_storm_of_connections_leaves_nothing_behind(
    fresh_broker: Broker, beside: BesideOf
) -> None:
    port, other = fresh_broker.port, beside(fresh_broker.port)
    before = len(list(Path("/proc/self/fd").iterdir()))
    hello = mqtt.connect(unique("c"), version=4)

    for _ in range(20):
        storm = [Wire(port, version=4) for _ in range(40)]
        for place, each in enumerate(storm):
            each.send(hello[: place % len(hello)])
            (each.close if place % 2 else each.reset)()
        other.check()

    settle(fresh_broker, "clients_connected", 2)
    assert fresh_broker.stats()["connections_accepted"] >= 800
    eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 2)


def test_h11_a_list_of_all_sessions_holds_up_nobody(
    fresh_broker: Broker, client: Open, beside: BesideOf
) -> None:
    port, other = fresh_broker.port, beside(fresh_broker.port)
    for number in range(500):
        one = client(f"h11-{number}", version=4, clean=False, port=port)
        one.subscribe(*(f"h11/{number}/{filter_}" for filter_ in range(10)))
        one.close()
    listed: list[int] = []

    def listing() -> None:
        while len(listed) < 20:
            listed.append(len(fresh_broker.clients()))

    admin = threading.Thread(target=listing)
    admin.start()
    trips = 0
    while admin.is_alive():
        other.check()
        trips += 1
    admin.join()

    assert set(listed) == {502}
    assert trips > 0
