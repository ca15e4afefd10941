"""Every row of the abuse table is tested beside clients that must not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.config import Listener

from tests.abuse.beside import Beside, BesideOf, unharmed
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from mqttcore import Broker
    from mqttcore.plugin import Plugin

OPEN = Listener(address="127.0.0.1:0", anonymous=True)


@pytest.fixture(autouse=True)
def bystander(broker: RunningBroker) -> Iterator[Beside]:
    """The bystander on the shared broker."""
    with Beside(broker.port) as one:
        yield one


@pytest.fixture
def bystanders() -> dict[int, Beside]:
    """Those of this test's own brokers, by the port of the broker."""
    return {}


@pytest.fixture
def beside(bystanders: dict[int, Beside]) -> BesideOf:
    """The bystander of one of this test's own brokers: `beside(broker.port).check()`."""
    return bystanders.__getitem__


@pytest.fixture
def start_broker(
    start_broker: Callable[..., Broker], bystanders: dict[int, Beside]
) -> Iterator[Callable[..., Broker]]:
    """Starts brokers of this test's own: each has a bystander, on a listener behind all others."""
    with ExitStack() as stack:

        def start(
            *plugins: Plugin,
            listeners: tuple[Listener, ...] = (OPEN,),
            **changes: Any,  # noqa: ANN401 -- fields of two dataclasses
        ) -> Broker:
            running = start_broker(*plugins, listeners=(*listeners, OPEN), **changes)
            one = stack.enter_context(unharmed(running, running.addresses[-1][1]))
            bystanders[running.port] = one
            return running

        yield start
