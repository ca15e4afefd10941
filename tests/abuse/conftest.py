"""Every row of the abuse table is tested beside clients that must not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Bystander


@pytest.fixture(autouse=True)
def untouched(bystander: Bystander) -> Bystander:
    """The bystander of each test here: it is asserted before and after."""
    return bystander


@pytest.fixture
def beside() -> Iterator[Callable[[int], Bystander]]:
    """Opens a bystander on a broker of the test's own, by its port."""
    opened: list[Bystander] = []

    def open_beside(port: int) -> Bystander:
        opened.append(Bystander(port))
        return opened[-1]

    yield open_beside
    for each in opened:
        each.close()
