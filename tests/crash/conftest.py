"""A broker of its own for each test, over a folder that outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.process import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker that runs, over a folder of its own."""
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    yield server
    server.kill()
