"""The configuration in force for people: each key with its value and its source."""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from mqttcore._record import Record
from mqttcore._schema import Entry, Kind, Table, entry_of, field_types, is_record
from mqttcore.config.reading import Loaded

MASK: Final = "***"
SECRET: Final = re.compile(
    r"(?i)pass|pwd|secret|token|credential|api_?key|private|signing|hmac|salt|seed|dsn|key$"
)
"""Names of keys and tables of plugins whose values are hidden, unless they end in ``_file``."""
USER_PART: Final = re.compile(r"//[^/@\s]+@")
"""User and password in a URL."""
QUERY: Final = re.compile(r"(\w://[^\s?#]*)\?[^\s#]*")
"""A URL with a query, which often has a token."""


class Key(Record):
    """A key of the configuration."""

    key: str
    """The key, such as ``listeners[0].address``."""
    value: object
    source: str
    """File, line and column, a variable, a flag, or ``default``."""


def effective(loaded: Loaded) -> list[Key]:
    """All keys, in the order of the settings."""
    return list(keys(loaded.settings, loaded.root, ""))


def keys(value: object, entry: Entry | None, name: str) -> Iterator[Key]:
    """The keys of a value that was read from ``entry``; None: it is the default."""
    if isinstance(value, Table):
        yield from raw(value.entry, name)
    elif is_record(value) and not isinstance(value, type):
        inner = entry.value if entry else {}
        table = inner if isinstance(inner, Mapping) else {}
        kind: Kind = type(value)
        for field in field_types(kind):
            below = f"{name}.{field}" if name else field
            yield from keys(getattr(value, field), table.get(field), below)
    elif isinstance(value, tuple | list) and any(map(is_record, value)):
        items = entry.value if entry and isinstance(entry.value, list) else []
        for index, item in enumerate(value):
            yield from keys(item, items[index] if index < len(items) else None, f"{name}[{index}]")
    elif isinstance(value, Mapping):
        place = entry.place if entry else None
        if place is not None:
            yield from raw(entry_of(value, place), name)
    else:
        source = str(entry.place) if entry else "default"
        yield Key(key=name, value=plain(value), source=source)


def raw(entry: Entry, name: str) -> Iterator[Key]:
    """The keys of a table that a plugin reads."""
    if isinstance(entry.value, dict):
        for key, item in entry.value.items():
            yield from raw(item, f"{name}.{key}")
    elif isinstance(entry.value, list):
        for index, item in enumerate(entry.value):
            yield from raw(item, f"{name}[{index}]")
    else:
        yield Key(key=name, value=masked(name, entry.value), source=str(entry.place))


def masked(name: str, value: object) -> object:
    """A value of a plugin; secrets, recognised by parts of their names, are hidden."""
    inside = name.partition(".config")[2] or name
    parts = re.sub(r"\[\d+\]", "", inside).split(".")
    if any(SECRET.search(part) and not part.endswith("_file") for part in parts):
        return MASK
    if not isinstance(value, str):
        return plain(value)
    return QUERY.sub(rf"\1?{MASK}", USER_PART.sub(f"//{MASK}@", value))


def plain(value: object) -> object:
    """A value for JSON."""
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, tuple | list | frozenset | set):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
