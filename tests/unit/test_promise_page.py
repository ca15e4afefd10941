"""`docs/promise.md` names the test of each sentence: there is none that is not."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_promise_names_is_there() -> None:
    named = set(re.findall(r"`((?:test|an?)_\w+)`", (ROOT / "docs/promise.md").read_text()))
    python = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    rust = "".join(path.read_text() for path in (ROOT / "rust/broker/tests/suite").glob("*.rs"))

    known = {*re.findall(r"def (test_\w+)\(", python), *re.findall(r"fn (\w+)\(", rust)}

    assert len(named) > 25
    assert named - known == set()
