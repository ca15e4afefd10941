"""`make bench-hooks`: prints what hooks cost, the goal, and whether it is met.

    python -m benches.hooks                    # all rows
    python -m benches.hooks --only revocation  # those with this word in their name
    python -m benches.hooks --json             # for programs
    python -m benches.hooks --quick            # small: whether it runs, not what it costs

CPU times are those of the broker's process, all threads together. Other rows are times of the
clock: measure them on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from benches.hooks.rows import QUICK, ROWS, Row, Scale


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the rows; 1 if a goal is missed."""
    options = parser().parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    found = []
    for row in (row for row in ROWS if options.only in row.name):
        figure = row.measure(scale)
        found.append({**told(row), "figure": figure, "met": row.is_met(figure)})
        if not options.json:
            print(line(row, figure), flush=True)
    if options.json:
        print(json.dumps(found))
    return int(not all(one["met"] for one in found))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m benches.hooks", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--only", default="", metavar="WORD", help="rows with WORD in their name")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--quick", action="store_true", help="measure little")
    return made


def told(row: Row) -> dict[str, object]:
    """A row for programs."""
    return {"name": row.name, "unit": row.unit, "goal": row.goal, "at_least": row.at_least}


def line(row: Row, figure: float) -> str:
    """A row for people."""
    sign = ">=" if row.at_least else "<="
    met = "met" if row.is_met(figure) else "NOT MET"
    return f"{row.name:36}{figure:12.3f} {row.unit:4} goal {sign} {row.goal:<8g} {met}"


if __name__ == "__main__":
    sys.exit(main())
