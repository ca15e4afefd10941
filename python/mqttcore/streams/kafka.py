"""The configuration of Kafka for streams with ``log = "kafka"``."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from mqttcore._core import has_kafka
from mqttcore._schema import Faults, Parsed, Place, Range


def check_topic(text: str) -> None:
    """Refuses what Kafka takes for no topic."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic of Kafka")


def check_server(text: str) -> None:
    """Refuses what is not a host and port; the host may be a name."""
    if not re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", text):
        raise ValueError(f"{text!r} is not a host and port")


KafkaTopic = Annotated[str, Parsed(check_topic, "letters, digits, ., _ and -, up to 249")]
Server = Annotated[str, Parsed(check_server, "host and port, as kafka-1.example.org:9092")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """The Kafka that streams with ``log = "kafka"`` go to. The way there is not encrypted."""

    servers: tuple[Server, ...]
    """Some of its nodes; the others are found by them."""
    delivery_timeout_s: Annotated[float, Range(1, 86_400)] = 120.0
    """A message that Kafka did not take for so long is given up: its publisher is disconnected
    without an acknowledgement, and sends it again."""
    linger_ms: Annotated[int, Range(0, 1_000)] = 1
    """How long a record waits for others to travel with it; 5 where much is published."""
    compression: Literal["none", "lz4", "snappy"] = "lz4"
    """How records travel, and are kept."""
    queue_bytes: Annotated[int, Range(1 << 20, 2**40)] = 64 << 20
    """While so much waits for Kafka, QoS 0 is dropped and publishers that wait for it are not
    read; twice as much is refused."""
    start_deadline_s: Annotated[float, Range(0.1, 3_600)] = 15.0
    """A broker that cannot reach Kafka within this does not start."""

    @property
    def addresses(self) -> str:
        """The servers as Kafka's client wants them."""
        return ",".join(self.servers)


BUILD: Final = (
    "this build of mqttcore has no Kafka; install one that has:"
    ' MATURIN_PEP517_ARGS="--features kafka" pip install --no-binary mqttcore mqttcore,'
    " or in a checkout make build FEATURES=kafka"
)


def check_kafka(
    logs: Sequence[str], kafka: Kafka | None, place: Callable[[str], Place], faults: Faults
) -> None:
    """What ``log`` of each stream and ``[kafka]`` demand of each other."""
    named = [index for index, log in enumerate(logs) if log == "kafka"]
    if kafka is not None and not kafka.servers:
        faults.add(place("kafka.servers"), "kafka.servers", "there is none", "allowed: 1 or more")
    if kafka is not None and not named:
        faults.add(place("kafka"), "kafka", "has no effect without a stream whose log is kafka")
    for index in named:
        key = f"streams[{index}].log"
        if not has_kafka:
            faults.add(place(key), key, BUILD)
        elif kafka is None:
            faults.add(place(key), key, "needs the address of Kafka", "allowed: with [kafka]")
