"""The configuration of streams and of their HTTP endpoint."""

import grp
import pathlib
import re
import stat
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, get_args

from mqttcore._core import TopicFilter, has_streams, is_stream_name
from mqttcore._record import Record
from mqttcore._schema import Faults, Parsed, Place, Range
from mqttcore.streams.ages import Age, age_s
from mqttcore.streams.descriptor import check_protobuf, read_descriptor
from mqttcore.streams.kafka import KafkaTopic
from mqttcore.streams.tier import Tier, check_tier

PARTITIONS_MAX: Final = 256
TOKEN_BYTES_MIN: Final = 16
TOKEN_BYTES_MAX: Final = 4_096

OWN_COLUMNS: Final = (
    "partition", "offset", "timestamp", "topic", "payload", "qos", "retain", "dup", "client_id",
    "content_type", "response_topic", "correlation_data", "expiry", "user_properties",
)  # fmt: skip
"""Columns that every stream has, in their order."""
Format = Literal["json", "cbor", "msgpack", "text", "protobuf", "avro", "sparkplug", "auto"]
"""Format of payloads with typed columns."""
Decoder = Literal["none", Format]
FORMATS: Final[tuple[str, ...]] = get_args(Format)


def check_name(text: str) -> None:
    """Refuses text that cannot be a folder name and a part of a URL."""
    if not is_stream_name(text):
        raise ValueError(f"{text!r} is not a name of a stream")


def check_filter(text: str) -> None:
    """Refuses invalid filters and shared subscriptions."""
    TopicFilter(text)
    if text.startswith("$share/"):
        raise ValueError(f"{text!r}: a stream cannot have a shared subscription")


def check_column(text: str) -> None:
    """Refuses invalid names, and names of the columns of every stream."""
    if not text or not text.isprintable() or len(text.encode()) > 255:
        raise ValueError(f"{text!r} is not a name of a column")
    if text.lower() in OWN_COLUMNS or text.startswith("_"):
        raise ValueError(f"{text!r} is a column of every stream")


def group_id(name: str) -> int:
    """The number of a group of this machine.

    Raises:
        ValueError: there is no such group.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ValueError(f"there is no group {name!r} on this machine") from error


def read_token(path: pathlib.Path) -> str:
    """The token in a file, without surrounding whitespace.

    Raises:
        ValueError: it cannot be read, others may read it, or it is none.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & stat.S_IRWXO:
        raise ValueError(f"{path} can be read by all users of this machine")
    if not re.fullmatch(rb"[!-~]{%d,%d}" % (TOKEN_BYTES_MIN, TOKEN_BYTES_MAX), token):
        raise ValueError(f"{path} has no valid token")
    return token.decode("ascii")


Filter = Annotated[str, Parsed(check_filter, "topic filters, none of them shared")]
NAME: Final = "a-z, 0-9, _ and -, up to 64, the first a-z or 0-9"
"""The names that `check_name` allows, for users."""
Name = Annotated[str, Parsed(check_name, NAME)]
ColumnName = Annotated[str, Parsed(check_column, "up to 255 bytes that can be printed")]
Group = Annotated[str, Parsed(group_id, "a group of this machine")]


class Retention(Record):
    """Limits of a stream; older files are removed one by one."""

    age: Age | None = None
    """``90s``, ``15m``, ``12h``, ``7d``; None: for ever."""
    bytes: Annotated[int, Range(1 << 20, 2**63 - 1)] | None = None
    """Bytes of sealed files, over all partitions; None: without limit."""
    hold_max: Age = "7d"
    """Age of the unread rows of a consumer, after its last request, up to which they are kept."""

    @property
    def age_s(self) -> int | None:
        """The age in seconds."""
        return age_s(self.age) if self.age else None

    @property
    def hold_max_s(self) -> int:
        """Seconds that a hold lasts."""
        return age_s(self.hold_max)


class Column(Record):
    """One typed column that is decoded out of the payload."""

    name: ColumnName
    """The column, and the field of the payload."""
    type: Literal["boolean", "int", "long", "double", "string", "binary", "timestamp"]
    """Type of the field; null if a value does not fit."""


class Stream(Record):
    """One stream: its messages, and the retention of its rows."""

    name: Name
    """The name: a folder, and a part of the endpoint's URLs."""
    filter: tuple[Filter, ...]
    """Topic filters; messages that match one of them become rows."""
    partitions: Annotated[int, Range(1, PARTITIONS_MAX)] = 1
    """Number of partitions. Rows with the same key are in one partition, in order; the number
    cannot be changed later."""
    retention: Retention = Retention()
    """Limits of the stream."""
    key: Literal["topic", "client_id", "sparkplug"] = "topic"
    """Partition key; ``sparkplug``: group and edge node."""
    schema: tuple[Column, ...] = ()
    """Columns that are decoded from the payload, in addition to those of every stream."""
    decode: Decoder = "none"
    """Format of the payloads of these columns."""
    descriptor: pathlib.Path | None = None
    """For ``protobuf``: a file with a FileDescriptorSet, which ``protoc`` writes."""
    message: str | None = None
    """For ``protobuf``: the full name of the message type of the payloads."""
    schemas: pathlib.Path | None = None
    """For ``avro``: a folder with a file ``<number>.avsc`` for each schema of the registry."""
    group: Group | None = None
    """The group that may read the sealed files."""
    delta: bool = False
    """Whether the broker maintains a Delta table of the sealed files, in ``delta`` beside them."""
    tier: Tier | None = None
    """Object storage for the sealed files; None: they stay in ``data``."""
    log: Literal["mqttcore", "kafka"] = "mqttcore"
    """Store of the rows: ``data``, or the Kafka of ``[kafka]``."""
    topic: KafkaTopic | None = None
    """The Kafka topic, which is created if it is missing; None: the stream's name."""

    @property
    def kafka_topic(self) -> str:
        """The Kafka topic; for a stream whose log is Kafka."""
        return self.topic or self.name

    @property
    def descriptor_bytes(self) -> bytes | None:
        """The content of the file ``descriptor``."""
        return read_descriptor(self.descriptor) if self.descriptor else None

    @property
    def schemas_bytes(self) -> bytes | None:
        """The schemas in the folder ``schemas``, by number."""
        if self.schemas is None:
            return None
        # Most brokers start without it.
        from mqttcore.streams.avro import read_schemas

        return read_schemas(self.schemas)

    @property
    def group_id(self) -> int | None:
        """The group's number."""
        return group_id(self.group) if self.group else None


BUILD: Final = (
    "this build of mqttcore serves MQTT only: it has neither streams nor their HTTP endpoint;"
    " install a wheel that has them (make wheel), or in a checkout: make build"
)


def check_streams(
    streams: Sequence[Stream], data: str, place: Callable[[str], Place], faults: Faults
) -> None:
    """Checks the streams together."""
    if streams and not has_streams:
        faults.add(place("streams"), "streams", BUILD)
    if not data and any(stream.log == "mqttcore" for stream in streams):
        faults.add(
            place("streams"), "streams", "streams need a data folder", "set `data` to a folder"
        )
    taken: dict[str, int] = {}
    for index, stream in enumerate(streams):
        key = f"streams[{index}]"
        if taken.setdefault(stream.name, index) != index:
            where = f"{key}.name"
            faults.add(place(where), where, f"streams[{taken[stream.name]}] has the same name")
        check_stream(stream, key, place, faults)


def check_stream(stream: Stream, key: str, place: Callable[[str], Place], faults: Faults) -> None:
    """Checks the keys of one stream together."""

    def fault(name: str, what: str, *notes: str) -> None:
        faults.add(place(f"{key}.{name}"), f"{key}.{name}", what, *notes)

    if not stream.filter:
        fault("filter", "is empty", "allowed: one or more")
    check_log(stream, fault)
    if stream.schema and stream.decode == "none":
        fault(
            "schema",
            "has no effect without decode",
            f"allowed: {', '.join(FORMATS)}",
        )
    if stream.decode != "none" and not stream.schema:
        fault("decode", "has no effect without schema")
    check_protobuf(stream.decode, stream.descriptor, stream.message, fault)
    check_schemas(stream, fault)
    check_tier(stream, fault)
    columns: set[str] = set()
    for index, column in enumerate(stream.schema):
        if column.name.lower() in columns:
            fault(f"schema[{index}].name", f"{column.name!r} exists already (case is ignored)")
        columns.add(column.name.lower())


def check_schemas(stream: Stream, fault: Callable[..., None]) -> None:
    """Schemas of Avro; their module is loaded if there are some."""
    if stream.decode == "avro" or stream.schemas is not None:
        from mqttcore.streams.avro import check_avro

        check_avro(stream.decode, stream.schemas, fault)


def is_installed(package: str) -> bool:
    """Whether Python finds a package; it is not loaded."""
    import importlib.util

    return importlib.util.find_spec(package) is not None


PLAIN: Final = Stream(name="plain", filter=())
"""A stream with all defaults."""


def check_log(stream: Stream, fault: Callable[..., None]) -> None:
    """Refuses keys that need another log or a missing package."""
    if stream.delta and not is_installed("deltalake"):
        fault("delta", "needs the package deltalake", "pip install 'mqttcore[pipeline]'")
    if stream.log == "mqttcore":
        if stream.topic is not None:
            fault("topic", "has no effect without log = kafka")
        return
    for name in (
        "retention",
        "schema",
        "decode",
        "descriptor",
        "message",
        "schemas",
        "group",
        "delta",
        "tier",
    ):
        if getattr(stream, name) != getattr(PLAIN, name):
            fault(name, "has no effect with Kafka, which keeps the rows")
