"""`python -m tests.spec`: runs the statements' tests and writes `docs/conformance.md`.

`python -m tests.spec sync` copies the markers into `statements.toml`, strikes closed gaps from
`known_gaps.txt` (it never adds one) and writes the table, without a run. Other arguments go to
pytest.
"""

from __future__ import annotations

import sys

import pytest

from tests.named import Outcomes
from tests.spec import catalogue


def synchronise() -> int:
    """Makes the list, the gaps and the table follow the markers; 1 when a fault is left."""
    statements = catalogue.synchronised(catalogue.read_statements(), catalogue.marked_tests())
    catalogue.STATEMENTS.write_text(catalogue.written(statements))
    still_open = set(catalogue.gaps(statements))
    known = [key for key in catalogue.read_gaps() if key in still_open]
    catalogue.KNOWN_GAPS.write_text(catalogue.written_gaps(known))
    catalogue.TABLE.write_text(catalogue.table(statements))
    return report_faults()


def report_faults() -> int:
    """Prints in what the list and the rest disagree."""
    found = catalogue.faults()
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


def run(arguments: list[str]) -> int:
    """Runs everything, writes the table, and says in the last line how it went."""
    outcomes = Outcomes()
    code = int(pytest.main(["-q", "tests/spec", *arguments], plugins=[outcomes]))
    statements = catalogue.read_statements()
    missing = outcomes.missing(test for each in statements for test in each.wire_tests)
    failing = frozenset(outcomes.failing | missing)
    if missing:
        print(f"{len(missing)} tests did not run: what they hold counts as failing, and the page")
        print("stays as it is")
    else:
        catalogue.TABLE.write_text(catalogue.table(statements, failing))
    code = report_faults() or code or int(bool(missing))
    print(catalogue.summary(statements, failing), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(synchronise() if sys.argv[1:] == ["sync"] else run(sys.argv[1:]))
