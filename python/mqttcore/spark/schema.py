"""Columns of the source as Spark's DDL. Needs neither Spark nor Arrow.

Every column is nullable, because that is what Spark makes of a file's columns too. The reader in
Rust yields Arrow columns of exactly these types: `tests/spark` holds both against each other.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

__all__ = [
    "CORRUPT",
    "ROW_COLUMNS",
    "Fields",
    "column_types",
    "ddl",
    "parse_columns",
    "parse_fields",
]

TypeName = Literal["boolean", "int", "long", "double", "string", "binary", "timestamp"]
Fields: TypeAlias = tuple[tuple[str, TypeName], ...]
"""Names and types of typed columns, as the decoders in Rust know them."""

ROW_COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "topic": "STRING",
        "payload": "BINARY",
        "qos": "TINYINT",
        "retain": "BOOLEAN",
        "dup": "BOOLEAN",
        "client_id": "STRING",
        "content_type": "STRING",
        "response_topic": "STRING",
        "correlation_data": "BINARY",
        "expiry": "BIGINT",
        "user_properties": "ARRAY<STRUCT<key: STRING, value: STRING>>",
    }
)
"""What every row has; ``timestamp`` is the broker's, ``expiry`` counts seconds."""

CORRUPT: Final = "_corrupt"
"""The payload of a row that could not be decoded."""

SPARK_TYPES: Final[Mapping[TypeName, str]] = MappingProxyType(
    {
        "boolean": "BOOLEAN",
        "int": "INT",
        "long": "BIGINT",
        "double": "DOUBLE",
        "string": "STRING",
        "binary": "BINARY",
        "timestamp": "TIMESTAMP",
    }
)
TYPE_NAMES: Final[Mapping[str, TypeName]] = MappingProxyType(
    {spark.lower(): name for name, spark in SPARK_TYPES.items()}
    | {name: name for name in SPARK_TYPES}
    | {"integer": "int"}
)
NAME: Final = r"(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*))"


def parse_fields(text: str) -> Fields:
    """Reads ``payloadSchema``: ``temperature DOUBLE, `unit of it` STRING``.

    Raises:
        ValueError: the text is no such list; the message says what is allowed.
    """
    fields: dict[str, TypeName] = {}
    rest = text
    while True:
        found = re.match(rf"\s*{NAME}(?:\s*:\s*|\s+)([A-Za-z]+)\s*(,|$)", rest)
        if found is None:
            raise ValueError(
                f"cannot read {rest.strip()!r}; allowed is a list as in"
                ' "temperature DOUBLE, unit STRING", other names in backquotes'
            )
        name = (found[1] or found[2]).replace("``", "`")
        add_field(fields, name, found[3])
        if not found[4]:
            return tuple(fields.items())
        rest = rest[found.end() :]


def add_field(fields: dict[str, TypeName], name: str, type_text: str) -> None:
    """Takes one field up, if nothing speaks against it."""
    if type_text.lower() not in TYPE_NAMES:
        raise ValueError(
            f"type {type_text} of {name}: allowed are {', '.join(SPARK_TYPES.values())}"
        )
    if name in ROW_COLUMNS or name == CORRUPT:
        raise ValueError(f"{name} is a column of every row already")
    if name.lower() in {taken.lower() for taken in fields}:
        raise ValueError(f"{name} stands there twice")
    fields[name] = TYPE_NAMES[type_text.lower()]


def parse_columns(text: str) -> tuple[str, ...]:
    """Reads ``columns``: names with commas between them.

    Raises:
        ValueError: a name is empty or stands there twice.
    """
    names = tuple(name.strip().strip("`") for name in text.split(","))
    if not all(names):
        raise ValueError("allowed is a list of columns with commas between them")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} stands there twice")
    return names


def column_types(*, columns: Sequence[str] | None, fields: Fields, corrupt: bool) -> dict[str, str]:
    """The columns that a query gets, in their order, each with its type in DDL.

    Raises:
        ValueError: ``columns`` names one that there is not.
    """
    known = dict(ROW_COLUMNS)
    known.update({name: SPARK_TYPES[type_name] for name, type_name in fields})
    if corrupt:
        known[CORRUPT] = "BINARY"
    if columns is None:
        return known
    for name in columns:
        if name not in known:
            raise ValueError(f"{name} is no column; allowed are {', '.join(known)}")
    return {name: known[name] for name in columns}


def ddl(types: Mapping[str, str]) -> str:
    """The columns as Spark reads them from text."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in types.items())
