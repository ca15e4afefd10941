"""The crash run in small, and proof that it notices what a worse broker would do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.process import ServerProcess
from tests.crash.run import Crash, Outcome, Plan
from tests.soak.ledger import Ledger, Message
from tests.soak.test_soak import Losing, Repeating, Swapping

SMALL = Plan(cycles=6, pairs=4, messages_per_s=500, life_s=(0.1, 0.5))
TINY = Plan(cycles=1, pairs=2, messages_per_s=400, life_s=(0.5, 0.6), drain_s=1.0)


def crash(plan: Plan, server: ServerProcess, ledger: Ledger | None = None) -> Outcome:
    """One run."""

    async def run() -> Outcome:
        async with asyncio.timeout(240):
            return await Crash(plan, server, ledger).run()

    return asyncio.run(run())


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    outcome = crash(SMALL, ServerProcess(data=tmp_path / "data"))

    assert outcome.faults == [], outcome.lines()
    assert outcome.lines()[-1] == (
        "6 cycles: 0 lost, 0 doubled, 0 reordered, 0 sessions lost, 0 unexplained"
    )


def test_nothing_acknowledged_is_lost_when_the_system_has_it(tmp_path: Path) -> None:
    config = tmp_path / "os.toml"
    config.write_text('durability = "os"\n[[listeners]]\nanonymous = true\n')

    outcome = crash(SMALL, ServerProcess(data=tmp_path / "data", options=("--config", str(config))))

    assert outcome.faults == [], outcome.lines()


def test_a_broker_without_memory_is_found_out(tmp_path: Path) -> None:
    outcome = crash(TINY, ServerProcess(data=tmp_path / "data", options=("--data", "")))

    lost, _, _, sessions, unexplained = outcome.counts
    assert sessions > 0
    assert lost > 0
    assert unexplained == lost


@pytest.mark.parametrize(
    ("ledger", "place"), [(Losing, 0), (Repeating, 1), (Swapping, 2)], ids=lambda it: str(it)
)
def test_a_broker_that_loses_doubles_or_reorders_is_found_out(
    tmp_path: Path, ledger: type[Ledger], place: int
) -> None:
    outcome = crash(TINY, ServerProcess(data=tmp_path / "data"), ledger())

    assert outcome.counts[place] > 0, outcome.lines()
    assert outcome.faults


@pytest.mark.parametrize("is_held", [True, False])
def test_a_subscription_that_is_not_as_confirmed_is_found_out(
    tmp_path: Path, is_held: bool
) -> None:
    run = Crash(TINY, ServerProcess(data=tmp_path / "data"))
    changer = run.changers[0]

    async def judge() -> None:
        try:
            await run.first_life()
            confirmed, *rest = changer.topics[: 1 if is_held else 2]
            for topic in (confirmed, *rest):
                changer.change(topic)
                await run.until(lambda: changer.asked is None, 60.0)
            if is_held:
                changer.held.add(changer.topics[1])
            else:  # the message to what is still held comes after the one that is too many
                changer.held.remove(confirmed)
            await run.try_subscriptions()
        finally:
            await run.end()

    asyncio.run(judge())

    assert run.outcome.subscriptions_lost == 1
    assert run.outcome.counts[3] == 1


def test_a_message_of_a_shared_subscription_that_is_lost_is_found_out(tmp_path: Path) -> None:
    run = Crash(TINY, ServerProcess(data=tmp_path / "data"))
    pool = run.outcome.pool
    first, second = pool.send(0, 2), pool.send(0, 2)
    for message in (first, second):
        pool.acknowledge(message)
    pool.arrive(second)

    assert run.outcome.counts[0] == 1
    pool.arrive(first)
    assert run.outcome.counts == (0, 0, 0, 0, 0)
    pool.arrive(first)
    assert run.outcome.counts[1] == 1


def test_a_retained_message_that_is_too_old_is_found_out(tmp_path: Path) -> None:
    server = ServerProcess(data=tmp_path / "data")
    run = Crash(TINY, server)
    keeper = run.keepers[0]
    for _ in range(2):
        keeper.ledger.acknowledge(keeper.ledger.send(keeper.number, 1))
    server.start()

    try:
        assert run.count_stale() == 1
        assert keeper.acknowledged() == 1
        assert Message(keeper.number, 1, 1) in keeper.ledger.lost()
    finally:
        server.kill()
