"""Abuse tables C and H: what one address may take of the tables that all clients share.

The attackers have addresses of their own, 127.0.0.2 and on, which these brokers do not exempt.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Bystander
from tests.wire import PATIENCE_S, ClosedByPeerError, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Start = Callable[..., "Broker"]
Beside = Callable[[int], Bystander]
From = Callable[[str, int], Wire]

ATTACKER, HONEST = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def dial() -> Iterator[From]:
    """Opens a connection from an address to a port."""
    with ExitStack() as stack:

        def dial_from(address: str, port: int) -> Wire:
            opened = socket.create_connection(
                ("127.0.0.1", port), PATIENCE_S, source_address=(address, 0)
            )
            return stack.enter_context(Wire(port, using=opened))

        yield dial_from


def is_let_in(one: Wire) -> bool:
    """Whether the broker answers CONNECT; it closes connections above a limit instead."""
    try:
        return one.connect(unique("c")).reason == 0
    except (ClosedByPeerError, ConnectionError):
        return False


def wait_for(broker: Broker, key: str, at_least: int) -> None:
    """Waits until a counter is there."""
    until = time.monotonic() + PATIENCE_S
    while broker.stats()[key] < at_least:
        assert time.monotonic() < until, broker.stats()
        time.sleep(0.01)


def test_c15_half_open_connections_of_one_address_keep_nobody_out(
    start_broker: Start, dial: From, beside: Beside
) -> None:
    broker = start_broker(
        exempt_addresses=(), pending_connections=64, address_connects_per_second=0
    )
    other = beside(broker.port)

    half_open = [dial(ATTACKER, broker.port) for _ in range(200)]
    wait_for(broker, "connections_refused_address_pending", 200 - 48)

    # a quarter of the table is left to others
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(16))
    other.check()
    half_open[0].close()
    assert broker.stats()["connections_refused"] == 200 - 48


def test_c15_connected_clients_of_one_address_keep_nobody_out(
    start_broker: Start, dial: From, beside: Beside
) -> None:
    broker = start_broker(exempt_addresses=(), connections=20, address_connections=1_000)
    other = beside(broker.port)

    clients = [dial(ATTACKER, broker.port) for _ in range(30)]

    assert [is_let_in(each) for each in clients] == [True] * 15 + [False] * 15
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(3))
    assert broker.stats()["connections_refused_address"] == 15
    other.check()


def test_h06_a_storm_of_one_address_is_limited_and_delays_nobody(
    start_broker: Start, dial: From, beside: Beside
) -> None:
    broker = start_broker(exempt_addresses=(), connects_per_second=40)
    other = beside(broker.port)
    start = time.monotonic()

    storm = [dial(ATTACKER, broker.port) for _ in range(400)]
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(20))
    let_in = [is_let_in(each) for each in storm]

    # 20 a second, of which those of five seconds come at once
    assert 100 <= sum(let_in) <= 100 + 20 * (time.monotonic() - start) + 1
    stats = broker.stats()
    assert stats["connections_refused_address_rate"] == let_in.count(False)
    assert stats["connections_refused_listener_rate"] == 0
    other.check()


def test_h06_a_storm_of_many_addresses_ends_at_the_rate_of_the_listener(
    start_broker: Start, dial: From, beside: Beside
) -> None:
    broker = start_broker(exempt_addresses=("127.0.0.1", "127.0.0.3"), connects_per_second=2)
    other = beside(broker.port)
    start = time.monotonic()

    storm = [is_let_in(dial(f"127.0.1.{host}", broker.port)) for host in range(1, 101)]

    assert 10 <= sum(storm) <= 10 + 2 * (time.monotonic() - start) + 1
    assert broker.stats()["connections_refused_listener_rate"] == storm.count(False)
    assert is_let_in(dial(HONEST, broker.port))
    other.check()
