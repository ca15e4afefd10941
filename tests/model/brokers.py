"""The broker that histories run against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import start
from tests.model.world import INFLIGHT_MAX

if TYPE_CHECKING:
    from mqttcore import Broker

EVERYTHING = ("#", "$x/#")


def serving(shards: int = 1) -> Broker:
    """A broker of this process, with one event loop so that a PINGRESP settles everything."""
    from mqttcore.config import Access, Listener

    access = Access(publish=EVERYTHING, subscribe=EVERYTHING)
    listener = Listener(address="127.0.0.1:0", anonymous=access)
    return start(shards=shards, inflight_max=INFLIGHT_MAX, listeners=(listener,))
