"""`make abuse`: runs the tests of the rows of `docs/abuse.md`, and says which rows have none yet.

`make abuse ARGS="D16 H05"` runs these rows only. The tests in Rust are built and run by cargo.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

import pytest

from tests.abuse.rows import Row, faults, read_rows, unknown
from tests.named import ROOT, Outcomes


def run_python(tests: Sequence[str]) -> set[str]:
    """Runs tests under pytest; returns those that passed."""
    outcomes = Outcomes()
    if tests:
        pytest.main(["-q", *tests], plugins=[outcomes])
    return outcomes.ran - outcomes.failing


def function(test: str) -> str:
    """The name of the function of a test."""
    return test.rpartition("::")[2]


def passed_by_cargo(output: str) -> set[str]:
    """The functions that passed wherever they ran, from what the test programs print."""
    results = re.findall(r"^test (?:\w+::)*(\w+) \.\.\. (\w+)", output, re.MULTILINE)
    return {name for name, _ in results} - {name for name, result in results if result != "ok"}


def run_rust(tests: Sequence[str]) -> set[str]:
    """Runs tests under cargo; returns those that passed."""
    if not tests:
        return set()
    names = sorted({function(test) for test in tests})
    command = [shutil.which("cargo") or "cargo", "test", "--workspace", "--tests", "--no-fail-fast"]
    done = subprocess.run(  # noqa: S603 - cargo, with names of tests
        [*command, "--", *names], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    passed = passed_by_cargo(done.stdout)
    if done.returncode:
        print(done.stdout)
    return {test for test in tests if function(test) in passed}


def report(rows: Sequence[Row], passed: Iterable[str]) -> int:
    """Prints what became of each row that is not simply tested, and the count; 1 on a failure."""
    failing = {row.id: sorted(set(row.tests).difference(passed)) for row in rows}
    failing = {key: tests for key, tests in failing.items() if tests}
    waiting = [row for row in rows if row.waiting and row.id not in failing]
    for row in waiting:
        print(f"{row.id} waits for {row.waiting}{'' if row.tests else ' (no test yet)'}")
    for key, tests in failing.items():
        print(f"{key} FAILS: {', '.join(tests)}")
    tested = len(rows) - len(waiting) - len(failing)
    print(f"{len(rows)} rows: tested {tested}, waiting {len(waiting)}, failing {len(failing)}")
    return int(bool(failing))


def main(wanted: Sequence[str]) -> int:
    """Runs the rows that are wanted, or all."""
    found = [*faults(), *(f"{each}: no such row" for each in unknown(wanted))]
    if found:
        print(*found, sep="\n", file=sys.stderr)
        return 2
    rows = [row for row in read_rows() if not wanted or row.id in wanted]
    passed = run_python(sorted({test for row in rows for test in row.python_tests}))
    passed |= run_rust(sorted({test for row in rows for test in row.rust_tests}))
    return report(rows, passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
