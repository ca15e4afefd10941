"""The module graph that `make borders` checks, of crates made up for it; sizes of functions."""

from __future__ import annotations

from pathlib import Path

from tests import sizes
from tests.modules import Crate, layers


def crate(folder: Path, **files: str) -> Crate:
    """A crate with these sources; `__` in a name is a folder."""
    for name, source in files.items():
        path = folder / (name.replace("__", "/") + ".rs")
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return Crate("made_up", folder)


def test_every_way_of_naming_a_module_is_an_arrow(tmp_path: Path) -> None:
    made = crate(
        tmp_path,
        lib="mod a; mod b; mod c; pub use crate::c::Thing;",
        a="use crate::{b::{self, One}, c};\nuse std::io;",
        b="fn one() -> super::c::Thing { crate::Thing::new() }",
        c="",
    )

    assert made.folders[()] == {"a": {"b", "c"}, "b": {"c"}, "c": set()}


def test_a_face_leads_to_where_the_name_is_defined(tmp_path: Path) -> None:
    made = crate(
        tmp_path,
        lib="",
        routing__mod="pub(crate) use self::router::Router;",
        routing__router="",
        routing__group="use super::Router;",
        user="use crate::routing::Router;",
    )

    assert made.folders[()] == {"routing": set(), "user": {"routing"}}
    assert made.folders[("routing",)] == {"router": set(), "group": {"router"}}


def test_comments_texts_and_tests_are_no_arrows(tmp_path: Path) -> None:
    made = crate(
        tmp_path,
        lib="",
        a='/// [`crate::b`]\nconst TEXT: &str = "crate::b";\n'
        "#[cfg(test)]\nmod tests { use crate::b; fn f() { if true { } } }\nuse crate::c;",
        b="",
        c="/* crate::a */",
    )

    assert made.folders[()] == {"a": {"c"}, "b": set(), "c": set()}


def test_cycles_are_counted_by_what_is_in_them(tmp_path: Path) -> None:
    made = crate(
        tmp_path,
        lib="",
        a="use crate::b;",
        b="use crate::folder::inner;",
        folder__mod="",
        folder__inner="use crate::a;",
        x="use crate::y;",
        y="use crate::x;",
    )

    assert sorted(made.cycles()) == [((), ["a", "b", "folder"]), ((), ["x", "y"])]
    assert made.figures() == {"folder_cycles": 1, "largest_cycle": 3}


def test_layers_are_drawn_from_the_top() -> None:
    graph = {"top": {"left", "right"}, "left": {"right"}, "right": {"left", "leaf"}, "leaf": set()}

    assert layers(graph) == [["top"], ["left", "right"], ["leaf"]]


def test_sizes_count_code_without_comments_texts_and_tests() -> None:
    source = """//! A module.
fn long(
    bytes: [u8; 4],
) -> String {
    // why
    let braces = "}}";

    format!("{braces}
    ")
}

trait Face {
    fn declared(&self);
}

#[cfg(test)]
mod tests {
    fn unseen() {}
}
"""

    found = [(length.name, length.line, length.lines) for length in sizes.rust("a.rs", source)]

    assert found == [("", 1, 10), ("long", 2, 7)]


def test_a_long_function_may_say_why_in_its_documentation() -> None:
    source = """/// Reads all fields. Longer than other
/// functions: one line for each field.
#[expect(
    clippy::too_many_arguments
)]
pub fn explained() {}

/// Longer than other functions: of the one above it.
struct Other;

fn silent() {}
"""

    found = [(length.name, length.says_why) for length in sizes.rust("a.rs", source)]

    assert found == [("", False), ("explained", True), ("silent", False)]


def test_sizes_of_python_are_without_docstrings() -> None:
    source = 'def one() -> int:\n    """Says it.\n\n    Twice.\n    """\n    # why\n    return 1\n'

    found = [(length.name, length.lines) for length in sizes.python("a.py", source)]

    assert found == [("", 2), ("one", 2)]
