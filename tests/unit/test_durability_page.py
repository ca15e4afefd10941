"""`docs/durability.md` names the test of each sentence: there is none that is not."""

import itertools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/durability.md").read_text()
NAME = re.compile(r"`([a-z]+(?:_[a-z0-9]+){3,})`")
"""A test is a sentence: four words at least."""


def sources(folder: str, pattern: str) -> str:
    return "".join(path.read_text() for path in (ROOT / folder).rglob(pattern))


def rust_tests(text: str) -> list[str]:
    return re.findall(r"#\[test\]\s+fn (\w+)\(", text)


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(NAME.findall(PAGE))

    known = {
        *re.findall(r"^def (test_\w+)\(", sources("tests", "test_*.py"), re.MULTILINE),
        *rust_tests(sources("rust", "*.rs")),
    }

    assert len(named) > 45
    assert named - known == set()


def test_every_file_and_command_that_the_page_names_is_there() -> None:
    files = re.findall(r"`(\w+/[\w/]+\.\w+)`", PAGE)
    targets = re.findall(r"`make (\w+)", PAGE)
    makefile = (ROOT / "Makefile").read_text()

    assert files
    assert targets
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def is_held(text: str) -> bool:
    """Whether it says what holds it."""
    return bool(NAME.search(text) or re.search(r"`make \w+|\bsame\b", text))


def test_every_row_of_the_page_says_which_test_holds_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    heads = {
        line for line, rule in itertools.pairwise(PAGE.splitlines()) if rule.startswith("| --")
    }

    left = [row for row in rows if row not in heads and not row.startswith("| --")]

    assert len(left) > 25
    assert [row for row in left if not is_held(row.rsplit("|", 2)[1])] == []


def test_every_paragraph_of_the_page_says_which_test_holds_it() -> None:
    blocks = [block.strip() for block in PAGE.split("\n\n")]
    prose = [block for block in blocks if block and block[0] not in "#|"]
    introductions = (
        "The meaning of each",
        "*Kept* on",
        "The durability in force",
        "Not covered",
    )

    left = [block for block in prose if not block.startswith(introductions)]

    assert len(left) >= 4
    assert [block for block in left if not is_held(block)] == []
