"""Texts of brokers and clients for terminals: without control characters, without passwords."""


def printable(raw: str) -> str:
    """The text with control characters, and others that are not printable, as escapes."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in raw)


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON; characters that are not printable, and lone surrogates, are escapes.

    Raises:
        ValueError: a number is not finite.
    """
    import json  # `pub` prints none

    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark == "\n" else utf_16(mark) for mark in text)


def utf_16(mark: str) -> str:
    """A character as an escape of JSON."""
    units = mark.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)


def without_login(url: str) -> str:
    """The URL without user name and password."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
