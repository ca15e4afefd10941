"""Frozen dataclasses as schemas: what a key may hold is written once, as the type of its field.

`read_record` turns untrusted values (TOML with places, text of the environment) into a record
and collects every fault on the way; `check_record` holds one that Python code made to the same
rules. Kinds of field: `bool`, `int`, `float`, `str`, `Path`, `Literal`
words, `tuple[T, ...]`, another record, and any of these with ``| None``. `Annotated` adds a
`Range` or a `Parsed`. A `Table` is kept as it is, for somebody else to read.
"""

import contextlib
import functools
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast

from mqttcore._core import MqttError
from mqttcore._placed import PlacedRule
from mqttcore._record import REQUIRED, Record, field

T = TypeVar("T")
# a type form, such as `int | None`: no static type names these
Kind = Any
# what became of a value: its type is known only to whoever named the kind
Made = Any


class Range(Record, kw_only=False):
    """Numbers from ``low`` to ``high``, inclusive."""

    low: float
    high: float


class Parsed(Record, kw_only=False):
    """Text that ``check`` accepts; it raises `ValueError` or `MqttError` with the fault."""

    check: Callable[[str], object]
    allowed: str
    is_placed: bool = False
    """Whether the value keeps where it is written."""


class Place(Record, kw_only=False):
    """The place of a value: a file with line and column, a variable, a flag."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


class Entry(Record, kw_only=False):
    """A value before it is checked.

    ``value`` is a table (``dict[str, Entry]``), an array (``list[Entry]``), or a scalar.
    """

    value: object
    kind: str
    place: Place = field(compare=False)
    key_place: Place = field(compare=False)


class Table(Record, kw_only=False):
    """A table that is validated later, by the code that knows its keys."""

    entry: Entry


def entry_of(value: object, place: Place) -> Entry:
    """Python values as entries, all at one place."""
    if isinstance(value, Mapping):
        table = {str(key): entry_of(item, place) for key, item in value.items()}
        return Entry(table, "table", place, place)
    if isinstance(value, list | tuple):
        return Entry([entry_of(item, place) for item in value], "array", place, place)
    return Entry(value, "", place, place)


class Faults:
    """All faults, in the order of their places."""

    def __init__(self) -> None:
        self._found: list[tuple[Place, str]] = []
        self._garbled: set[tuple[str, int]] = set()

    def add_syntax(self, place: Place, what: str) -> None:
        """Records a fault of syntax; other faults of its line are ignored."""
        self.add(place, "", what)
        self._garbled.add((place.source, place.line))

    def add(self, place: Place, key: str, what: str, *notes: str) -> None:
        """Records one fault, and the notes about what is allowed."""
        if place.line and (place.source, place.line) in self._garbled:
            return
        text = "; ".join([what, *(note for note in notes if note)])
        self._found.append((place, f"{key}: {text}" if key else text))

    def lines(self) -> list[str]:
        """Each fault with its place, in the order of `placed`."""
        return [f"{place}: {text}" for place, text in self.placed()]

    def placed(self) -> list[tuple[Place, str]]:
        """Each fault once; those of a file from top to bottom, files by name."""

        def position(found: tuple[Place, str]) -> tuple[str, int, int]:
            place = found[0]
            return place.source if place.line else "", place.line, place.column

        return list(dict.fromkeys(sorted(self._found, key=position)))

    def __len__(self) -> int:
        return len(self._found)


class Wrong(Exception):  # noqa: N818 - never leaves this module
    """A value does not fit its field."""

    def __init__(self, what: str, allowed: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.notes = (f"allowed: {allowed}" if allowed else "", hint)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, as a question, or an empty text."""
    import difflib  # for errors only

    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f'did you mean "{near[0]}"?' if near else ""


@functools.cache
def field_types(record: Kind) -> Mapping[str, Kind]:
    """The type of each field that a file may set, with its annotations."""
    hints = typing.get_type_hints(record, include_extras=True)
    if issubclass(record, Record):
        fields = record.fields_by_name.items()
        return {name: hints[name] for name, own in fields if not own.is_internal}
    import dataclasses  # the `Config` of a plugin

    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def read_record(record: type[T], entry: Entry, *, key: str, faults: Faults) -> T | None:
    """Reads a table into ``record``; returns None if ``faults`` got a fault in it."""
    values = read_fields(cast(type, record), entry, key=key, faults=faults)
    return None if values is None else record(**values)


def read_fields(record: type, entry: Entry, *, key: str, faults: Faults) -> dict[str, Made] | None:
    """The arguments that make a ``record``; None if ``faults`` got a fault."""
    if not isinstance(entry.value, dict):
        faults.add(entry.place, key, f"expected a table, found {describe(entry)}")
        return None
    table = cast(dict[str, Entry], entry.value)
    wanted = field_types(record)
    before = len(faults)
    values: dict[str, Made] = {}
    for name, item in table.items():
        path = f"{key}.{name}" if key else name
        if name in wanted:
            values[name] = read_value(wanted[name], item, key=path, faults=faults)
        else:
            allowed = "allowed: " + ", ".join(sorted(wanted))
            faults.add(item.key_place, path, "unknown key", allowed, did_you_mean(name, wanted))
    for name in missing(record, table):
        faults.add(entry.key_place, f"{key}.{name}" if key else name, "missing")
    return values if len(faults) == before else None


def missing(record: type, given: Mapping[str, object]) -> list[str]:
    """Fields without a default that were not given."""
    return [name for name in required(record) if name not in given]


def required(record: Kind) -> list[str]:
    """Fields without a default."""
    if issubclass(record, Record):
        fields = record.fields_by_name.items()
        return [name for name, own in fields if own.default is REQUIRED and own.factory is None]
    from dataclasses import MISSING
    from dataclasses import fields as fields_of

    return [
        field.name
        for field in fields_of(record)
        if field.default is MISSING and field.default_factory is MISSING
    ]


def is_record(kind: Kind) -> bool:
    """Whether a kind, or the kind of a value, has fields: a record or a dataclass."""
    own: type = kind if isinstance(kind, type) else type(kind)
    return issubclass(own, Record) or "__dataclass_fields__" in vars(own)


def read_value(kind: Kind, entry: Entry, *, key: str, faults: Faults) -> Made:
    """Reads one value of any kind of field."""
    options = members(kind)
    if Table in options:
        return Table(entry)
    if entry.kind == "text":
        entry = entry.replaced(value=from_text(options, str(entry.value)))
    if len(options) > 1:
        return read_option(options, entry, key=key, faults=faults)
    plain = options[0]
    if is_record(plain):
        return read_record(cast(type, plain), entry, key=key, faults=faults)
    if is_array(plain):
        return read_items(typing.get_args(plain)[0], entry, key=key, faults=faults)
    try:
        made = check_scalar(plain, entry.value, entry.kind)
        if isinstance(made, pathlib.Path):
            return beside(entry.place, made)
        return PlacedRule(made, str(entry.place)) if is_placed(plain) else made
    except Wrong as wrong:
        faults.add(entry.place, key, wrong.what, *wrong.notes)
        return None


def is_placed(kind: Kind) -> bool:
    """Whether a value of this kind keeps where it is written."""
    return any(isinstance(note, Parsed) and note.is_placed for note in bare(kind)[1])


def beside(place: Place, path: pathlib.Path) -> pathlib.Path:
    """Makes a path relative to the file that names it."""
    return pathlib.Path(place.source).parent / path if place.line else path


def from_text(options: list[Kind], text: str) -> object:
    """Converts text of the environment or a flag to the first of the kinds that it fits."""
    for option in options:
        plain, _ = bare(option)
        if plain is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if plain in (int, float):
            with contextlib.suppress(ValueError):
                return plain(text)
    return text


def read_option(options: list[Kind], entry: Entry, *, key: str, faults: Faults) -> Made:
    """Reads a union: the option with the form of the value is used."""
    for option in options:
        if has_shape(option, entry.value):
            return read_value(option, entry, key=key, faults=faults)
    shapes = " or ".join(shape_name(option) for option in options if option is not type(None))
    faults.add(entry.place, key, f"expected {shapes}, found {describe(entry)}")
    return None


def read_items(kind: Kind, entry: Entry, *, key: str, faults: Faults) -> tuple[Made, ...]:
    """Reads an array."""
    if not isinstance(entry.value, list):
        faults.add(entry.place, key, f"expected an array, found {describe(entry)}")
        return ()
    return tuple(
        read_value(kind, item, key=f"{key}[{index}]", faults=faults)
        for index, item in enumerate(entry.value)
    )


def origin(kind: Kind) -> object:
    """`typing.get_origin`, whose own type answers too much."""
    return cast(object, typing.get_origin(kind))


def members(kind: Kind) -> list[Kind]:
    """The options of a union, or the kind alone; None last."""
    if origin(kind) in (Union, types.UnionType):
        return sorted(typing.get_args(kind), key=lambda option: option is type(None))
    return [kind]


def bare(kind: Kind) -> tuple[Kind, tuple[object, ...]]:
    """The kind without its annotations, and the annotations."""
    if origin(kind) is Annotated:
        plain, *notes = typing.get_args(kind)
        return plain, tuple(notes)
    return kind, ()


def has_shape(kind: Kind, value: object) -> bool:
    """Whether a raw value may be of this kind."""
    plain, _ = bare(kind)
    if wrapper(plain):
        return isinstance(value, str)
    if is_record(plain):
        return isinstance(value, dict)
    if is_array(plain):
        return isinstance(value, list)
    if plain is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if plain is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if plain is bool:
        return isinstance(value, bool)
    return isinstance(value, str) and plain is not type(None)


def is_array(kind: Kind) -> bool:
    """Whether the kind is written as an array."""
    return origin(kind) in (tuple, list, Sequence)


def shape_name(kind: Kind) -> str:
    """The name of this kind, for users."""
    plain, _ = bare(kind)
    if is_record(plain) and not wrapper(plain):
        return "a table"
    names: dict[Any, str] = {
        bool: "true or false",
        float: "a number",
        int: "a whole number",
    }
    return "an array" if is_array(plain) else names.get(plain, "text")


def describe(entry: Entry) -> str:
    """The found value, for users."""
    shown = {"table": "a table", "array": "an array", "datetime": "a date"}
    if entry.kind in shown:
        return shown[entry.kind]
    text = repr(entry.value) if isinstance(entry.value, str) else str(entry.value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def check_scalar(kind: Kind, value: object, found: str) -> Made:
    """One scalar in its final form.

    Raises:
        Wrong: it does not fit.
    """
    plain, notes = bare(kind)
    if origin(plain) is Literal:
        return check_word(typing.get_args(plain), value, found)
    make = wrapper(plain)
    if make and isinstance(value, make):
        return value
    if make and not isinstance(value, str):
        raise Wrong(f"expected text, found {found or type(value).__name__}")  # it may be a secret
    if not make and not has_shape(plain, value):
        entry = Entry(value, found, Place(""), Place(""))
        wanted = shape_name(kind)
        raise Wrong(f"expected {wanted}, found {describe(entry)}", allowed_text(notes))
    for note in notes:
        check_note(note, value)
    if make:
        return make(value)
    return float(cast(float, value)) if plain is float else value


def wrapper(plain: Kind) -> type | None:
    """The class that wraps the text: a path, a secret."""
    if plain is pathlib.Path:
        return pathlib.Path
    maker = origin(plain) or plain
    if getattr(maker, "made_from_text", False):
        return cast(type, maker)
    return None


def check_word(words: tuple[Any, ...], value: object, found: str) -> object:
    """A word of a fixed list."""
    if value in words and isinstance(value, str):
        return value
    entry = Entry(value, found, Place(""), Place(""))
    hint = did_you_mean(value, words) if isinstance(value, str) else ""
    raise Wrong(f"found {describe(entry)}", ", ".join(words), hint)


def check_note(note: object, value: object) -> None:
    """Checks a value by a `Range` or a `Parsed`."""
    if isinstance(note, Range) and not note.low <= cast(float, value) <= note.high:
        raise Wrong(f"{value} is out of range", allowed_text((note,)))
    if isinstance(note, Parsed):
        try:
            note.check(cast(str, value))
        except (ValueError, MqttError) as error:
            raise Wrong(str(error), note.allowed) from error


def allowed_text(notes: Iterable[object]) -> str:
    """The allowed values of the annotations, for users."""
    for note in notes:
        if isinstance(note, Range):
            return f"{note.low:,} to {note.high:,}".replace(",", "_")
        if isinstance(note, Parsed):
            return note.allowed
    return ""


def check_record(record: Record, *, key: str, faults: Faults) -> None:
    """Checks a record that Python code made by the rules of its fields.

    Values that are the defaults of their fields are not checked: a test does that.
    """
    place = Place(type(record).__name__)
    fields = record.fields_by_name
    given = [name for name, value in vars(record).items() if value is not fields[name].default]
    own: Kind = type(record)
    kinds = field_types(own) if given else {}
    for name in given:
        if name in kinds:
            path = f"{key}.{name}" if key else name
            entry = Entry(getattr(record, name), "", place, place)
            check_made(kinds[name], entry, key=path, faults=faults)


def check_made(kind: Kind, entry: Entry, *, key: str, faults: Faults) -> None:
    """Checks one attribute, or all its parts."""
    options = members(kind)
    value = entry.value
    if Table in options or (value is None and type(None) in options):
        return
    if isinstance(value, Record) and type(value) in [bare(option)[0] for option in options]:
        check_record(value, key=key, faults=faults)
        return
    if isinstance(value, tuple) and is_array(options[0]):
        for index, item in enumerate(value):
            inner = Entry(item, "", entry.place, entry.place)
            item_kind = typing.get_args(options[0])[0]
            check_made(item_kind, inner, key=f"{key}[{index}]", faults=faults)
        return
    check_made_scalar(options, entry, key=key, faults=faults)


def check_made_scalar(options: list[Kind], entry: Entry, *, key: str, faults: Faults) -> None:
    """Checks a scalar attribute against the options that are scalars."""
    first: Wrong | None = None
    for option in options:
        try:
            check_scalar(option, entry.value, "")
        except Wrong as wrong:
            first = first or wrong
        else:
            return
    if first:
        faults.add(entry.place, key, first.what, *first.notes)
