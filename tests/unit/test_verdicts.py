"""The closed list of verdicts of explanations is the same in code and pages; each has a test."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
VERDICTS = "rust/broker/src/operations/explain/verdict.rs"
EXPLAIN = "rust/http/tests/suite/explain.rs"


def rows(page: str, head: str) -> Iterator[tuple[str, str]]:
    """First and second cell of the rows of the table whose head begins so."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        first, second = line.strip("| ").split(" | ", maxsplit=1)
        yield first, second


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def of_code() -> list[str]:
    text = (ROOT / VERDICTS).read_text(encoding="utf-8")
    return re.findall(r'Self::\w+ => "([^"]+)"', text)


def has_test(name: str, file: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    test = rf"    def {name}\(" if file.endswith(".py") else rf"#\[test\]\nfn {name}\("
    return re.search(test, text) is not None


def test_the_pages_have_the_verdicts_of_the_code() -> None:
    found = of_code()
    assert len(found) == len(set(found)) > 20

    explained = [*rows("operations.md", "verdict of a step")]
    explained += rows("operations.md", "verdict for a receiver")
    described = {name for first, _ in explained for name in names(first)}
    proven = [name for first, _ in rows("proofs.md", "verdict") for name in names(first)]

    assert described == set(found)
    assert proven == found


def test_each_verdict_has_a_test() -> None:
    for first, test in rows("proofs.md", "verdict"):
        (verdict,) = names(first)
        name, *places = names(test)
        assert has_test(name, places[0] if places else EXPLAIN), f"{verdict}: {name} is gone"
