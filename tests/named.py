"""Tests by name: whether a test that a list names exists, and which tests passed in a run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parent.parent


def site_fault(site: str, pattern: str) -> str | None:
    """Why `path::item` leads nowhere; in `pattern`, {} stands for the item."""
    path, _, item = site.partition("::")
    file = ROOT / path
    if not item or not file.is_file():
        return f"{site!r} names no file and item"
    if not re.search(pattern.format(re.escape(item)), file.read_text()):
        return f"{item} is not in {path}"
    return None


def fault_of_test(test: str) -> str | None:
    """Why `test`, a Python or Rust function as `path::name`, is none."""
    return site_fault(test, r"\bfn {}\(" if test.startswith("rust/") else r"\bdef {}\(")


class Outcomes:
    """A plugin for pytest: which tests ran, and which of them failed."""

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.failing: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a test that failed in any of its versions, or in its set-up, or was skipped."""
        test = report.nodeid.partition("[")[0]
        self.ran.add(test)
        if report.outcome != "passed":
            self.failing.add(test)

    def missing(self, tests: Iterable[str]) -> set[str]:
        """Tests of the list that did not run, for whatever reason: they show nothing."""
        return set(tests) - self.ran
