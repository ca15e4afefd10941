"""Options of ``df.write.format("mqttcore")`` and ``df.writeStream.format("mqttcore")``.

| option | default | meaning |
| --- | --- | --- |
| ``path`` or ``endpoint`` | | an mqttcore broker: its data folder, or its HTTP address |
| ``token`` | | the broker's token, or the secret of a key with the scope ``publish`` |
| ``broker`` | | any other broker: ``mqtt://host:port`` or ``mqtts://host:port`` |
| ``username``, ``password`` | | login at ``broker`` |
| ``ca`` | the system's | for ``mqtts`` and ``https``: file with the trusted CAs |
| ``protocol`` | ``5`` | MQTT version at ``broker``: ``5`` or ``3.1.1`` |
| ``clientId`` | ``mqttcore`` | beginning of the client identifiers at ``broker`` |
| ``window`` | ``1000``, ``20`` for 3.1.1 | messages in flight to ``broker``, for each task |
| ``timeout`` | ``30s`` | how long ``broker`` may send no acknowledgement and accept no byte |
| ``topic`` | column ``topic`` | topic of all rows |
| ``qos``, ``retain`` | columns, else 1, false | QoS and RETAIN of all rows |
| ``prefix`` | | with ``mode("overwrite")``: clears other retained messages below it |
| ``txnAppId``, ``txnVersion`` | random, 0 | a batch with a known name and number is skipped |
| ``stream`` | found | stream that the query reads; rows for its topics are rejected |
| ``allowLoop`` | ``false`` | ``true``: such rows are published |

Columns: ``topic``, ``payload`` (binary or text; null is empty), and optionally ``qos``, ``retain``,
``content_type``, ``response_topic``, ``correlation_data``, ``expiry`` (seconds) and
``user_properties`` (an array of structs of key and value, or a map).

A ``broker`` gets each message at least once: rows with QoS 0, which no broker acknowledges, are
published at QoS 1. With ``protocol = 5`` each message has the user property ``mqttcore-id``
(query/batch/partition/row), by which consumers recognise repeats. ``3.1.1`` has no user properties,
and rejects rows with values in the columns from ``content_type`` on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mqttcore._core import TopicName
from mqttcore.errors import StreamOptionError
from mqttcore.spark.options import (
    Table,
    boolean,
    count,
    duration,
    endpoint,
    read_options,
    refuse_ca,
    stream_name,
    text_of,
    word_of,
)

__all__ = ["SinkOptions", "parse_sink_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The target of rows, and how they are sent."""

    path: str | None = None
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    broker: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    client_id: str = "mqttcore"
    window: int | None = None
    timeout_s: float = 30.0
    topic: str | None = None
    qos: int | None = None
    retain: bool | None = None
    prefix: str | None = None
    app_id: str | None = None
    version: int | None = None
    stream: str | None = None
    allow_loop: bool = False
    checkpoint: str | None = None
    """Folder of the query's offsets, which Spark passes."""

    def constants(self) -> dict[str, object]:
        """Columns that have a constant value from an option."""
        given = {"topic": self.topic, "qos": self.qos, "retain": self.retain}
        return {name: value for name, value in given.items() if value is not None}


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Checks options in the form that Spark passes.

    Raises:
        StreamOptionError: a name is unknown, a value is not allowed, or two exclude each other.
    """
    parsed = read_options(given, OPTIONS)
    options = SinkOptions(**parsed)  # type: ignore[arg-type]  # each reader makes its field's type
    refuse_contradictions(options, {name.lower() for name in given})
    return options


def refuse_contradictions(options: SinkOptions, given: set[str]) -> None:
    """Refuses combinations of options."""
    here = {"path", "endpoint"} & given
    if options.broker is None and not here:
        raise StreamOptionError(
            "option path, endpoint or broker is missing: the data folder of an mqttcore broker, its"
            " HTTP address, or the address of any other broker"
        )
    wrong = [name for name in (OURS if options.broker else OTHERS) if name.lower() in given]
    if wrong:
        kinds = ("an mqttcore broker", "option broker")
        kind, other = kinds if options.broker else kinds[::-1]
        raise StreamOptionError(f"option {wrong[0]} is for {kind}, not for {other}")
    if options.broker is None:
        refuse_ca(options.ca, options.endpoint)
    if (options.app_id is None) != (options.version is None):
        raise StreamOptionError("options txnAppId and txnVersion need each other")
    if options.broker is not None and options.qos == 0:
        raise StreamOptionError(
            "option qos = 0 is never acknowledged; with option broker, 1 and 2 are allowed"
        )


OURS: Final = ("path", "endpoint", "token", "prefix", "txnAppId", "txnVersion", "stream")
"""Options for an mqttcore broker only."""
OTHERS: Final = (
    "username", "password", "protocol", "clientId", "window", "timeout",
)  # fmt: skip


def broker_address(text: str) -> str:
    """The address of an MQTT broker."""
    if not re.fullmatch(r"mqtts?://([^/\s:@]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/?", text):
        raise ValueError("allowed are mqtt://host:port and mqtts://host:port")
    return text.rstrip("/")


def topic_name(text: str) -> str:
    """A topic that messages may have."""
    return str(TopicName(text))


def topic_prefix(text: str) -> str:
    """The first levels of topics."""
    return str(TopicName(text.removesuffix("#").rstrip("/")))


def quality(text: str) -> int:
    """A QoS."""
    if text not in {"0", "1", "2"}:
        raise ValueError("allowed are 0, 1 and 2")
    return int(text)


def batch_number(text: str) -> int:
    """A batch number."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError("allowed is a whole number of at least 0")
    return int(text)


def application(text: str) -> str:
    """The name under which the broker stores the number of the last batch."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise ValueError("allowed are letters, digits, _ and -, 64 at most")
    return text


OPTIONS: Final[Table] = {
    "path": ("path", text_of),
    "endpoint": ("endpoint", endpoint),
    "token": ("token", text_of),
    "broker": ("broker", broker_address),
    "username": ("username", text_of),
    "password": ("password", text_of),
    "ca": ("ca", text_of),
    "protocol": ("protocol", word_of("5", "3.1.1")),
    "clientId": ("client_id", application),
    "window": ("window", count),
    "timeout": ("timeout_s", duration),
    "topic": ("topic", topic_name),
    "qos": ("qos", quality),
    "retain": ("retain", boolean),
    "prefix": ("prefix", topic_prefix),
    "txnAppId": ("app_id", application),
    "txnVersion": ("version", batch_number),
    "stream": ("stream", stream_name),
    "allowLoop": ("allow_loop", boolean),
    "checkpointLocation": ("checkpoint", text_of),
}
