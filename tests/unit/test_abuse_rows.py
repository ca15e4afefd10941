"""`make abuse`: which tests belong to a row of `docs/abuse.md`, and what it says of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.abuse import __main__ as abuse
from tests.abuse import rows
from tests.abuse.rows import Row

HELD = Row(id="A01", tests=("tests/abuse/test_a.py::test_a01_x",), waiting="")
WAITING = Row(id="A02", tests=(), waiting="a clock")
IN_RUST = Row(id="A03", tests=("rust/codec/tests/x.rs::every_byte",), waiting="")


def test_page_list_and_tests_agree() -> None:
    assert rows.faults() == []
    assert len(rows.read_rows()) == 199


def test_a_test_belongs_to_the_row_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "def test_k01_a(): ...\ndef helper(): ...\ndef test_a_b(): ...\n"
    )

    assert rows.named_after_rows(tmp_path) == {"K01": ["tests/abuse/test_x.py::test_k01_a"]}


def test_each_disagreement_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed, page = tmp_path / "rows.toml", tmp_path / "abuse.md"
    listed.write_text('[A02]\ntests = ["rust/codec/tests/none.rs::x"]\n[A09]\nawaits = "x"\n')
    page.write_text("| A01 | x |\n| A02 | x |\n")
    monkeypatch.setattr(rows, "ROWS", listed)
    monkeypatch.setattr(rows, "PAGE", page)
    monkeypatch.setattr(rows, "named_after_rows", lambda: {"B01": ["tests/abuse/x.py::test_b01_x"]})

    assert rows.faults() == [
        "A09: rows.toml has it, docs/abuse.md has not",
        "B01: a test is named after it: no such row",
        "A09: awaits is no key of a row",
        "A01: has no test, and rows.toml does not say what it waits for",
        "A02: 'rust/codec/tests/none.rs::x' names no file and item",
    ]


def test_a_function_of_cargo_passes_where_each_of_its_name_does() -> None:
    output = (
        "test a::b::one ... ok\ntest one ... ok\n"
        "test two ... ok\ntest c::two ... FAILED\ntest three ... ignored\n"
    )

    assert abuse.passed_by_cargo(output) == {"one"}


def test_a_run_is_reported_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    code = abuse.report([HELD, WAITING, IN_RUST], set(HELD.tests))

    assert code == 1
    assert capsys.readouterr().out == (
        "A02 waits for a clock (no test yet)\n"
        "A03 FAILS: rust/codec/tests/x.rs::every_byte\n"
        "3 rows: tested 1, waiting 1, failing 1\n"
    )


def test_a_run_without_failures_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert abuse.report([HELD, WAITING], set(HELD.tests)) == 0
    assert capsys.readouterr().out.endswith("2 rows: tested 1, waiting 1, failing 0\n")
