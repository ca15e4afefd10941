"""The rows of `docs/abuse.md` and their tests: `python -m tests.abuse.rows` checks the list.

A test of this folder belongs to the row in its name (`test_d16_...`). `rows.toml` names the tests
of a row that are elsewhere, in Rust for the most part, and says what a row waits for that is not
tested or not wholly. Part of `make check`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.named import ROOT, fault_of_test

FOLDER: Final = Path(__file__).parent
ROWS: Final = FOLDER / "rows.toml"
PAGE: Final = ROOT / "docs/abuse.md"
KEYS: Final = {"tests", "waiting"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: an attack and the answer to it."""

    id: str
    tests: tuple[str, ...]
    waiting: str
    """What is missing, in words; empty for a row whose tests assert the whole answer."""

    @property
    def python_tests(self) -> list[str]:
        """Those that pytest runs."""
        return [test for test in self.tests if test.startswith("tests/")]

    @property
    def rust_tests(self) -> list[str]:
        """Those that cargo runs."""
        return [test for test in self.tests if test.startswith("rust/")]


def ids() -> list[str]:
    """The rows of the page, in its order."""
    return re.findall(r"^\| ([A-K]\d\d) \|", PAGE.read_text(), re.MULTILINE)


def named_after_rows(folder: Path = FOLDER) -> dict[str, list[str]]:
    """The tests in `folder` by the row in their names."""
    found = defaultdict(list)
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if row := re.match(r"test_([a-k]\d\d)_", node.name):
                found[row[1].upper()].append(f"tests/abuse/{path.name}::{node.name}")
    return found


def read_rows() -> list[Row]:
    """All rows of the page with what is known of them."""
    named, listed = named_after_rows(), tomllib.loads(ROWS.read_text())
    return [
        Row(
            id=each,
            tests=(*named.get(each, ()), *listed.get(each, {}).get("tests", ())),
            waiting=listed.get(each, {}).get("waiting", ""),
        )
        for each in ids()
    ]


def unknown(keys: Iterable[str]) -> list[str]:
    """Those of `keys` that are no rows of the page."""
    return sorted(set(keys) - set(ids()))


def faults() -> list[str]:
    """Everything in which page, list and tests disagree."""
    listed = tomllib.loads(ROWS.read_text())
    found = [f"{each}: rows.toml has it, docs/abuse.md has not" for each in unknown(listed)]
    found += [
        f"{each}: a test is named after it: no such row" for each in unknown(named_after_rows())
    ]
    for key, entry in listed.items():
        found += [f"{key}: {name} is no key of a row" for name in sorted(entry.keys() - KEYS)]
    for row in read_rows():
        found += [f"{row.id}: {fault}" for test in row.tests if (fault := fault_of_test(test))]
        if not row.tests and not row.waiting:
            found.append(f"{row.id}: has no test, and rows.toml does not say what it waits for")
    return found


def main() -> int:
    """Prints what is wrong; 1 if anything is."""
    found = faults()
    sys.stderr.writelines(f"tests/abuse: {fault}\n" for fault in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
