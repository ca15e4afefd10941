"""Damage to small places of a folder: what can be made anew is, and nothing is lost in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.damage import KINDS, Kind, broker, received, run, segments, young
from tests.crash.process import ServerProcess

SMALL = [kind for kind in KINDS if kind.base is young]


@pytest.mark.timeout(300)  # a disk that others write to syncs slowly
@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)
def test_damage_is_repaired_or_reported_and_nothing_else_is_lost(
    kind: Kind, tmp_path: Path
) -> None:
    [row] = run(tmp_path, [kind])

    assert row.faults == ()


def test_a_broker_that_may_lose_something_repairs_its_folder_and_starts(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    young(folder)
    segments(folder)[0].unlink()
    server: ServerProcess = broker(folder, "--accept-loss")

    server.start()

    server.kill()
    assert "the store was repaired" in server.log.read_text()
    assert received(folder) == 0
