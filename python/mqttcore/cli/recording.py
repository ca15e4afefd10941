"""Recordings of messages: `mqttcore sub --record` writes them, `mqttcore pub --replay` reads them.

A line is a JSON object: ``at``, the unix time in seconds at which the message came; ``topic``,
``qos``, ``retain`` and ``payload_base64``; ``properties``, pairs of name and value, left out if
there are none. Correlation data is in base64.
"""

import base64
import json
import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqttcore._core import TopicName
from mqttcore.cli.failure import USAGE, CommandError
from mqttcore.cli.terminal import json_text
from mqttcore.errors import MqttError
from mqttcore.packets import Properties, PropertyValue, Publish, encode_packet

OF_CONNECTIONS: Final = frozenset({"topic_alias", "subscription_identifier"})
"""Properties that mean something on one connection only."""
FIRST_VERSION: Final = 5
"""The version of MQTT that has properties."""


class Recorded(NamedTuple):
    """A message of a recording."""

    at: float
    message: Publish


def line_of(message: Publish, now: float) -> bytes:
    """The line for a message that came at ``now``, in unix seconds."""
    found: dict[str, object] = {
        "at": round(now, 6),
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "payload_base64": base64.b64encode(message.payload).decode(),
    }
    properties = [
        [name, base64.b64encode(value).decode() if isinstance(value, bytes) else value]
        for name, value in message.properties
        if name not in OF_CONNECTIONS
    ]
    if properties:
        found["properties"] = properties
    return json_text(found).encode() + b"\n"


def read_lines(lines: Iterable[bytes], name: str, *, version: int) -> Iterator[Recorded]:
    """The messages of the recording ``name``; for versions of MQTT before 5.0 without properties.

    Raises:
        CommandError: a line is not one of a recording.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield read_line(line, version=version)
        except (ValueError, KeyError, TypeError, OverflowError, MqttError) as error:
            why = f"no key {error}" if isinstance(error, KeyError) else str(error)
            text = f"{name}: line {number} is not a message of `mqttcore sub --record`: {why}"
            raise CommandError(text, status=USAGE) from error


def read_line(line: bytes, *, version: int) -> Recorded:
    """The message of a line.

    Raises:
        ValueError, KeyError, TypeError, OverflowError, MqttError: it is none.
    """
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("expected a JSON object")
    at = float(found["at"])
    if not math.isfinite(at):
        raise ValueError("at: expected a time in seconds")
    qos = found["qos"]
    message = Publish(
        topic=found["topic"],
        payload=base64.b64decode(found["payload_base64"], validate=True),
        qos=qos,
        packet_id=1 if qos else None,
        retain=found["retain"],
        properties=properties_of(found) if version >= FIRST_VERSION else (),
    )
    TopicName(message.topic)
    encode_packet(message, version=version)
    return Recorded(at, message)


def properties_of(found: dict[str, object]) -> Properties:
    """The properties of a line.

    Raises:
        ValueError, TypeError: they are not as `line_of` writes them.
    """
    pairs = found.get("properties", [])
    if not isinstance(pairs, list):
        raise TypeError("properties: expected a list")
    return tuple((name, value_of(name, value)) for name, value in pairs)


def value_of(name: str, value: PropertyValue | list[str]) -> PropertyValue:
    """A value with its type."""
    if isinstance(value, list):
        key, text = value
        return key, text
    if name == "correlation_data":
        return base64.b64decode(str(value), validate=True)
    return value
