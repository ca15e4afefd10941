"""Rows to any broker over MQTT, at least once.

Each task connects for itself and ends when the broker has acknowledged all of its messages. What a
task repeats, the broker gets again: over MQTT 5.0 each message has the user property `ID`, the same
in every attempt, by which a consumer tells a repeat.
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from pyspark.sql.datasource import WriterCommitMessage

from mqttcore.errors import UndeliveredError
from mqttcore.spark.guard import guard_of
from mqttcore.spark.messages import Form

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from mqttcore.spark.messages import Place
    from mqttcore.spark.sink_options import SinkOptions

__all__ = ["ID", "Delivered", "Foreign"]

ID: Final = "mqttcore-id"
"""User property of each message: query/batch/partition/row."""
PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(WriterCommitMessage):
    """What a task tells the driver: it is over."""

    rows: int


class Foreign:
    """A broker that is reached over MQTT, as a target of rows. It pickles without connections."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Connects in tasks only.

        Raises:
            StreamOptionError: a column is none of a message.
            LoopError: option topic is what the query reads.
        """
        self.options = options
        self.form = Form(options, schema, guard_of(options, None))

    def send(self, batches: Iterable[pa.RecordBatch], place: Place) -> Delivered:
        """Publishes the rows of a task.

        Raises:
            UndeliveredError: the broker refuses a message, or does not acknowledge it.
        """
        row = 0
        name = f"{place.query}/{place.batch}/{place.partition}"
        with Publisher(self.options, client_id(self.options.client_id, place)) as publisher:
            for batch in self.form.messages(batches):
                for message in batch.to_pylist():
                    publisher.publish(message, f"{name}/{row}")
                    row += 1
        return Delivered(rows=row)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """It is published already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What is published stays so."""


def client_id(prefix: str, place: Place) -> str:
    """Of one attempt, never shared: a second client of the name would end the first one."""
    return f"{prefix}-{place.query}-{place.batch}-{place.partition}-{place.attempt}"


class Publisher:
    """One connection, with a window of messages that are not acknowledged yet."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        """Connects on entering."""
        self.options = options
        self.url = urllib.parse.urlsplit(options.broker or "")
        self.is_5 = options.protocol == "5"
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=paho.MQTTv5 if self.is_5 else paho.MQTTv311,
        )
        self.client.username_pw_set(options.username, options.password)
        if self.url.scheme == "mqtts":
            self.client.tls_set(options.ca)
        self.window = options.window
        # the window is kept here: a task must not hand all of its rows over at once
        self.client.max_inflight_messages_set(0)
        self.client.on_publish = self.on_publish
        self.client.on_connect = self.on_connect
        self.connected = threading.Event()
        self.changed = threading.Condition()
        self.refusal: str | None = None
        self.sent = 0
        self.acknowledged = 0
        self.names: dict[int, str] = {}
        """Of messages by their packet identifier, for what is refused."""

    def __enter__(self) -> Self:
        host, port = self.url.hostname or "", self.url.port or PORTS[self.url.scheme]
        try:
            self.client.connect(host, port)
        except OSError as error:
            raise UndeliveredError(f"{self.options.broker}: {error}") from error
        self.client.loop_start()
        if not self.connected.wait(self.options.timeout_s) or self.refusal is not None:
            self.close()
            raise UndeliveredError(f"{self.options.broker}: {self.refusal or 'no CONNACK comes'}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait_below(1)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the connection and its thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, message: dict[str, Any], name: str) -> None:
        """Sends one message as soon as the window has room for it.

        Raises:
            UndeliveredError: the broker refused one before it, or acknowledges none.
        """
        self.wait_below(self.window)
        qos = message.get("qos")
        # not under the lock: paho calls `on_publish` under one that it takes here
        sent = self.client.publish(
            message["topic"],
            message["payload"] or b"",
            qos=1 if qos is None else qos,
            retain=bool(message.get("retain")),
            properties=properties(message, name) if self.is_5 else None,
        )
        self.names[sent.mid] = name
        self.sent += 1

    def wait_below(self, count: int) -> None:
        """Waits until fewer messages than that are not acknowledged."""
        with self.changed:
            while self.refusal is None and self.sent - self.acknowledged >= count:
                if not self.changed.wait(self.options.timeout_s):
                    self.refusal = f"{self.sent - self.acknowledged} messages are not acknowledged"
            if self.refusal is not None:
                raise UndeliveredError(f"{self.options.broker}: {self.refusal}")

    def on_connect(self, *told: object) -> None:
        """Its first answer, or that to a connection made anew."""
        code, given = cast(ReasonCode, told[3]), told[4]
        if code.is_failure:
            self.refuse(f"refused: {code}")
        # paho does not look at it, and who sends more is disconnected
        self.window = min(self.window, getattr(given, "ReceiveMaximum", self.window))
        self.connected.set()

    def on_publish(self, _client: object, _data: object, mid: int, *told: object) -> None:
        """One message is acknowledged, or refused."""
        code = cast(ReasonCode, told[0])
        if code.is_failure:
            self.refuse(f"{ID} {self.names.get(mid)} is refused: {code}")
        with self.changed:
            self.acknowledged += 1
            self.changed.notify()

    def refuse(self, text: str) -> None:
        """Remembers the first fault."""
        with self.changed:
            self.refusal = self.refusal or text
            self.changed.notify()


def properties(message: dict[str, Any], name: str) -> Properties:
    """What MQTT 5.0 says of a message beside its payload."""
    made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's
    pairs = [(pair["key"], pair["value"]) for pair in message.get("user_properties") or ()]
    made.UserProperty = [*pairs, (ID, name)]
    for column, attribute in PROPERTIES.items():
        if message.get(column) is not None:
            setattr(made, attribute, message[column])
    return made


PROPERTIES: Final = {
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "expiry": "MessageExpiryInterval",
}
