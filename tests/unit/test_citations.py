"""Checks of what comments and pages cite (`tests.citations`, `tests.locking`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import citations, locking

FILES = {
    "rust/broker/src/runtime/mailbox.rs": "struct Mailbox { inner: Mutex<u8> }\nimpl Mailbox {}",
    "rust/broker/src/runtime/mailbox/send.rs": "impl<T> Mailbox<T> { fn has_room(&self) {} }",
    "python/mqttcore/broker.py": "class Broker:\n    def __init__(self):\n        self._lock = 1",
}


def test_each_row_of_a_list_is_read_whatever_its_first_letter(tmp_path: Path) -> None:
    path = tmp_path / "one.rs"
    path.write_text("/// Abuse C15, H06: limits of an address\n// (abuse E12 and F01, ADR 0039)\n")

    found = [(line, kind, key) for line, _, kind, key in citations.citations(path)]

    assert found == [
        (1, "abuse", "C15"),
        (1, "abuse", "H06"),
        (2, "abuse", "E12"),
        (2, "abuse", "F01"),
        (2, "adr", "0039"),
    ]


def test_names_of_the_page_of_locks_are_read() -> None:
    page = (
        " Log::copying -> Streams::work\n`Share::{one, two}`, `Mailbox`, `Broker._lock`, `a.rs`\n"
    )

    assert sorted(locking.names(page)) == [
        (1, "Log", "copying"),
        (1, "Streams", "work"),
        (2, "Broker", "_lock"),
        (2, "Mailbox", ""),
        (2, "Share", "one"),
        (2, "Share", "two"),
        (2, "a.rs", ""),
    ]


@pytest.mark.parametrize(
    ("name", "member", "is_there"),
    [
        ("Mailbox", "", True),
        ("Mailbox", "inner", True),
        ("Mailbox", "has_room", True),
        ("Mailbox", "outer", False),
        ("Letterbox", "", False),
        ("Broker", "_lock", True),
        ("Broker", "inner", False),
        ("mailbox.rs", "", True),
        ("box.rs", "", False),
    ],
)
def test_a_name_is_there_if_its_own_file_has_it(name: str, member: str, is_there: bool) -> None:
    assert locking.is_there(name, member, FILES) is is_there
