"""A broker to publish to, and a client that hears what arrives."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream

from tests.wire import Wire


@contextmanager
def open_broker(data: pathlib.Path) -> Iterator[Broker]:
    """A broker over a folder, whose stream ``plant`` takes in ``plant/#``."""
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    stream = Stream(name="plant", filter=("plant/#",))
    with Broker(Settings(listeners=(listener,), data=str(data), streams=(stream,))) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Received:
    """A message, as a subscriber gets it."""

    topic: str
    payload: bytes
    qos: int
    user_properties: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    expiry: int | None = None


@dataclass(slots=True)
class Heard:
    """What a subscriber gets."""

    wire: Wire

    def take(self, count: int) -> list[Received]:
        """The next messages."""
        return [self.next() for _ in range(count)]

    def next(self) -> Received:
        """The next message, acknowledged."""
        packet = self.wire.receive_publish()
        given = packet.properties or {}
        pairs: Any = given.get("user_property", [])
        return Received(
            topic=packet.topic,
            payload=packet.payload,
            qos=packet.qos,
            user_properties=tuple(pairs if isinstance(pairs, list) else [pairs]),
            content_type=cast("str | None", packet.property("content_type")),
            expiry=cast("int | None", packet.property("message_expiry_interval")),
        )


@contextmanager
def listen(port: int, *filters: str) -> Iterator[Heard]:
    """A client that subscribed at QoS 2."""
    with Wire(port) as wire:
        wire.connect("listener")
        wire.subscribe(*((text, 2) for text in filters))
        yield Heard(wire)


def published(data: pathlib.Path, count: int) -> list[int]:
    """The payloads of the stream ``plant`` in its order, once there are so many rows or more."""
    with StreamClient(data) as client:
        bounds = client.stream("plant").partitions[0]
        deadline = time.monotonic() + 20.0
        while bounds.end < count and time.monotonic() < deadline:
            # a row is seen a few milliseconds behind its acknowledgement
            bounds = client.stream("plant").partitions[0]
        start = bounds.sealed_end
        with client.rows("plant", partition=0, start=start, end=bounds.end) as body:
            tail = pa.ipc.open_stream(body).read_all()
    return [int(payload) for payload in tail["payload"].to_pylist()]
