"""Texts of brokers and clients for terminals: without control characters, without passwords."""

import sys
from typing import Final

SURROGATES: Final = 0xDC00
"""Python's `surrogateescape` adds bytes that are not UTF-8 to this number."""


def printable(raw: str) -> str:
    """The text with control characters, and others that are not printable, as escapes."""
    if raw.isprintable():
        return raw
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in raw)


def printable_bytes(raw: bytes) -> bytes:
    """The bytes for a terminal: control characters but tab and newline are escapes.

    So is what is not UTF-8.
    """
    text = raw.decode(errors="surrogateescape")
    if text.isprintable():
        return raw
    return "".join(mark if mark in "\t\n" else escaped(mark) for mark in text).encode()


def escaped(mark: str) -> str:
    """A character, or its escape if it is not printable; a byte that is not UTF-8 as one."""
    if "\udc80" <= mark <= "\udcff":
        return f"\\x{ord(mark) - SURROGATES:02x}"
    return printable(mark)


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON; characters that are not printable, and lone surrogates, are escapes.

    So are all that are not ASCII, if the encoding of the output may not have them.

    Raises:
        ValueError: a number is not finite.
    """
    import json  # `pub` prints none

    return printable_json(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent))


def printable_json(text: str) -> str:
    """JSON that another program has written, with the escapes of `json_text`."""
    is_ascii = sys.stdout.encoding.lower() not in ("utf-8", "utf8")
    if text.isprintable() and (text.isascii() or not is_ascii):
        return text
    return "".join(mark if is_shown(mark, is_ascii=is_ascii) else utf_16(mark) for mark in text)


def is_shown(mark: str, *, is_ascii: bool) -> bool:
    """Whether a character of JSON is no escape."""
    return mark == "\n" or (mark.isprintable() and (mark.isascii() or not is_ascii))


def utf_16(mark: str) -> str:
    """A character as an escape of JSON."""
    units = mark.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)


def without_login(url: str) -> str:
    """The URL without user name and password."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
