"""Payloads of Sparkplug B: a Protocol Buffers message with metrics."""

import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

MAX_DEPTH: Final = 8
"""Templates within templates."""
MAX_BIRTHS: Final = 1_000
"""Nodes and devices whose names are kept."""
TOPIC: Final = re.compile(
    r"(?:\$sparkplug/certificates/)?spBv1\.0/([^/]+)/[ND](BIRTH|DEATH|DATA|CMD)/(.+)"
)
TYPES: Final = (
    *("Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float", "Double", "Boolean", "String", "DateTime", "Text", "UUID", "DataSet", "Bytes"),
    *("File", "Template", "PropertySet", "PropertySetList"),
)
SIGNED_BITS: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
VARINT_BYTES: Final = 10
LAST_OF_VARINT: Final = 0x80
FIXED_BYTES: Final = {1: 8, 5: 4}
"""Bytes of a field, by wire type."""
WITH_LENGTH: Final = 2
"""The wire type of bytes, texts and messages."""

Content = int | bytes
Message = dict[str, Any]  # what was read, by the names of the tables below
Read = Callable[[Content, int], object]
"""Reads the content of a field at a depth."""


class Births:
    """Names and types of metrics by their alias, of the last BIRTH of each node and device."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], dict[int, Message]] = {}

    def learn(self, source: tuple[str, str], metrics: list[Message]) -> None:
        """Keeps the names of a BIRTH, in place of those of an earlier one."""
        self._names.pop(source, None)
        if len(self._names) >= MAX_BIRTHS:
            del self._names[next(iter(self._names))]
        self._names[source] = {
            metric["alias"]: metric for metric in metrics if "alias" in metric and "name" in metric
        }

    def complete(self, source: tuple[str, str], metric: Message) -> Message:
        """The metric with the name and the type of its alias, if they are known."""
        born = self._names.get(source, {}).get(metric.get("alias", -1), {})
        known = {key: born[key] for key in ("name", "type") if key in born}
        return known | metric


def metrics_of(topic: str, payload: bytes, births: Births) -> Message | None:
    """The payload of a Sparkplug topic, as values of JSON; `None` if it is none."""
    found = TOPIC.fullmatch(topic)
    if found is None or not payload:
        return None
    source = (found[1], found[3])
    try:
        shown = read(payload, PAYLOAD, 0)
        metrics = shown.setdefault("metrics", [])
        if found[2] == "BIRTH":
            births.learn(source, metrics)
        shown["metrics"] = [readable(births.complete(source, metric)) for metric in metrics]
    except (ValueError, struct.error):
        return None
    return shown


def readable(metric: Message) -> Message:
    """A metric with the value that its type says."""
    kind = metric.get("type", "Unknown")
    value = metric.get("value")
    if kind in SIGNED_BITS and isinstance(value, int):
        value = signed(value, SIGNED_BITS[kind])
    if metric.pop("is_null", False):
        value = None
    return {**metric, "value": value}


def signed(value: int, bits: int) -> int:
    """A number of which the last bits are the two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def read(data: bytes, table: dict[int, tuple[str, Read]], depth: int) -> Message:
    """Reads a message; `table` has the name and the reader of each field.

    Raises:
        ValueError: the bytes are no such message.
    """
    if depth > MAX_DEPTH:
        raise ValueError("the message is nested too deep")
    found: Message = {}
    for number, content in fields(data):
        name, reader = table.get(number, ("", whole))
        if name in REPEATED:
            found.setdefault(name, []).append(reader(content, depth + 1))
        elif name:
            found[name] = reader(content, depth + 1)
    return found


def fields(data: bytes) -> Iterator[tuple[int, Content]]:
    """The fields of a message: number and content.

    Raises:
        ValueError: it is cut off, or no message.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = divmod(key, 8)
        if wire == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        if wire == WITH_LENGTH:
            size, at = varint(data, at)
        elif wire in FIXED_BYTES:
            size = FIXED_BYTES[wire]
        else:
            raise ValueError("no message of Protocol Buffers")
        if size > len(data) - at:
            raise ValueError("the message is cut off")
        yield number, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number at an offset, and the offset behind it."""
    value = 0
    for index, byte in enumerate(data[at : at + VARINT_BYTES]):
        value |= (byte % LAST_OF_VARINT) << (7 * index)
        if byte < LAST_OF_VARINT:
            return value % (1 << 64), at + index + 1
    raise ValueError("a number does not end")


def whole(content: Content, _depth: int = 0) -> int:
    """A whole number."""
    if isinstance(content, bytes):
        raise ValueError("bytes in place of a number")
    return content


def raw(content: Content) -> bytes:
    """Bytes."""
    if isinstance(content, int):
        raise ValueError("a number in place of bytes")
    return content


def kind_of(content: Content, _depth: int) -> str:
    """The name of a type."""
    number = whole(content)
    return TYPES[number] if number < len(TYPES) else f"type {number}"


def flag(content: Content, _depth: int) -> bool:
    """True or false."""
    return bool(whole(content))


def text(content: Content, _depth: int) -> str:
    """A text."""
    return raw(content).decode()


def hexadecimal(content: Content, _depth: int) -> str:
    """Bytes, as those of CBOR are written."""
    return f"h'{raw(content).hex()}'"


def single(content: Content, _depth: int) -> float | str:
    """A number of 32 bits: the shortest one that is the same."""
    (value,) = struct.unpack("<f", raw(content))
    if not math.isfinite(value):
        return str(value)
    tries = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next(short for short in tries if struct.pack("<f", short) == content)


def double(content: Content, _depth: int) -> float | str:
    """A number of 64 bits."""
    return finite(*struct.unpack("<d", raw(content)))


def finite(value: float) -> float | str:
    """The number; as a text if JSON has no such number."""
    return value if math.isfinite(value) else str(value)


def below(name: str) -> Read:
    """Reads a message within a message; `name` is that of its table."""
    return lambda content, depth: read(raw(content), TABLES[name], depth)


def cells(content: Content, depth: int) -> list[object]:
    """A row of a data set."""
    return [cell.get("value") for cell in read(raw(content), ROW, depth).get("cells", [])]


def data_set(content: Content, depth: int) -> Message:
    """A table: its columns and its rows, with the values that the types of the columns say."""
    found = read(raw(content), DATA_SET, depth)
    kinds = found.get("types", [])
    rows = [
        [
            signed(value, SIGNED_BITS[kind]) if kind in SIGNED_BITS else value
            for value, kind in zip(row, kinds, strict=False)
        ]
        for row in found.get("rows", [])
    ]
    return {"columns": found.get("columns", []), "rows": rows}


def template(content: Content, depth: int) -> list[Message]:
    """The metrics of a template."""
    return [readable(metric) for metric in read(raw(content), TEMPLATE, depth).get("metrics", [])]


SIMPLE: Final[tuple[Read, ...]] = (whole, whole, single, double, flag, text)
"""The values of metrics and of cells, in the order of their fields."""
REPEATED: Final = frozenset({"metrics", "cells", "columns", "types", "rows"})
METRIC: Final[dict[int, tuple[str, Read]]] = {
    1: ("name", text),
    2: ("alias", whole),
    3: ("timestamp", whole),
    4: ("type", kind_of),
    5: ("is_historical", flag),
    7: ("is_null", flag),
    **{10 + at: ("value", reader) for at, reader in enumerate(SIMPLE)},
    16: ("value", hexadecimal),
    17: ("value", data_set),
    18: ("value", template),
}
PAYLOAD: Final[dict[int, tuple[str, Read]]] = {
    1: ("timestamp", whole),
    2: ("metrics", below("metric")),
    3: ("seq", whole),
}
TEMPLATE: Final[dict[int, tuple[str, Read]]] = {2: ("metrics", below("metric"))}
CELL: Final[dict[int, tuple[str, Read]]] = {
    1 + at: ("value", reader) for at, reader in enumerate(SIMPLE)
}
ROW: Final[dict[int, tuple[str, Read]]] = {1: ("cells", below("cell"))}
DATA_SET: Final[dict[int, tuple[str, Read]]] = {
    2: ("columns", text),
    3: ("types", kind_of),
    4: ("rows", cells),
}
TABLES: Final = {"metric": METRIC, "cell": CELL}
