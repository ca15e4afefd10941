"""A broker of its own for each test, over a folder that outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.process import Life


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A broker that runs, over a folder of its own."""
    life = Life(data=tmp_path / "data")
    life.start()
    yield life
    life.kill()
