"""LDAP version 3 on the wire (RFC 4511): bind, search and their answers, in BER.

Filters are templates that are parsed once (RFC 4515). Names of clients are separate assertion
values, so that their characters have no meaning in the filter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SEQUENCE, SET, OCTETS, INTEGER, BOOLEAN, ENUMERATED = 0x30, 0x31, 0x04, 0x02, 0x01, 0x0A
BIND, BIND_ANSWER, UNBIND = 0x60, 0x61, 0x42
SEARCH, ENTRY, DONE, REFERENCE = 0x63, 0x64, 0x65, 0x73
AND, OR, NOT, EQUAL, SUBSTRINGS = 0xA0, 0xA1, 0xA2, 0xA3, 0xA4
AT_LEAST, AT_MOST, PRESENT, ALIKE = 0xA5, 0xA6, 0x87, 0xA8
INITIAL, ANY, FINAL = 0x80, 0x81, 0x82
EXTENDED_ANSWER, ANSWER_NAME = 0x78, 0x8A
SUBTREE, NEVER = 2, 0
VERSION = 3
NOTICE_OF_DISCONNECTION = b"1.3.6.1.4.1.1466.20036"

ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)+")
ITEM = re.compile(r"([^=<>~()*]+)(=|>=|<=|~=)([^()]*)")
MARK_OR_ESCAPE = re.compile(r"%[uc]|\\[0-9a-fA-F]{2}|\\")
KINDS = {"=": EQUAL, ">=": AT_LEAST, "<=": AT_MOST, "~=": ALIKE}
DEPTH_MAX = 16


class LdapWireError(ValueError):
    """Bytes are not an answer of LDAP."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of an operation."""

    code: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a search found."""

    name: str
    attributes: Mapping[str, Sequence[str]]
    """Values by name in lower case; values that are not text are left out."""


def tlv(tag: int, *parts: bytes) -> bytes:
    """A tag, a length and a value."""
    value = b"".join(parts)
    if len(value) < 0x80:
        return bytes([tag, len(value)]) + value
    size = (len(value).bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + len(value).to_bytes(size) + value


def integer(value: int, tag: int = INTEGER) -> bytes:
    """A number that is not negative."""
    return tlv(tag, value.to_bytes(value.bit_length() // 8 + 1))


def bind_request(number: int, name: str, password: bytes) -> bytes:
    """A simple bind."""
    simple = tlv(0x80, password)
    request = tlv(BIND, integer(VERSION), tlv(OCTETS, name.encode()), simple)
    return tlv(SEQUENCE, integer(number), request)


def search_request(
    number: int, *, base: str, found: bytes, attributes: Sequence[str], most: int, seconds: int
) -> bytes:
    """A search below ``base`` with a filter in BER."""
    request = tlv(
        SEARCH,
        tlv(OCTETS, base.encode()),
        integer(SUBTREE, ENUMERATED),
        integer(NEVER, ENUMERATED),
        integer(most),
        integer(seconds),
        tlv(BOOLEAN, b"\0"),
        found,
        tlv(SEQUENCE, *(tlv(OCTETS, name.encode()) for name in attributes)),
    )
    return tlv(SEQUENCE, integer(number), request)


def unbind_request(number: int) -> bytes:
    """The end of a connection."""
    return tlv(SEQUENCE, integer(number), tlv(UNBIND))


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and values, one after the other.

    Raises:
        LdapWireError: they do not fill ``data``.
    """
    place = 0
    while place < len(data):
        if len(data) < place + 2:
            raise LdapWireError("a length is missing")
        tag, length = data[place : place + 2]
        place += 2
        if length >= 0x80:
            size = length & 0x7F
            if not 0 < size <= 4 or len(data) < place + size:
                raise LdapWireError("a length is malformed")
            length = int.from_bytes(data[place : place + size])
            place += size
        if len(data) < place + length:
            raise LdapWireError("a value is cut off")
        yield tag, data[place : place + length]
        place += length


def message_of(content: bytes) -> tuple[int, int, bytes]:
    """Number, kind and value of a message.

    Raises:
        LdapWireError: the content is not a message.
    """
    parts = list(elements(content))
    if len(parts) < 2 or parts[0][0] != INTEGER or len(parts[0][1]) > 4:
        raise LdapWireError("not a message")
    return int.from_bytes(parts[0][1]), *parts[1]


def result_of(value: bytes) -> Result:
    """The result in an answer.

    Raises:
        LdapWireError: the answer has no result.
    """
    parts = list(elements(value))
    if len(parts) < 3 or parts[0][0] != ENUMERATED or not 0 < len(parts[0][1]) <= 2:
        raise LdapWireError("an answer without a result")
    return Result(int.from_bytes(parts[0][1]))


def is_disconnection(number: int, kind: int, value: bytes) -> bool:
    """Whether a message is the notice with which a server ends a connection (RFC 4511, 4.4.1).

    Raises:
        LdapWireError: its value is malformed.
    """
    if number != 0 or kind != EXTENDED_ANSWER:
        return False
    return (ANSWER_NAME, NOTICE_OF_DISCONNECTION) in elements(value)


def entry_of(value: bytes) -> Entry:
    """An entry in an answer.

    Raises:
        LdapWireError: the value is not an entry.
    """
    parts = list(elements(value))
    if [tag for tag, _ in parts] != [OCTETS, SEQUENCE]:
        raise LdapWireError("not an entry")
    attributes: dict[str, Sequence[str]] = {}
    for _, attribute in elements(parts[1][1]):
        fields = list(elements(attribute))
        if [tag for tag, _ in fields] != [OCTETS, SET]:
            raise LdapWireError("not an attribute")
        texts = [text_of(item) for _, item in elements(fields[1][1])]
        kind = (text_of(fields[0][1]) or "").lower()
        attributes[kind] = [text for text in texts if text is not None]
    name = text_of(parts[0][1])
    if name is None:
        raise LdapWireError("the name of an entry is not text")
    return Entry(name, attributes)


def text_of(data: bytes) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class Filter:
    """A filter with ``%u`` and ``%c`` in its values.

    Raises:
        ValueError: the text is not a filter.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.encode({"%u": "u", "%c": "c"})

    def attributes_of_user(self) -> set[str]:
        """The attributes whose value is ``%u`` alone."""
        name = "\0user\0"
        found = self.encode({"%u": name, "%c": "c"})
        return set(equal_attributes(found, name.encode()))

    def encode(self, names: Mapping[str, str]) -> bytes:
        """The filter in BER, with names inserted."""
        encoded, end = filter_at(self._text, 0, names, depth=0)
        if end != len(self._text):
            raise ValueError("the filter has text after its last parenthesis")
        return encoded


def equal_attributes(encoded: bytes, value: bytes) -> Iterator[str]:
    """The attributes that a filter compares with a value; those below ``!`` are left out."""
    for tag, content in elements(encoded):
        if tag in (AND, OR):
            yield from equal_attributes(content, value)
        elif tag == EQUAL:
            (_, attribute), (_, wanted) = elements(content)
            if wanted == value:
                yield attribute.decode()


def filter_at(text: str, start: int, names: Mapping[str, str], *, depth: int) -> tuple[bytes, int]:
    """The filter that begins at a position, and its end."""
    if text[start : start + 1] != "(" or depth > DEPTH_MAX:
        raise ValueError(f"expected a parenthesis at character {start + 1}, or too many of them")
    sign = text[start + 1 : start + 2]
    if sign and sign in "&|!":
        parts, place = [], start + 2
        while text[place : place + 1] == "(":
            part, place = filter_at(text, place, names, depth=depth + 1)
            parts.append(part)
        if text[place : place + 1] != ")" or not parts or (sign == "!" and len(parts) > 1):
            raise ValueError(f"{sign} has no filters, or no end")
        return tlv({"&": AND, "|": OR, "!": NOT}[sign], *parts), place + 1
    found = ITEM.match(text, start + 1)
    if found is None or text[found.end() : found.end() + 1] != ")":
        raise ValueError(f"expected attribute=value at character {start + 2}")
    return item_of(found[1], found[2], found[3], names), found.end() + 1


def item_of(attribute: str, sign: str, value: str, names: Mapping[str, str]) -> bytes:
    """Parses one assertion."""
    if not ATTRIBUTE.fullmatch(attribute):
        raise ValueError(f"{attribute!r} is not an attribute")
    if sign == "=" and value == "*":
        return tlv(PRESENT, attribute.encode())
    pieces = [filled(piece, names) for piece in value.split("*")]
    if len(pieces) == 1:
        return tlv(KINDS[sign], tlv(OCTETS, attribute.encode()), tlv(OCTETS, pieces[0]))
    if sign != "=":
        raise ValueError(f"* does not go with {sign}")
    tags = [INITIAL, *[ANY] * (len(pieces) - 2), FINAL]
    parts = [tlv(tag, piece) for tag, piece in zip(tags, pieces, strict=True) if piece]
    return tlv(SUBSTRINGS, tlv(OCTETS, attribute.encode()), tlv(SEQUENCE, *parts))


def filled(piece: str, names: Mapping[str, str]) -> bytes:
    r"""A part of a value: inserts names, and converts escapes like ``\2a`` to bytes."""
    made, place = b"", 0
    for mark in MARK_OR_ESCAPE.finditer(piece):
        made += piece[place : mark.start()].encode()
        if mark[0] == "\\":
            raise ValueError("a backslash without two hexadecimal digits")
        made += names[mark[0]].encode() if mark[0] in names else bytes.fromhex(mark[0][1:])
        place = mark.end()
    return made + piece[place:].encode()
