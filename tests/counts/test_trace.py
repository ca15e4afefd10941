"""What messages of other clients take while one client is traced: instructions, not time.

`make trace-test` sets the number of clients that are connected meanwhile: 10,000.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import pytest
from mqttcore import _core

from tests import wire
from tests.counts.test_instructions import (
    SETTINGS,
    WHY_NOT,
    Counted,
    connect,
    counted_broker,
)
from tests.operations.api import Api
from tests.wire import Wire

VARIABLE: Final = "MQTTCORE_TRACED_AMONG"
AMONG: Final = int(os.environ.get(VARIABLE, "0"))
BATCH: Final = 256
ROUNDS: Final = 24
ATTEMPTS: Final = 3
"""The middle one counts."""
MOST: Final = 1.01
"""Instructions of a message of another client, beside those without a trace."""


class Pair:
    """A publisher and its subscriber."""

    def __init__(self, broker: Counted, stack: ExitStack, name: str, *, batch: int = BATCH) -> None:
        self._broker, self._name, self._batch = broker, name, batch
        self._publisher = connect(broker, stack, f"{name}-publisher")
        self._subscriber: Wire = connect(broker, stack, f"{name}-subscriber")
        self._subscriber.send(wire.subscribe(name, version=4))
        self._subscriber.receive()

    def publish(self, rounds: int) -> None:
        """Sends batches; each is received before the next one."""
        batch = [wire.publish(self._name, bytes(64), version=4)] * self._batch
        for _ in range(rounds):
            self._publisher.send(*batch)
            for _ in batch:
                self._subscriber.receive()

    def instructions(self, rounds: int = ROUNDS) -> float:
        """Instructions of the shard for a message, without those of its timers."""
        counts = []
        for _ in range(ATTEMPTS):
            idle, idle_s = of_shard(self._broker, lambda: time.sleep(1))
            busy, busy_s = of_shard(self._broker, lambda: self.publish(rounds))
            counts.append((busy - idle / idle_s * busy_s) / (rounds * self._batch))
        return sorted(counts)[ATTEMPTS // 2]


def of_shard(broker: Counted, work: Callable[[], None]) -> tuple[int, float]:
    """Instructions of the shard meanwhile, and the seconds."""
    start, before = time.monotonic(), broker.of_threads()
    work()
    after = broker.of_threads()
    # it does all of the work; threads do not come and go
    shard = max(two - one for one, two in zip(before, after, strict=True))
    return shard, time.monotonic() - start


@pytest.mark.timeout(900)
@pytest.mark.skipif(VARIABLE not in os.environ, reason="a minute: `make trace-test` runs it")
@pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
@pytest.mark.skipif(WHY_NOT is not None, reason=f"instructions a message: {WHY_NOT}")
def test_messages_of_others_take_the_same_instructions_while_one_client_is_traced(
    tmp_path: pathlib.Path,
) -> None:
    more = f"""
data = "{tmp_path / "data"}"
[http]
[limits]
connections = 20000
address_connections = 20000
[[listeners]]"""
    settings = SETTINGS.replace("[[listeners]]", more)
    with counted_broker(tmp_path, settings) as broker, ExitStack() as stack:
        try:
            broker.of_threads()
        except subprocess.SubprocessError as error:
            pytest.skip(f"callgrind_control cannot read the counters, which takes ptrace: {error}")
        for number in range(AMONG):
            connect(broker, stack, f"idle-{number}")
        others, traced = Pair(broker, stack, "others"), Pair(broker, stack, "traced")
        for pair in (others, traced):
            pair.publish(4)
        api = Api(tmp_path / "data")
        before, alone = others.instructions(), traced.instructions()

        status, trace = api.ask(
            "POST", "/traces", {"where": {"client_id": "traced-*"}, "payload": "all"}
        )
        assert status == 201, trace
        on, recorded = others.instructions(), traced.instructions()

        found = api.ask("GET", f"/traces/{trace['id']}")[1]
        assert api.ask("DELETE", f"/traces/{trace['id']}")[0] == 204
        off = min(before, others.instructions())
    report = (
        f"a message takes {off:,.0f} instructions, {on:,.0f} while another of {AMONG + 4} clients"
        f" is traced ({on / off:.4f}); one of the traced client {alone:,.0f}, then {recorded:,.0f}"
    )
    print(report)
    assert on <= MOST * off, report
    assert recorded > MOST * alone, report
    assert found["last"] >= ATTEMPTS * ROUNDS * BATCH, found
