"""Checks that what comments and pages cite exists: `python -m tests.citations`.

Rows of `docs/abuse.md` (`abuse D16`, each of a list), numbers of `docs/decisions.md`
(`docs/decisions.md, 16`, `docs/decisions.md, engine 8`; pages may say `decision 16`), and ADRs
(`ADR 0011`, `docs/adr/0011-...`). Part of `make check`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUFFIXES = {".md", ".py", ".pyi", ".rs", ".toml"}
CITATION = re.compile(
    r"[Aa]buse (?P<abuse>[A-Z]\d\d(?:(?:, | and | to )[A-Z]\d\d)*)"
    r"|docs/decisions\.md, (?:engine (?P<engine>\d+)|(?P<decision>\d+))|\bdecision (?P<bare>\d+)"
    r"|(?:ADR |adr/)(?P<adr>\d{4})(?P<name>-[a-z0-9-]+\.md)?"
)


def numbered(text: str, pattern: str = r"(\d+)\. ") -> set[str]:
    """The keys that lines begin with."""
    return set(re.findall(f"^{pattern}", text, re.MULTILINE))


def known() -> dict[str, set[str]]:
    """All that can be cited, by kind."""
    pages = (ROOT / "docs/decisions.md").read_text()
    decisions, engine = pages.split("\n## Runtime (engine decisions)\n")
    records = [path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md")]
    return {
        "abuse": numbered((ROOT / "docs/abuse.md").read_text(), r"\| ([A-Z]\d\d) "),
        "decision": numbered(decisions),
        "engine": numbered(engine),
        "bare": numbered(decisions),
        "adr": {name[:4] for name in records},
        "name": {name[4:] for name in records},
    }


def citations(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Line, text, kind and key of everything that a file cites."""
    for number, text in enumerate(path.read_text().splitlines(), 1):
        for found in CITATION.finditer(text):
            for kind, key in found.groupdict().items():
                for one in re.findall(r"[A-Z]\d\d", key or "") if kind == "abuse" else [key]:
                    if one is not None:
                        yield number, found[0], kind, one


def missing() -> Iterator[str]:
    """A line for each citation that leads nowhere."""
    there = known()
    git = shutil.which("git") or "git"
    listing = [git, "ls-files"]
    tracked = subprocess.run(  # noqa: S603 - git, with fixed arguments
        listing, cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        for number, text, kind, key in citations(path):
            if kind == "bare" and path.suffix != ".md" and name != "tests/citations.py":
                yield f"{name}:{number}: {text!r} lacks the path: docs/decisions.md, {key}"
            if key not in there[kind]:
                yield f"{name}:{number}: {text!r} is not in docs/"


def report(missing: Iterable[str]) -> int:
    """Prints what is missing; 1 if anything is."""
    lines = list(missing)
    sys.stderr.writelines(f"{line}\n" for line in lines)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(report(missing()))
