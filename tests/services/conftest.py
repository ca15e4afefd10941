"""Servers that `make services-up` has started; without one its tests are skipped by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.services.state import Running, running


@pytest.fixture(scope="session")
def service() -> Callable[[str], Running]:
    """A server by its name."""

    def find(name: str) -> Running:
        found = running().get(name)
        if found is None:
            pytest.skip(f"{name} does not run: make services-up")
        return found

    return find
