"""The list of normative statements agrees with the markers, the code, the gaps and the page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.named import ROOT
from tests.spec import __main__ as spec
from tests.spec import catalogue
from tests.spec.catalogue import Statement

ONE = Statement(
    version="5.0",
    id="MQTT-3.1.0-2",
    side="S",
    says="a second CONNECT is a protocol error",
    code="rust/session/src/session.rs::Session",
    tests=("tests/spec/test_3_1_connect.py::test_x",),
)
INSIDE = replace(ONE, unobservable="never leaves", tests=("rust/codec/tests/roundtrip.rs::x",))


def test_list_markers_code_and_gaps_agree() -> None:
    assert catalogue.faults() == []


def test_no_gap_is_known_any_more() -> None:
    assert catalogue.read_gaps() == []


def test_the_list_is_written_in_its_one_way() -> None:
    statements = catalogue.read_statements()

    assert catalogue.STATEMENTS.read_text() == catalogue.written(statements)


def test_the_page_is_up_to_date() -> None:
    """After a change of tests: `python -m tests.spec sync`."""
    assert catalogue.TABLE.read_text() == catalogue.table(catalogue.read_statements())


def test_each_statement_of_both_standards_is_listed_once() -> None:
    statements = catalogue.read_statements()

    assert len({each.key for each in statements}) == len(statements)
    assert Counter(each.version for each in statements) == {"3.1.1": 141, "5.0": 251}
    bound = Counter(each.version for each in statements if each.binds_server)
    assert bound == {"3.1.1": 131, "5.0": 225}


def test_every_id_that_the_code_cites_is_one() -> None:
    known = {each.id for each in catalogue.read_statements()}
    cited = {
        (str(path.relative_to(ROOT)), statement)
        for folder in ("rust", "python")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".rs", ".py"}
        for statement in re.findall(r"MQTT-\d+(?:\.\d+)+-\d+", path.read_text())
    }

    assert cited
    assert sorted((path, statement) for path, statement in cited if statement not in known) == []


def test_markers_are_read_from_the_decorators(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        '@pytest.mark.spec("3.1.1", "MQTT-1")\n@pytest.mark.spec("5.0", "MQTT-2")\n'
        "@pytest.mark.parametrize('a', [1])\ndef test_a(a): ...\n"
        '@pytest.mark.spec("5.0", "MQTT-2")\ndef test_b(): ...\n'
    )

    found = catalogue.marked_tests(tmp_path)

    first, second = "tests/spec/test_x.py::test_a", "tests/spec/test_x.py::test_b"
    assert found == {("3.1.1", "MQTT-1"): [first], ("5.0", "MQTT-2"): [first, second]}


def test_a_statement_that_loses_its_marker_loses_its_test() -> None:
    synchronised = catalogue.synchronised([ONE, INSIDE], {})

    assert synchronised == [replace(ONE, tests=()), INSIDE]
    assert catalogue.gaps(synchronised) == [ONE.key]


@pytest.mark.parametrize(
    ("change", "is_held"),
    [
        ({}, True),
        ({"tests": ()}, False),
        ({"tests": INSIDE.tests}, False),
        ({"tests": INSIDE.tests, "unobservable": "never leaves"}, True),
        ({"tests": (), "unobservable": "never leaves"}, False),
    ],
    ids=["wire", "none", "rust alone", "rust with a reason", "a reason alone"],
)
def test_what_holds_a_statement(change: dict[str, object], is_held: bool) -> None:
    assert replace(ONE, **change).is_held is is_held  # type: ignore[arg-type]


def test_verdicts_of_the_page() -> None:
    failing = frozenset(ONE.tests)

    assert catalogue.verdict(ONE, frozenset()) == "holds"
    assert catalogue.verdict(ONE, failing) == "fails"
    assert catalogue.verdict(INSIDE, failing) == "holds (inside)"
    assert catalogue.verdict(replace(ONE, tests=()), failing) == "open"
    assert catalogue.verdict(replace(ONE, side="C", tests=()), failing) == "client"


def test_the_last_line_counts_what_binds_a_server() -> None:
    client = replace(ONE, side="C")
    unheld = replace(ONE, tests=())

    line = catalogue.summary([ONE, INSIDE, unheld, client], frozenset(ONE.tests))

    assert line == ("statements 4, server-side 3, tested 1, untestable 1 (with reason), failing 2")


def test_what_did_not_run_is_not_called_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file that cannot be imported, or `-k`, must not look like a run without failures."""
    page = tmp_path / "conformance.md"
    monkeypatch.setattr(catalogue, "TABLE", page)
    monkeypatch.setattr(pytest, "main", lambda *_args, **_keywords: 0)

    code = spec.run([])

    held = sum(bool(each.wire_tests) for each in catalogue.read_statements())
    assert (code, page.exists()) == (1, False)
    assert capsys.readouterr().out.endswith(f", failing {held}\n")
