"""Output of received messages: Mosquitto's `-F` formats, and JSON."""

import base64
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from mqttcore.cli.failure import USAGE, CommandError
from mqttcore.cli.terminal import json_text, printable_bytes
from mqttcore.packets import Properties, Publish

SEQUENCE: Final = re.compile(
    r"%(?P<flags>[0-]*)(?P<width>\d*)(?:\.(?P<most>\d+))?(?P<field>.)"
    r"|@(?P<time>.)|\\(?P<escape>.)",
    re.DOTALL,
)
ESCAPES: Final = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\033", "n": b"\n", "r": b"\r"} | {
    "t": b"\t",
    "v": b"\v",
}
Part = Callable[[Publish, float], bytes]
"""Returns a part of the output for a message that came at a time, in unix seconds."""


class MessageFormat:
    """A format string, as ``%t %p``.

    Args:
        text: The format.
        end: What follows each message.
        is_pretty: JSON is on several lines; payloads that are CBOR or Sparkplug B are JSON, too.
        is_for_terminal: Control characters of messages are escapes.

    Raises:
        CommandError: it has a sequence that does not exist.
    """

    def __init__(
        self,
        text: str,
        *,
        end: bytes = b"",
        is_pretty: bool = False,
        is_for_terminal: bool = False,
    ) -> None:
        self._parts: list[Part] = []
        place = 0
        for found in SEQUENCE.finditer(text):
            self._add(constant(os.fsencode(text[place : found.start()])))
            part = part_of(found, is_pretty=is_pretty)
            has_message = is_for_terminal and bool(found["field"])
            self._add(shown(part) if has_message else part)
            place = found.end()
        rest = text[place:]
        if rest.endswith(("%", "@", "\\")):
            raise CommandError(f"-F {text!r}: nothing follows the last {rest[-1]!r}", status=USAGE)
        self._add(constant(os.fsencode(rest) + end))

    def _add(self, part: Part) -> None:
        self._parts.append(part)

    def render(self, message: Publish, now: float) -> bytes:
        """The output for a message that came at ``now``, in unix seconds."""
        return b"".join(part(message, now) for part in self._parts)


def constant(raw: bytes) -> Part:
    """A part that is the same for all messages."""
    return lambda _message, _now: raw


def shown(part: Part) -> Part:
    """The part without control characters, for a terminal."""
    return lambda message, now: printable_bytes(part(message, now))


def part_of(found: re.Match[str], *, is_pretty: bool) -> Part:
    """A part of the output for one sequence."""
    if letter := found["time"]:
        return clock(letter)
    if letter := found["escape"]:
        if letter not in ESCAPES:
            raise unknown(found, "\\" + ", \\".join(ESCAPES))
        return constant(ESCAPES[letter])
    letter = found["field"]
    if letter in "jJ":
        return lambda message, now: as_json(
            message, now, is_raw=letter == "J", is_pretty=is_pretty
        ).encode()
    if letter == "p" and is_pretty:
        return pretty_payload()
    if letter not in FIELDS:
        raise unknown(found, "%" + ", %".join(sorted([*FIELDS, "j", "J"])))
    return padded(FIELDS[letter], found)


def pretty_payload() -> Part:
    """The payload as JSON on several lines, if it can be shown so."""
    from mqttcore.cli.pretty import Pretty

    pretty = Pretty()
    return lambda message, _now: pretty.payload(message)


def unknown(found: re.Match[str], allowed: str) -> CommandError:
    """A sequence that does not exist."""
    return CommandError(f"-F: unknown sequence {found[0]!r}; allowed: {allowed}", status=USAGE)


def clock(letter: str) -> Part:
    """A part of the time, in the letters of strftime, or ``N``: nanoseconds."""
    if letter == "@":
        return constant(b"@")
    if letter == "N":
        return lambda _message, now: f"{int(now % 1 * 1e9):09d}".encode()
    return lambda _message, now: time.strftime(f"%{letter}", time.localtime(now)).encode()


def padded(part: Part, found: re.Match[str]) -> Part:
    """The part, cut and padded by flags and widths."""
    flags, width = found["flags"], int(found["width"] or 0)
    most = int(found["most"]) if found["most"] else None
    if not width and most is None:
        return part

    def made(message: Publish, now: float) -> bytes:
        raw = part(message, now)[:most]
        if "-" in flags:
            return raw.ljust(width)
        return raw.rjust(width, b"0" if "0" in flags and found["field"] in "AEFlmSXx" else b" ")

    return made


def of_property(name: str) -> Part:
    """The values of a property, or nothing."""
    return lambda message, _now: b" ".join(map(raw_of, values(message.properties, name)))


def values(properties: Properties, name: str) -> Sequence[object]:
    """All values of a property."""
    return [value for found, value in properties if found == name]


def raw_of(value: object) -> bytes:
    """A value of a property as it is printed."""
    if isinstance(value, tuple):
        return ":".join(map(str, value)).encode()
    if isinstance(value, bytes):
        return value
    return str(int(value) if isinstance(value, bool) else value).encode()


def iso(now: float) -> str:
    """A time as Mosquitto's ``%I`` has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(now))


FIELDS: Final[dict[str, Part]] = {
    "%": constant(b"%"),
    "A": of_property("topic_alias"),
    "C": of_property("content_type"),
    "D": of_property("correlation_data"),
    "E": of_property("message_expiry_interval"),
    "F": of_property("payload_format_indicator"),
    "I": lambda _message, now: iso(now).encode(),
    "l": lambda message, _now: str(len(message.payload)).encode(),
    "m": lambda message, _now: str(message.packet_id or 0).encode(),
    "P": of_property("user_property"),
    "p": lambda message, _now: message.payload,
    "q": lambda message, _now: str(message.qos).encode(),
    "R": of_property("response_topic"),
    "r": lambda message, _now: str(int(message.retain)).encode(),
    "S": of_property("subscription_identifier"),
    "t": lambda message, _now: message.topic.encode(),
    "U": lambda _message, now: f"{now:.9f}".encode(),
    "X": lambda message, _now: message.payload.hex().upper().encode(),
    "x": lambda message, _now: message.payload.hex().encode(),
}
JSON_FORMAT: Final = "%j"
TOPIC_AND_PAYLOAD: Final = "%t %p"
PAYLOAD: Final = "%p"


def as_json(message: Publish, now: float, *, is_raw: bool = False, is_pretty: bool = False) -> str:
    """A message as JSON, with Mosquitto's names.

    A payload that is not UTF-8 is ``payload_base64``. With ``is_raw`` the payload is JSON, too.

    Raises:
        CommandError: with ``is_raw``, the payload is not JSON.
    """
    micros = time.strftime(f"%Y-%m-%dT%H:%M:%S.{int(now % 1 * 1e6):06d}%z", time.localtime(now))
    found: dict[str, object] = {"tst": micros, "topic": message.topic, "qos": message.qos}
    found["retain"] = int(message.retain)
    found["payloadlen"] = len(message.payload)
    if message.qos:
        found["mid"] = message.packet_id
    if message.properties:
        found["properties"] = properties_of(message.properties)
    try:
        found |= payload_of(message, is_raw=is_raw)
        return json_text(found, indent=2 if is_pretty else None)
    except (ValueError, RecursionError) as error:
        text = f"the payload on topic {message.topic!r} is not JSON: {error}"
        raise CommandError(text) from error


def payload_of(message: Publish, *, is_raw: bool) -> dict[str, object]:
    """The payload: as text, as JSON, or in base64."""
    if is_raw:
        return {"payload": json.loads(message.payload)}
    try:
        return {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(message.payload).decode()}


def properties_of(properties: Properties) -> dict[str, object]:
    """The properties, with Mosquitto's names."""
    found: dict[str, object] = {}
    for name, value in properties:
        if isinstance(value, tuple):
            user = found.setdefault("user-properties", [])
            assert isinstance(user, list)  # noqa: S101 -- made in the line above
            user.append(list(value))
        elif isinstance(value, bytes):
            found[name.replace("_", "-")] = value.decode(errors="backslashreplace")
        else:
            found[name.replace("_", "-")] = int(value) if isinstance(value, bool) else value
    return found
