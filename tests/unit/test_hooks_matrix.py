"""Each hook with each fault lets nothing through; `make hooks-matrix` prints the table."""

import pytest

from tests.hooks_matrix.cells import Cell, cells


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.title)
def test_a_hook_with_a_fault_lets_nothing_through(cell: Cell) -> None:
    assert cell.run() == 0
