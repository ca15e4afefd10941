"""Waits for a condition, with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(
    holds: Callable[[], bool], *, within_s: float = 30, told: Callable[[], object] = str
) -> None:
    """Waits until `holds` answers yes; if it never does, fails with what `told` returns."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, told() or "it never happened"
        time.sleep(0.001)
