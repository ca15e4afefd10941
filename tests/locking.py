"""Checks that what `docs/locking.md` names exists: `python -m tests.locking`.

`Type`, `Type::member` and `Type::{one, other}` are those of Rust, `Type.member` of Python,
`name.rs` and `name.py` are files. Part of `make check`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.citations import report

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/locking.md"
OF_OTHERS = {"RefCell"}
"""Types that the page names and that are not ours."""
NAME = re.compile(
    r"`(?P<type>[A-Z]\w*)"
    r"(?:(?:::|\.)(?:(?P<member>\w+)|\{(?P<members>[^}]*)\}))?`"
    r"|`(?P<path>[\w/]+\.(?:rs|py))`"
)
ORDER = re.compile(
    r"(?:^|(?<=-> )|(?<=, ))\s*(?P<type>[A-Z]\w*)(?:::|\.)(?P<member>\w+)", re.MULTILINE
)
"""The picture of the order has no backquotes."""


def sources() -> dict[str, str]:
    """The product's source, by path."""
    paths = [*ROOT.glob("rust/*/src/**/*.rs"), *ROOT.glob("python/mqttcore/**/*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def names(page: str) -> Iterator[tuple[int, str, str]]:
    """Line, type and member of everything that the page names; a file has no member."""
    for pattern in (NAME, ORDER):
        for found in pattern.finditer(page):
            groups = found.groupdict()
            line = page.count("\n", 0, found.end()) + 1
            members = (groups.get("members") or groups.get("member") or "").split(", ")
            for member in members:
                yield line, groups["type"] or groups["path"], member


def is_there(name: str, member: str, files: dict[str, str]) -> bool:
    """Whether a file defines `name`, and a file that defines or implements it has `member`."""
    if name.endswith((".rs", ".py")):
        return any(f"/{path}".endswith(f"/{name}") for path in files)
    defined = re.compile(rf"\b(?:struct|enum|trait|type|static|class) {name}\b")
    if not any(defined.search(text) for text in files.values()):
        return name in OF_OTHERS
    used = re.compile(rf"{defined.pattern}|\bimpl\b[^{{;]*\b{name}\b")
    has = re.compile(rf"\bfn {member}\b|\b{member}:|\bself\.{member}\b")
    return not member or any(has.search(text) for text in files.values() if used.search(text))


def missing() -> Iterator[str]:
    """A line for each name that no file has."""
    files = sources()
    for line, name, member in sorted(set(names(PAGE.read_text()))):
        if not is_there(name, member, files):
            full = f"{name}::{member}" if member else name
            yield f"docs/locking.md:{line}: no file has `{full}`"


if __name__ == "__main__":
    sys.exit(report(missing()))
