"""Tables for terminals."""

from __future__ import annotations

from mqttcore.cli.table import Column, Table, duration, text

COLUMNS = (
    Column("NAME", lambda item: item[0]),
    Column("COUNT", lambda item: item[1], is_number=True),
)


def test_columns_are_as_wide_as_their_cells() -> None:
    table = Table(COLUMNS, width=80)

    assert list(table.lines([("a", 1), ("longer", 1_000)])) == [
        "NAME    COUNT",
        "a           1",
        "longer   1000",
    ]


def test_a_table_fits_the_terminal() -> None:
    table = Table(COLUMNS, width=20)

    assert list(table.lines([("n" * 100, 7)])) == [
        "NAME           COUNT",
        "nnnnnnnnnnnn…      7",
    ]


def test_wide_and_combining_characters_keep_the_columns() -> None:
    table = Table(COLUMNS, width=15)

    assert list(table.lines([("漢字" * 30_000, 7), ("e\u0301" * 3, 8), ("é", 9)])) == [
        "NAME      COUNT",
        "漢字漢…       7",
        "e\u0301e\u0301e\u0301           8",
        "é             9",
    ]


def test_without_a_terminal_nothing_is_cut() -> None:
    assert list(Table(COLUMNS, width=0).lines([("n" * 100, 7)]))[1] == f"{'n' * 100}      7"


def test_a_second_page_has_no_titles_and_the_same_columns() -> None:
    table = Table(COLUMNS, width=80)
    first = list(table.lines([("abc", 1)]))

    assert [*first, *table.lines([("d", 2)])] == ["NAME  COUNT", "abc       1", "d         2"]


def test_control_characters_of_clients_do_not_reach_the_terminal() -> None:
    assert text("a\x1b[2Jb\nü\u202e") == "a\\x1b[2Jb\\nü\\u202e"


def test_values_are_cells() -> None:
    assert [text(value) for value in (None, "", True, False, 7)] == ["-", "-", "yes", "no", "7"]


def test_a_time_span_has_two_units() -> None:
    spans = (0.4, 59, 60, 3_599, 3_600, 90_061)

    assert [duration(span) for span in spans] == ["0s", "59s", "1m0s", "59m59s", "1h0s", "1d1h"]
