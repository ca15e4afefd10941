"""S9: how many random kills the copies to Delta and to a subscriber survived."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benches.spark.goals import Measured, Row
from tests.spark.crash import LAST_RUN, commit


def kills(count: int, known: pathlib.Path) -> Iterator[Measured]:
    """The last `make spark-crash`, if it had so many kills at this commit; else a new one."""
    found = read(known / LAST_RUN)
    if found["commit"] != commit() or found["kills"] < count:
        run = [sys.executable, "-m", "tests.spark.crash", "--kills", str(count)]
        subprocess.run(run, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 -- our own command
        found = read(known / LAST_RUN)
    whole = found["lost"] == found["doubled"] == 0
    yield Measured(
        row=Row.S9,
        value=found["kills"] if whole else 0,
        figures=(
            f"{found['kills']} kills: {found['lost']} lost, {found['doubled']} doubled of"
            f" {found['rows']} rows, {found['seconds']:.0f} s"
        ),
    )


def read(path: pathlib.Path) -> dict[str, Any]:
    """What a run left; one of no kills if there was none."""
    if not path.exists():
        return {"commit": "", "kills": 0, "lost": 0, "doubled": 0, "rows": 0, "seconds": 0.0}
    found: dict[str, Any] = json.loads(path.read_text())
    return found
