"""Every row of the abuse table is tested beside clients that must not notice."""

from __future__ import annotations

import pytest

from tests.conftest import Bystander


@pytest.fixture(autouse=True)
def untouched(bystander: Bystander) -> Bystander:
    """The bystander of each test here: it is asserted before and after."""
    return bystander
