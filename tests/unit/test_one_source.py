"""Lists in Rust and in Python: events, reasons, defaults of limits, formats, columns."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, get_args

import pytest
from mqttcore import config
from mqttcore.plugin.answers import DenyReason
from mqttcore.plugin.hooks import EventKind
from mqttcore.streams.settings import FORMATS, OWN_COLUMNS

RUST: Final = Path(__file__).parents[2] / "rust"


def block(file: str, start: str) -> str:
    """The text of a Rust file from ``start`` to the end of that item."""
    _, _, rest = (RUST / file).read_text().partition(start)
    assert rest, f"{file} has no {start!r}"
    return rest[: re.search(r"^}", rest, re.MULTILINE).start()]  # type: ignore[union-attr] # as rustfmt writes it


def limits_of_rust() -> dict[str, object]:
    """The defaults of the session crate that are numbers or booleans."""
    found: dict[str, object] = {}
    fields = block("session/src/limits.rs", "impl Default for ServerLimits")
    for name, value in re.findall(r"^ {12}(\w+): ([\w ()<*+]+),$", fields, re.MULTILINE):
        if value in ("true", "false"):
            found[name] = value == "true"
        elif not re.search("[a-zA-Z]", value.replace("_", "")):
            tree = ast.parse(value, mode="eval")
            found[name] = eval(compile(tree, "limits.rs", "eval"), {})  # noqa: S307 - arithmetic of our own source
    return found


def test_events_have_the_words_of_the_engine() -> None:
    names = block("broker/src/config/plugin_event.rs", "impl EventKind")

    assert set(re.findall(r'Self::\w+ => "(\w+)"', names)) == set(get_args(EventKind))


@pytest.mark.parametrize("reason", sorted(set(get_args(DenyReason)) - {"bad_credentials"}))
def test_a_reason_of_a_denial_has_a_code(reason: str) -> None:
    """The engine finds the code by the name of the standard."""
    names = (RUST / "codec/src/reason.rs").read_text().lower()

    assert f'"{reason.replace("_", " ")}"' in names


def test_limits_have_the_defaults_of_the_session() -> None:
    fields = config.ServerLimits.fields_by_name
    ours = {name: field.default for name, field in fields.items()}
    ours["qos0_backlog_bytes"] = config.ServerLimits().backlog_bytes
    rust = limits_of_rust()
    both = ours.keys() & rust.keys()

    assert len(both) > 15, sorted(both)
    assert {name: ours[name] for name in both} == {name: rust[name] for name in both}


def test_formats_are_those_of_the_decoder() -> None:
    names = block("columnar/src/decode/options.rs", "impl FromStr for Format")

    assert tuple(re.findall(r'"(\w+)" => Ok', names)) == FORMATS
    assert f'allowed: {", ".join(FORMATS)}"' in names


def test_columns_of_streams_are_those_of_their_rows() -> None:
    schema = block("columnar/src/schema.rs", "pub fn row_schema()")

    # names of constants are those of their columns
    assert tuple(name.lower() for name in re.findall(r'nullable\("?(\w+)', schema)) == OWN_COLUMNS


def test_columns_of_messages_are_those_of_the_publisher() -> None:
    messages = pytest.importorskip("mqttcore.spark.messages")
    names, _, _ = block("publisher/src/columns.rs", "pub(crate) const NAMES").partition("];")

    assert re.findall(r'"(\w+)"', names) == list(messages.COLUMNS)
