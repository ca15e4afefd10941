"""`python -m tests.spec`: runs the statements' tests and writes `docs/conformance.md`.

`python -m tests.spec sync` copies the markers into `statements.toml`, strikes closed gaps from
`known_gaps.txt` (it never adds one) and writes the table, without a run. Other arguments go to
pytest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from tests.spec import catalogue


class Outcomes:
    """Which tests ran, and which of them failed."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.failing: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a test that failed in any of its versions, or in its set-up, or was skipped."""
        test = report.nodeid.partition("[")[0]
        self.ran.add(test)
        if report.outcome != "passed":
            self.failing.add(test)

    def missing(self, statements: Iterable[catalogue.Statement]) -> set[str]:
        """Tests of the list that did not run, for whatever reason: they show nothing."""
        return {test for each in statements for test in each.wire_tests} - self.ran


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
    missing = outcomes.missing(statements)
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
