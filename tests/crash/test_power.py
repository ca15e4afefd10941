"""Power cuts and failing disks under the real process, and proof that the disk of these is one."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.platter import SECTOR, SIZE, WRITE, Body, Entry
from tests.crash.power import PoweredLife
from tests.crash.process import NotUpError
from tests.crash.run import Crash, Outcome, Plan
from tests.crash.test_acknowledged import arrive, leave_subscribed, messages
from tests.wire import Wire, WireError

SMALL = Plan(cycles=3, pairs=4, messages_per_s=500, life_s=(0.1, 0.4))
TINY = Plan(cycles=1, pairs=2, messages_per_s=400, life_s=(0.5, 0.6), drain_s=1.0, stop_share=0)
STORE_FAILED = 74


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PoweredLife]:
    """A broker that runs, on a disk of its own."""
    server = PoweredLife(tmp_path / "disk")
    server.start()
    yield server
    server.is_cut = False
    server.kill()


def run(plan: Plan, server: PoweredLife) -> Outcome:
    """Runs of a broker, each cut short."""

    async def run() -> Outcome:
        async with asyncio.timeout(240):
            return await Crash(plan, server).run()

    return asyncio.run(run())


def test_nothing_acknowledged_is_lost_when_the_power_goes(tmp_path: Path) -> None:
    server = PoweredLife(tmp_path / "disk", early_share=0.3)
    server.control["short_one_in"] = 20
    server.control["sync_us"] = 2_000

    outcome = run(SMALL, server)

    assert outcome.faults == [], outcome.lines()
    assert outcome.lines()[-1] == (
        "3 cycles: 0 lost, 0 doubled, 0 reordered, 0 sessions lost, 0 unexplained"
    )
    assert server.control["syncs"] > SMALL.cycles


def lie(server: PoweredLife) -> Outcome:
    """A run whose first run is spent on a disk that only says that it syncs."""
    crash = Crash(TINY, server)

    async def run() -> Outcome:
        try:
            await crash.first_life()
            server.control["lies"] = 1
            await crash.one_life()
            server.control["lies"] = 0
            await crash.last_life()
        finally:
            await crash.end()
        return crash.outcome

    return asyncio.run(run())


def test_a_disk_that_forgets_what_it_synced_is_found_out(tmp_path: Path) -> None:
    server = PoweredLife(tmp_path / "disk")
    server.forgets_all = True

    outcome = lie(server)

    assert outcome.counts[0] > 0, outcome.lines()
    assert outcome.faults


def test_a_disk_that_forgets_some_of_what_it_synced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotUpError, match="is damaged at"):
        lie(PoweredLife(tmp_path / "disk"))


def test_the_durability_os_ends_with_the_power(tmp_path: Path) -> None:
    config = tmp_path / "os.toml"
    config.write_text('durability = "os"\n[[listeners]]\nanonymous = true\n')

    outcome = run(TINY, PoweredLife(tmp_path / "disk", options=("--config", str(config))))

    lost, _, _, sessions, _ = outcome.counts
    assert lost + sessions > 0, outcome.lines()


def publish_for_ever(server: PoweredLife, acknowledged: list[bytes]) -> None:
    """One message after the other, until the broker ends."""
    with Wire(server.port) as writer:
        writer.connect("writer")
        for number in itertools.count():
            writer.publish("t", b"%d" % number, qos=1)
            acknowledged.append(b"%d" % number)


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_sync_that_fails_ends_the_broker_and_nothing_false_was_said(
    server: PoweredLife, calls: int
) -> None:
    leave_subscribed(server, ("t", 1))
    acknowledged: list[bytes] = []
    server.control["fail_sync"] = calls

    with pytest.raises(WireError):
        publish_for_ever(server, acknowledged)
    status = server.wait()

    assert status == STORE_FAILED
    assert server.control["fail_sync"] == 0
    server.start()
    with arrive(server, "reader", present=True) as reader:
        found = [payload for _, payload, _ in messages(reader)]
    assert found[: len(acknowledged)] == acknowledged
    # What was not acknowledged may be there: the next of its writer, and no other.
    assert found[len(acknowledged) :] in ([], [b"%d" % len(acknowledged)])


def test_what_a_failed_sync_left_in_the_cache_is_written_anew(server: PoweredLife) -> None:
    server.is_cut = False
    leave_subscribed(server, ("t", 1))
    server.crash()
    with Wire(server.port) as writer:
        writer.connect("writer")
        # With this everything from before is synced, too.
        writer.publish("t", b"sure", qos=1)
        server.control["fail_sync"] = 1
        writer.send(mqtt.publish("t", b"unsure", qos=1, packet_id=1))
        assert server.wait() == STORE_FAILED

    # The next broker reads it back out of the cache, and acknowledges it again.
    server.start()
    server.is_cut = server.forgets_all = True
    server.crash()

    with arrive(server, "reader", present=True) as reader:
        assert messages(reader) == [("t", b"sure", 1), ("t", b"unsure", 1)]


def test_a_broker_that_cannot_sync_does_not_start(tmp_path: Path) -> None:
    server = PoweredLife(tmp_path / "disk")
    server.control["fail_sync"] = 1

    with pytest.raises(NotUpError, match="exit status 1"):
        server.start()

    server.start()
    server.kill()


def test_the_journal_of_the_shim_knows_every_change(tmp_path: Path) -> None:
    server = PoweredLife(tmp_path / "disk")
    server.control["short_one_in"] = 7
    server.is_cut = False

    outcome = run(SMALL, server)

    assert outcome.faults == [], outcome.lines()
    assert server.control["writes"] > 0
    assert server.platter.differences() == []


def body(path: Path, *changes: Entry) -> Body:
    """A file whose safe content is 4 sectors of a dot, and what came since."""
    path.write_bytes(b"." * SECTOR * 4)
    return Body(path, list(changes))


def test_a_cut_mixes_old_and_new_sectors(tmp_path: Path) -> None:
    write = Entry(0, WRITE, 1, SECTOR // 2, b"x" * SECTOR * 2)
    found = set()
    for seed in range(200):
        one = body(tmp_path / "file", write, Entry(1, SIZE, 1, SECTOR * 5, b""))
        one.lose(one.pending, random.Random(seed))  # noqa: S311 -- a seed that can be repeated
        content = one.path.read_bytes()
        found.add((content[SECTOR - 1 : SECTOR], content[SECTOR * 2 - 1 : SECTOR * 2]))
        assert len(content) in (SECTOR * 4, SECTOR * 5)
        assert content[: SECTOR // 2] == b"." * (SECTOR // 2)
        assert content[SECTOR * 5 // 2 : SECTOR * 4].strip(b".") == b""

    assert found == {(b".", b"."), (b".", b"x"), (b"x", b"."), (b"x", b"x")}


def test_what_was_synced_is_there_and_a_later_write_is_not_covered(tmp_path: Path) -> None:
    early = Entry(0, WRITE, 1, 0, b"a" * SECTOR)
    late = Entry(100, WRITE, 1, SECTOR, b"b" * SECTOR)
    one = body(tmp_path / "file", early, late)

    one.sync(100)

    assert one.path.read_bytes() == b"a" * SECTOR + b"." * SECTOR * 3
    assert one.pending == [late]
