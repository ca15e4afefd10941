"""The normative statements of MQTT 3.1.1 and 5.0, and which tests hold each.

`statements.toml` is the list. Its ``tests`` repeat the markers of the tests in this folder (Rust
tests are entered by hand), so that a statement that loses its test shows up as a difference.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.named import ROOT, fault_of_test, site_fault

FOLDER: Final = Path(__file__).parent
STATEMENTS: Final = FOLDER / "statements.toml"
KNOWN_GAPS: Final = FOLDER / "known_gaps.txt"
TABLE: Final = ROOT / "docs" / "conformance.md"

LEVELS: Final = {"3.1": 3, "3.1.1": 4, "5.0": 5}
HEADER: Final = """\
# Every normative statement of MQTT 3.1.1 and 5.0. The key is (version, id).
# side: S binds the server, C the client, B both (or the server polices it).
# code: the site that obeys it. unobservable: why no client can see it; then a Rust test holds it.
# tests: `python -m tests.spec sync` copies them from the markers; Rust tests are entered by hand.
"""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One normative statement, in our words."""

    version: str
    id: str
    side: str
    says: str
    code: str = ""
    unobservable: str = ""
    tests: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What names it: the same id may stand in both standards for different things."""
        return self.version, self.id

    @property
    def binds_server(self) -> bool:
        """Whether a broker has to hold it."""
        return self.side in "SB"

    @property
    def wire_tests(self) -> tuple[str, ...]:
        """Those that drive a running broker."""
        return tuple(test for test in self.tests if test.startswith("tests/"))

    @property
    def rust_tests(self) -> tuple[str, ...]:
        """Those of a crate."""
        return tuple(test for test in self.tests if test.startswith("rust/"))

    @property
    def is_held(self) -> bool:
        """Whether a test over the wire holds it, or one in Rust where no client can see it."""
        return bool(self.wire_tests or (self.unobservable and self.rust_tests))


def read_statements() -> list[Statement]:
    """The list as it stands in the file, in the order of the standards."""
    entries: list[dict[str, Any]] = tomllib.loads(STATEMENTS.read_text())["statement"]
    return [Statement(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def written(statements: Iterable[Statement]) -> str:
    """The text of `statements.toml`; there is only one way to write it."""
    parts = [HEADER]
    for each in statements:
        lines = ["[[statement]]"]
        for name in ("version", "id", "side", "says", "code", "unobservable"):
            value = getattr(each, name)
            if value or name != "unobservable":
                lines.append(f"{name} = {_quoted(value)}")
        tests = "".join(f"    {_quoted(test)},\n" for test in each.tests)
        lines.append(f"tests = [\n{tests}]" if tests else "tests = []")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


# --- markers --------------------------------------------------------------------------------------


def _statement_of(decorator: ast.expr) -> Key | None:
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.spec":
        return None
    version, statement = (ast.literal_eval(argument) for argument in decorator.args)
    return version, statement


def marked_tests(folder: Path = FOLDER) -> dict[Key, list[str]]:
    """The tests in `folder` by the statements of their markers, in the order of the files."""
    found: dict[Key, list[str]] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            name = f"tests/spec/{path.name}::{node.name}"
            for decorator in node.decorator_list:
                key = _statement_of(decorator)
                if key is not None:
                    found.setdefault(key, []).append(name)
    return found


def synchronised(
    statements: Sequence[Statement], markers: Mapping[Key, Sequence[str]]
) -> list[Statement]:
    """`statements` with the tests that the markers name, and the Rust tests that they had."""
    return [
        replace(each, tests=(*markers.get(each.key, ()), *each.rust_tests)) for each in statements
    ]


# --- known gaps -----------------------------------------------------------------------------------


def read_gaps() -> list[Key]:
    """The statements that are known to have no test yet."""
    lines = (line.split("#")[0].split() for line in KNOWN_GAPS.read_text().splitlines())
    return [(line[0], line[1]) for line in lines if line]


def gaps(statements: Iterable[Statement]) -> list[Key]:
    """The statements that bind a broker and that no test holds."""
    return [each.key for each in statements if each.binds_server and not each.is_held]


def written_gaps(keys: Iterable[Key]) -> str:
    """The text of `known_gaps.txt`."""
    lines = [f"{version} {statement}\n" for version, statement in keys]
    return "# Statements that bind a broker and have no test yet. It may only shrink.\n" + "".join(
        lines
    )


# --- what is wrong --------------------------------------------------------------------------------


def _site_faults(each: Statement) -> list[str]:
    found = [fault_of_test(test) for test in each.rust_tests]
    if each.code:
        found.append(site_fault(each.code, r"\b{}\b"))
    elif each.binds_server and each.is_held:
        found.append("the code that obeys it is not named")
    if each.unobservable and each.wire_tests:
        found.append("it is called unobservable and yet observed")
    return [f"{each.version} {each.id}: {fault}" for fault in found if fault]


def faults() -> list[str]:
    """Everything in which the list, the markers, the code and the known gaps disagree."""
    statements, markers = read_statements(), marked_tests()
    keys = {each.key for each in statements}
    listed, known = set(gaps(statements)), set(read_gaps())
    found = [f"{key}: a marker names no statement" for key in sorted(markers.keys() - keys)]
    for each, marked in zip(statements, synchronised(statements, markers), strict=True):
        if each.tests != marked.tests:
            found.append(f"{each.key}: tests {each.tests} but markers say {marked.tests}")
        found += _site_faults(each)
    found += [f"{key}: has no test, and is no known gap" for key in sorted(listed - known)]
    found += [f"{key}: a known gap that is closed" for key in sorted(known - listed)]
    return found


# --- the table ------------------------------------------------------------------------------------

INTRODUCTION: Final = """\
# Conformance

Every normative statement of MQTT 3.1.1 and 5.0, paraphrased (the text of the standards decides),
and its tests. `make spec` writes this page. Tests without a path are in `tests/spec`: they send raw
bytes to a running broker, beside other clients that must not be affected. Who has to obey the
statement: S the server, C the client, B both.

{totals}

| verdict | meaning |
| --- | --- |
| holds | tested over the wire |
| holds (inside) | tested in Rust, since no client can observe it, for the reason given |
| client | binds only the client; a test shows how the server answers a client that breaks it |
| fails | its test fails |
| open | no test yet |
"""


def totals(statements: Sequence[Statement]) -> str:
    """How many statements there are, and how many a test holds."""
    bound = [each for each in statements if each.binds_server]
    tested = sum(bool(each.wire_tests) for each in bound)
    inside = sum(bool(each.unobservable) for each in bound)
    return (
        f"statements {len(statements)}, server-side {len(bound)}, tested {tested}, "
        f"untestable {inside} (with reason)"
    )


def verdict(each: Statement, failing: frozenset[str]) -> str:
    """What the table says of it."""
    if failing.intersection(each.tests):
        return "fails"
    if not each.binds_server:
        return "client"
    if not each.is_held:
        return "open"
    return "holds (inside)" if each.unobservable else "holds"


def table(statements: Sequence[Statement], failing: frozenset[str] = frozenset()) -> str:
    """The text of `docs/conformance.md`."""
    rows = ["| version | id | who | statement | verdict | test |", "| --- " * 6 + "|"]
    for each in statements:
        tests = "<br>".join(f"`{test.removeprefix('tests/spec/')}`" for test in each.tests)
        reason = f" ({each.unobservable})" if each.unobservable else ""
        found = f"{verdict(each, failing)}{reason}"
        rows.append(
            f"| {each.version} | {each.id} | {each.side} | {each.says} | {found} | {tests} |"
        )
    introduction = INTRODUCTION.format(totals=totals(statements))
    return introduction + "\n" + "\n".join(rows) + "\n"


def summary(statements: Sequence[Statement], failing: frozenset[str]) -> str:
    """The last line of `make spec`."""
    failed = sum(bool(failing.intersection(each.tests)) for each in statements)
    return f"{totals(statements)}, failing {failed}"
