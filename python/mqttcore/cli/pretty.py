"""Payloads for people: JSON on several lines, of JSON, CBOR and Sparkplug B (`sub --pretty`)."""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Final

from mqttcore.cli.sparkplug import Births, finite, metrics_of
from mqttcore.cli.terminal import json_text
from mqttcore.packets import Publish

MAX_DEPTH: Final = 64
OPEN: Final = 31
"""Short length of a text, list or map whose end is a byte of its own."""
BREAK: Final = 0xFF
SIMPLE_OR_FLOAT: Final = 7
"""The major type of numbers with a fraction, true, false and null."""
LENGTH_BYTES: Final = {24: 1, 25: 2, 26: 4, 27: 8}
"""Bytes of the length behind the first byte; other values are the length itself."""
FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
SIMPLE: Final = {20: False, 21: True, 22: None, 23: None}


class Pretty:
    """Shows payloads; keeps the names of Sparkplug metrics that a BIRTH message has declared."""

    def __init__(self) -> None:
        self._births = Births()

    def payload(self, message: Publish) -> bytes:
        """The payload as JSON on several lines; as it came if it is in none of the formats."""
        try:
            return json_text(self._value(message), indent=2).encode()
        except (ValueError, RecursionError):
            return message.payload

    def _value(self, message: Publish) -> object:
        metrics = metrics_of(message.topic, message.payload, self._births)
        if metrics is not None:
            return metrics
        try:
            text = message.payload.decode()
        except UnicodeDecodeError:
            return composite(Cbor(message.payload).whole())
        return composite(json.loads(text, object_pairs_hook=distinct))


def composite(value: object) -> object:
    """The value, if it is a list or a map: bytes that are one by chance are rare.

    Raises:
        ValueError: it is another value.
    """
    if not isinstance(value, list | dict):
        raise ValueError("neither a list nor a map")
    return value


def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON.

    Raises:
        ValueError: a key is there twice: an object would show one of the values only.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


class Cbor:
    """Reads one value of CBOR (RFC 8949) as a value of JSON.

    Byte strings are ``h'0a'``, numbers that are not finite are texts, a tag is a map.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def whole(self) -> object:
        """The value that all bytes are.

        Raises:
            ValueError: the bytes are not one value.
        """
        value = self._read()
        if self._at != len(self._data):
            raise ValueError("bytes follow the value")
        return value

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("the value is cut off")
        self._at += count
        return taken

    def _read(self) -> object:
        kind, short = divmod(self._take(1)[0], 32)
        if kind == SIMPLE_OR_FLOAT:
            return self._simple(short)
        length = None if short == OPEN and kind in OPENED else self._length(short)
        return READERS[kind](self, length)

    def _length(self, short: int) -> int:
        if short not in LENGTH_BYTES and short >= min(LENGTH_BYTES):
            raise ValueError("the length is reserved")
        return int.from_bytes(self._take(LENGTH_BYTES[short])) if short in LENGTH_BYTES else short

    def _simple(self, short: int) -> object:
        if short in SIMPLE:
            return SIMPLE[short]
        if short not in FLOATS:
            raise ValueError("the simple value is unknown")
        form = FLOATS[short]
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return finite(value)

    def _items(self, count: int | None) -> Iterator[object]:
        """So many values, or those up to the break; each has a byte at least."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("the value is nested too deep")
        left = count
        while left != 0:
            if left is None and self._data[self._at : self._at + 1] == bytes([BREAK]):
                self._at += 1
                break
            yield self._read()
            left = None if left is None else left - 1
        self._depth -= 1

    def _bytes(self, length: int | None) -> str:
        if length is not None:
            return f"h'{self._take(length).hex()}'"
        return f"h'{''.join(str(part)[2:-1] for part in self._items(None))}'"

    def _text(self, length: int | None) -> str:
        if length is not None:
            return self._take(length).decode()
        return "".join(map(str, self._items(None)))

    def _list(self, count: int | None) -> list[object]:
        return list(self._items(count))

    def _map(self, count: int | None) -> dict[str, object]:
        flat = self._list(None if count is None else 2 * count)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return distinct([(name_of(key), value) for key, value in pairs])

    def _tag(self, number: int | None) -> dict[str, object]:
        (value,) = self._items(1)
        return {f"tag {number}": value}


READERS: Final[dict[int, Callable[[Cbor, int | None], object]]] = {
    0: lambda _cbor, number: number,
    1: lambda _cbor, number: -1 - (number or 0),
    2: Cbor._bytes,
    3: Cbor._text,
    4: Cbor._list,
    5: Cbor._map,
    6: Cbor._tag,
}
"""Reads a value of a major type with its length; `None` if a break ends it."""
OPENED: Final = frozenset({2, 3, 4, 5})
"""The major types that a break may end."""


def name_of(key: object) -> str:
    """A key of a map as a name of JSON."""
    return key if isinstance(key, str) else json.dumps(key)
