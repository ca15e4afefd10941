"""`make bench-hooks` runs, and judges figures by their goals; figures need a quiet machine."""

import json

import pytest

from benches.hooks.__main__ import line, main
from benches.hooks.rows import ROWS, Row


def test_a_client_with_a_grant_calls_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--only", "Python calls"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["figure"], row["goal"], row["met"]) == (0, 0, True)


@pytest.mark.parametrize(
    "word", ["publish hook", "added p50", "async hook", "revocation", "reload"]
)
def test_a_row_measures_something(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json", "--only", word])

    (row,) = json.loads(capsys.readouterr().out)
    assert row["figure"] != 0


def test_a_goal_is_a_most_or_a_least() -> None:
    def row(*, at_least: bool) -> Row:
        return Row(name="row", unit="us", goal=5, at_least=at_least, measure=lambda _: 0)

    assert row(at_least=False).is_met(5)
    assert not row(at_least=False).is_met(5.1)
    assert row(at_least=True).is_met(5)
    assert not row(at_least=True).is_met(4.9)
    assert "NOT MET" in line(row(at_least=True), 4.9)
    assert len({row.name for row in ROWS}) == len(ROWS)
