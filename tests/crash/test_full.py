"""The run on a full disk in small, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import full
from tests.crash.small_disk import SmallDisk


@pytest.mark.parametrize("may_mount", [True, False], ids=["tmpfs", "shim"])
def test_a_full_disk_costs_nothing_that_was_acknowledged(tmp_path: Path, may_mount: bool) -> None:
    outcome = full.run(tmp_path, cycles=2, seed=1, may_mount=may_mount)

    assert outcome.faults == []
    assert outcome.lines()[-1] == (
        "2 cycles: 0 lost, 0 doubled, 0 reordered, 0 sessions lost, 0 unexplained"
    )
    assert outcome.ledger.count(1) > (0, 0)
    # Some were refused, and nobody got them.
    assert outcome.ledger.unacknowledged() >= 4


@pytest.mark.parametrize("may_mount", [True, False], ids=["tmpfs", "shim"])
def test_a_small_disk_is_one(tmp_path: Path, may_mount: bool) -> None:
    with SmallDisk(tmp_path, 8 << 20, may_mount=may_mount) as disk:
        before = disk.free_bytes()
        disk.fill(leave_bytes=1 << 20)
        assert disk.free_bytes() == 1 << 20
        disk.empty()

        assert before == disk.free_bytes()
        assert 7 << 20 <= before <= 8 << 20
