"""Runs all cells and prints the table: attempts that got past a hook with a fault."""

from __future__ import annotations

import logging
import sys
import time

from tests.hooks_matrix.cells import ATTEMPT, ATTEMPTS, FAULTS, cells


def main() -> int:
    """Prints the table; 1 if anything was let through, or another plugin was affected."""
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    found: dict[tuple[str, str], int] = {}
    tried = 0
    for cell in cells():
        key = (cell.point, cell.fault)
        found[key] = found.get(key, 0) + cell.run()
        tried += ATTEMPTS
    print(f"{'let through':16}" + "".join(f"{fault:>12}" for fault in FAULTS))
    for point in ATTEMPT:
        print(f"{point:16}" + "".join(f"{found[point, fault]:>12}" for fault in FAULTS))
    total = sum(found.values())
    seconds = time.monotonic() - began
    print(f"{total} let through of {tried} attempts, 0 exits, in {seconds:.0f} s")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
