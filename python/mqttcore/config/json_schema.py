"""The JSON Schema of the configuration file, made from the fields of its records."""

import ast
import functools
import inspect
import itertools
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from mqttcore._record import REQUIRED, Record
from mqttcore._schema import (
    Kind,
    Parsed,
    Range,
    Table,
    bare,
    field_types,
    is_array,
    is_record,
    members,
    origin,
    required,
    wrapper,
)
from mqttcore.config.effective import plain
from mqttcore.config.settings import Settings

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
Json = dict[str, Any]  # values of JSON
SCALARS: Final[Mapping[object, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def json_schema() -> Json:
    """The schema; each table is in ``$defs``, by the name of its class."""
    tables: dict[str, Json] = {}
    top = table_of(Settings, tables)
    return {"$schema": DIALECT, "title": "mqttcore.toml", **top, "$defs": tables}


def table_of(record: type[Record], tables: dict[str, Json]) -> Json:
    """A table; tables in it are added to ``tables``."""
    words = dict(meanings(record))
    own: Kind = record
    keys: Json = {}
    for name, kind in field_types(own).items():
        keys[name] = value_of(kind, tables)
        if name in words:
            keys[name]["description"] = words[name]
        default = record.fields_by_name[name].default
        if default is not REQUIRED and default is not None and is_plain(default):
            keys[name]["default"] = plain(default)
    made: Json = {"type": "object", "additionalProperties": False, "properties": keys}
    if names := required(own):
        made["required"] = names
    return made


def is_plain(default: object) -> bool:
    """Whether a default is a scalar or an array of scalars."""
    items = default if isinstance(default, tuple) else (default,)
    return not any(is_record(item) for item in items)


def value_of(kind: Kind, tables: dict[str, Json]) -> Json:
    """The values that a field of this kind takes; a file has no null."""
    options = [option for option in members(kind) if option is not type(None)]
    if Table in options:
        return {"type": "object"}
    if len(options) > 1:
        return {"anyOf": [value_of(option, tables) for option in options]}
    own, notes = bare(options[0])
    if is_array(own):
        return {"type": "array", "items": value_of(typing.get_args(own)[0], tables)}
    if is_record(own) and not wrapper(own):
        if own.__name__ not in tables:
            tables[own.__name__] = {}  # a table may contain its own kind
            tables[own.__name__] = table_of(own, tables)
        return {"$ref": f"#/$defs/{own.__name__}"}
    if origin(own) is Literal:
        return {"enum": list(typing.get_args(own))}
    return scalar_of(own, notes)


def scalar_of(own: Kind, notes: tuple[object, ...]) -> Json:
    """A scalar; a path is text."""
    made: Json = {"type": SCALARS.get(own, "string")}
    for note in notes:
        if isinstance(note, Range):
            made |= {"minimum": note.low, "maximum": note.high}
        elif isinstance(note, Parsed):
            made["title"] = note.allowed
    return made


def meanings(record: type[Record]) -> Iterator[tuple[str, str]]:
    """The fields with the text below each in the source; nothing if there is no source."""
    for base in record.__bases__:
        if issubclass(base, Record):
            yield from meanings(base)
    for field, text in itertools.pairwise(classes_of(record.__module__).get(record.__name__, ())):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            words = " ".join(str(text.value.value).split())
            yield field.target.id, words.replace("``", "`")


@functools.cache
def classes_of(module: str) -> Mapping[str, Sequence[ast.stmt]]:
    """The statements of each class of a module; none if there is no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    found = ast.parse(source).body
    return {each.name: each.body for each in found if isinstance(each, ast.ClassDef)}
