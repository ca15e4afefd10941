"""Machine-readable lines of the log: JSON and logfmt.

They have these keys, in this order, and only those that are known: ts, level, class, event,
client_id, username, ip, listener, reason_code, text, suppressed.
"""

import datetime
import json
import logging
import re
from typing import Final

from mqttcore.logs import FIELDS

NUMBERS: Final = frozenset({"reason_code", "suppressed"})
BARE: Final = re.compile(r"[^\s\"=\\\x00-\x20\x7f-\x9f\u2028\u2029]+")
"""Values that logfmt writes without quotation marks."""

Value = str | int


def fields(record: logging.LogRecord) -> dict[str, Value]:
    """The keys of a record; for lines of Python code, the class is the logger."""
    time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    found: dict[str, Value] = {
        "ts": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
    }
    known: list[tuple[str, str]] | None = getattr(record, FIELDS, None)
    if known is None:
        return {**found, "class": record.name, "text": record.getMessage()}
    return {**found, **{key: int(text) if key in NUMBERS else text for key, text in known}}


class MachineFormatter(logging.Formatter):
    """Formats each record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        found = fields(record)
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return self.line(found)

    def line(self, found: dict[str, Value]) -> str:
        """The keys and values as one line."""
        raise NotImplementedError


class JsonFormatter(MachineFormatter):
    """One JSON object in each line; characters beyond ASCII are escaped."""

    def line(self, found: dict[str, Value]) -> str:
        """The keys and values as one line."""
        return json.dumps(found)


class LogfmtFormatter(MachineFormatter):
    """`key=value` pairs; values with spaces, quotes, `=` or control characters as JSON strings."""

    def line(self, found: dict[str, Value]) -> str:
        """The keys and values as one line."""
        return " ".join(f"{key}={quoted(value)}" for key, value in found.items())


def quoted(value: Value) -> str:
    """A value of logfmt."""
    text = str(value)
    return text if BARE.fullmatch(text) else json.dumps(text)
