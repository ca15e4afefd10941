"""The complete, validated configuration."""

from typing import Annotated, Literal

from mqttcore._record import Record, field
from mqttcore._schema import Faults, Made, Place, Range, check_record
from mqttcore.config.checks import check_together, raise_faults
from mqttcore.config.parts import (
    HttpListener,
    Listener,
    LogOutput,
    Metrics,
    PluginUse,
    ServerLimits,
    TopicRule,
)
from mqttcore.sessions.policy import Durability
from mqttcore.streams.kafka import Kafka
from mqttcore.streams.settings import Stream


class Settings(Record):
    """The complete configuration of a broker.

    Raises:
        ConfigError: a value is not allowed.
    """

    listeners: tuple[Listener, ...] = (Listener(),)
    """Addresses for clients."""
    shards: Annotated[int, Range(0, 64)] = 0
    """Number of event loops, one thread each; 0: one for each core."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of log lines that are written."""
    log: LogOutput = field(default_factory=LogOutput)
    """Destination and format of the log."""
    shared_strategy: Literal["round_robin", "random", "client_hash", "topic_hash", "sticky"] = (
        "round_robin"
    )
    """How a shared subscription chooses the receiver of a message."""
    sys_interval_s: Annotated[float, Range(0, 86_400)] = 10.0
    """Interval of ``$SYS/broker/...``; 0: not published."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    """Limits of clients."""
    plugins: tuple[PluginUse, ...] = ()
    """Plugins in the order in which they are asked."""
    data: str = ""
    """Folder of sessions and messages, relative to the file that names it; empty: everything is in
    memory."""
    scrub_interval_s: Annotated[float, Range(0, 2**32 - 1)] = 604_800.0
    """Interval in which all stored data is re-read and its checksums are verified; 0: never."""
    durability: Durability = "fsync"
    """Durability before an acknowledgement: ``memory``, ``os`` or ``fsync`` (docs/durability.md),
    unless a topic's rule, a client's grant or its listener has another one. Without ``data`` it is
    always ``memory``."""
    topics: tuple[TopicRule, ...] = ()
    """Rules by topic. Each key comes from the first rule that matches the topic and has that
    key."""
    metrics: Metrics = field(default_factory=Metrics)
    """Metrics in addition to those that are always there."""
    streams: tuple[Stream, ...] = ()
    """Streams of rows."""
    http: HttpListener | None = None
    """Endpoint for health, metrics and streams; None: streams over a Unix socket only."""
    kafka: Kafka | None = None
    """The Kafka for streams whose log is Kafka."""

    def __post_init__(self) -> None:
        faults = Faults()
        check_record(self, key="", faults=faults)
        if not faults:
            check_together(vars_of(self), lambda _: Place("Settings"), faults)
        raise_faults(faults)


def vars_of(settings: Settings) -> dict[str, Made]:
    """The fields by name."""
    return {name: getattr(settings, name) for name in settings.fields_by_name}
