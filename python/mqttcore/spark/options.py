"""Options of ``spark.read.format("mqttcore")`` and ``spark.readStream.format("mqttcore")``.

| option | default | meaning |
| --- | --- | --- |
| ``path`` | | the broker's data folder, or the folder of one stream; also ``load(path)`` |
| ``endpoint`` | socket in ``path`` | ``http(s)://host:port`` or ``unix:/path``; needs ``stream`` |
| ``token`` | | the broker's token, or the secret of a key with the scope ``rows`` |
| ``ca`` | the system's | for ``https``: file with the trusted CAs, or its PEM text |
| ``files`` | ``auto`` | sealed files: from ``folder``, from ``endpoint``, or (``auto``) either |
| ``stream`` | that of ``path`` | name of the stream |
| ``topic`` | all rows | MQTT topic filter; ``#`` excludes topics that begin with ``$`` |
| ``startingOffsets`` | batch: ``earliest``, stream: ``latest`` | first rows; or JSON, see below |
| ``startingTimestamp`` | | instead: begin with the first rows at or after this time |
| ``endingOffsets`` | batch: ``latest`` | only a batch: offsets after the last rows; or JSON |
| ``endingTimestamp`` | | instead, only a batch: rows before this time |
| ``maxRowsPerTrigger`` | | a stream's maximum rows per batch; needs Spark 4.2, as the next two |
| ``maxBytesPerTrigger`` | | maximum bytes of sealed files per batch, estimated: ``64m``, ``1g`` |
| ``minRowsPerTrigger`` | | a batch waits for so many rows, except with AvailableNow |
| ``maxOffsetsPerTrigger`` | | other name of ``maxRowsPerTrigger``, as in Spark's Kafka source |
| ``minOffsetsPerTrigger`` | | other name of ``minRowsPerTrigger`` |
| ``maxTriggerDelay`` | ``15m`` | longest wait for ``minRowsPerTrigger``: ``500ms``, ``10s`` |
| ``targetBatchTime`` | | fewer rows after a longer batch, 100,000 at least: ``20s`` (ADR 0106) |
| ``minPartitions`` | one for 250,000 rows, up to the cores | minimum number of tasks |
| ``maxRowsPerTask`` | ``4_000_000`` | maximum rows of a task; beyond it there are more tasks |
| ``columns`` | all | columns to read, separated by commas |
| ``decode`` | ``none`` | payload format for ``payloadSchema``: one of `DECODERS` |
| ``payloadSchema`` | | columns of the payload: ``temperature DOUBLE, unit STRING`` |
| ``descriptorFile`` | | for ``protobuf``: a FileDescriptorSet of ``protoc`` |
| ``messageName`` | | for ``protobuf``: the full name of the message in it |
| ``schemasFolder`` | | for ``avro``: a folder with ``<number>.avsc`` for each schema |
| ``onError`` | ``null`` | bad payload: ``null`` values and ``_corrupt``, ``drop`` it, or ``fail`` |
| ``failOnDataLoss`` | ``true`` | ``false``: skip, with a warning, rows that retention has removed |
| ``consumer`` | | name of a stream query: the broker keeps its unread rows, for ``hold_max`` |
| ``pushFilters`` | Spark's setting | ``false``: Spark evaluates all filters of a batch |

Offsets as JSON: ``{"0": 17, "1": "earliest"}`` with each partition, or the end offsets that a query
reports. Times: ISO 8601, in UTC without a zone, or milliseconds since 1970. These options decide
where a new query begins; later it continues from its checkpoint.

With ``targetBatchTime``, the first batch has at most 100,000 rows. Each later limit is adjusted to
the time from the batch before to the next one: at most doubled, at most halved, never more than
``maxRowsPerTrigger``. If a full batch leaves more rows than waited before it, the limit is doubled.
The trigger's interval should be half of the target or less.

A micro-batch takes tens of milliseconds at least. For a faster reaction, subscribe at the broker,
or use a stream with ``log = "kafka"`` and Spark's Real-time Mode, which reads only Kafka.

Spark passes options with lower-cased names and text values. Every option that cannot be used,
misspelt names included, raises `StreamOptionError` with the name as it stands here. This module
needs neither Spark nor Arrow.
"""

import difflib
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, cast, get_args

from mqttcore._core import TopicFilter, TopicFilterError, TopicNameError
from mqttcore.errors import StreamOptionError
from mqttcore.spark.positions import AtTime, Position, parse_position, parse_timestamp
from mqttcore.spark.typed import TypedColumns
from mqttcore.streams.avro import read_schemas
from mqttcore.streams.client import StreamClient, read_ca
from mqttcore.streams.descriptor import read_descriptor
from mqttcore.streams.settings import FORMATS, NAME, Decoder, Format, check_name

__all__ = [
    "BY_TOPIC",
    "CORRUPT",
    "DECODERS",
    "Format",
    "OnError",
    "SourceOptions",
    "Table",
    "parse_options",
    "read_options",
]

OnError = Literal["null", "drop", "fail"]
Files = Literal["auto", "folder", "endpoint"]
DECODERS: Final = ("none", *FORMATS)
BY_TOPIC: Final = frozenset({"sparkplug", "auto"})
"""Formats whose payloads depend on the topic, and on earlier messages."""
CORRUPT: Final = "_corrupt"
"""The column with payloads that do not fit."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a query."""

    path: str | None = None
    """The broker's data folder, or the folder of one stream."""
    endpoint: str | None = None
    """``https://host:port``, ``http:`` or ``unix:/path``; without it the socket below ``path``."""
    token: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    """PEM text of the trusted CAs of an ``https`` endpoint."""
    files: Files = "auto"
    """Source of sealed files: the broker's folder if the machine sees it, otherwise the endpoint;
    or always one of both."""
    stream: str | None = None
    topic: str | None = None
    """An MQTT topic filter; None: all rows, including topics that begin with ``$``."""
    starting: Position | None = None
    ending: Position | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 900.0
    batch_time_s: float | None = None
    """About how long a batch may take."""
    min_partitions: int | None = None
    max_rows_per_task: int = 4_000_000
    """A task costs 65 ms of CPU, whatever it reads; a failed task reads all of its rows again."""
    columns: tuple[str, ...] | None = None
    decode: Decoder = "none"
    payload_schema: str | None = None
    """Names and types of the columns to decode, in Spark's DDL."""
    descriptor: bytes | None = field(default=None, repr=False)
    """For ``decode = protobuf``: the content of ``descriptorFile``, a FileDescriptorSet (``protoc
    --include_imports --descriptor_set_out=FILE``)."""
    message: str | None = None
    """The full name of the message type."""
    schemas: bytes | None = field(default=None, repr=False)
    """For ``decode = avro``: the schemas of ``schemasFolder`` as a JSON object by number."""
    on_error: OnError = "null"
    fail_on_data_loss: bool = True
    """False: rows that retention removed before they were read are skipped, so each row comes at
    most once; a warning names them."""
    consumer: str | None = None
    push_filters: bool | None = None
    """None: the setting of Spark."""
    typed: TypedColumns | None = None
    """Not an option: the typed columns of the stream, if ``decode`` is not set."""


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Checks options in the form that Spark passes.

    Raises:
        StreamOptionError: a name is unknown, a value is not allowed, or two exclude each other.
    """
    refuse_together(given, "startingOffsets", "startingTimestamp")
    refuse_together(given, "endingOffsets", "endingTimestamp")
    refuse_together(given, "maxRowsPerTrigger", "maxOffsetsPerTrigger")
    refuse_together(given, "minRowsPerTrigger", "minOffsetsPerTrigger")
    parsed = read_options(given, OPTIONS)
    options = SourceOptions(**parsed)  # type: ignore[arg-type]  # each reader makes its field's type
    refuse_contradictions(options)
    return options


def read_options(given: Mapping[str, str], table: "Table") -> dict[str, object]:
    """The values of the options that are given, by the attributes that ``table`` names.

    Raises:
        StreamOptionError: a name is unknown, or a value is not allowed.
    """
    values = {name.lower(): value for name, value in given.items()}
    refuse_unknown(values, table)
    return {
        attribute: check(name, values[name.lower()], read)
        for name, (attribute, read) in table.items()
        if name.lower() in values
    }


def refuse_unknown(values: Mapping[str, str], table: "Table") -> None:
    """Rejects unknown options, except those that Spark adds itself."""
    known = {name.lower(): name for name in table}
    for name in values:
        if name in known or name in SPARKS_OWN:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {known[near[0]]}?" if near else "."
        raise StreamOptionError(
            f"option {name!r} is unknown{hint} Known: {', '.join(sorted(table))}"
        )


def refuse_together(values: Mapping[str, str], first: str, second: str) -> None:
    """Refuses two options with the same meaning."""
    if {first.lower(), second.lower()} <= {name.lower() for name in values}:
        raise StreamOptionError(f"options {first} and {second} exclude each other")


def refuse_contradictions(options: SourceOptions) -> None:
    """Refuses combinations of options."""
    if options.path is None and options.endpoint is None:
        raise StreamOptionError(
            "option path or endpoint is missing: the broker's data folder, or its HTTP address"
        )
    if options.endpoint is not None and options.stream is None:
        raise StreamOptionError("option stream is missing: which stream of the endpoint to read")
    refuse_ca(options.ca, options.endpoint)
    start, end = options.starting, options.ending
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start > end:
        raise StreamOptionError("option startingTimestamp is later than option endingTimestamp")
    if options.payload_schema is not None and options.decode == "none":
        raise StreamOptionError(
            f"option payloadSchema needs option decode: one of {', '.join(FORMATS)}"
        )
    if options.decode != "none" and options.payload_schema is None:
        raise StreamOptionError(
            f"option decode = {options.decode!r} needs option payloadSchema,"
            ' as in "temperature DOUBLE, unit STRING"'
        )
    refuse_descriptions(options)


def refuse_descriptions(options: SourceOptions) -> None:
    """Only Protocol Buffers and Avro have and require descriptions of payloads."""
    is_described = options.descriptor is not None and options.message is not None
    if options.decode == "protobuf" and not is_described:
        raise StreamOptionError(
            "option decode = 'protobuf' needs options descriptorFile and messageName"
        )
    if options.decode != "protobuf" and (options.descriptor or options.message):
        raise StreamOptionError("options descriptorFile and messageName need decode = protobuf")
    if options.decode == "avro" and options.schemas is None:
        raise StreamOptionError("option decode = 'avro' needs option schemasFolder")
    if options.decode != "avro" and options.schemas is not None:
        raise StreamOptionError("option schemasFolder needs decode = avro")


def refuse_ca(ca: str | None, endpoint: str | None) -> None:
    """Refuses certificates without ``https``."""
    if ca is not None and not (endpoint or "").startswith("https:"):
        raise StreamOptionError("option ca needs option endpoint = https://host:port")


def check(name: str, text: str, read: Callable[[str], Value]) -> Value:
    """Reads one value; the error of the reader names the allowed values."""
    try:
        return read(text.strip())
    except (ValueError, TopicFilterError, TopicNameError) as error:
        raise StreamOptionError(f"option {name} = {text!r}: {error}") from error


def text_of(text: str) -> str:
    """Any text that is not empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def content(text: str) -> bytes:
    """The content of a descriptor file."""
    return read_descriptor(pathlib.Path(text.removeprefix("file://")))


def schemas(text: str) -> bytes:
    """The schemas in a folder."""
    return read_schemas(pathlib.Path(text.removeprefix("file://")))


def stream_name(text: str) -> str:
    """The name of a stream, which is also the name of its folder."""
    try:
        check_name(text)
    except ValueError as error:
        raise ValueError(f"{error}, which has {NAME}") from error
    return text


def endpoint(text: str) -> str:
    """The address of the broker's HTTP API."""
    try:
        if not text.startswith(("https:", "http:", "unix:/")):
            raise ValueError(text)
        StreamClient(text)  # asks nothing yet
    except ValueError as error:
        raise ValueError(
            "allowed are https://host:port, http://host:port and unix:/path/to/socket"
        ) from error
    return text.rstrip("/")


def topic_filter(text: str) -> str:
    """An MQTT topic filter."""
    return str(TopicFilter(text))


def column_names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    names = tuple(name.strip().strip("`") for name in text.split(","))
    if not all(names):
        raise ValueError("allowed is a list of columns with commas between them")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is listed twice")
    return names


def count(text: str) -> int:
    """A whole number of at least one; underscores may group digits."""
    if not re.fullmatch(r"[0-9_]+", text) or int(text) < 1:
        raise ValueError("allowed is a whole number of at least 1")
    return int(text)


def size(text: str) -> int:
    """A number of bytes, such as 64m or 1g."""
    found = re.fullmatch(r"([0-9_]+)\s*([kmg]?)(?:i?b)?", text.lower())
    if found is None or int(found[1]) < 1:
        raise ValueError("allowed is a number of bytes of at least 1, with k, m or g behind it")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def duration(text: str) -> float:
    """A duration such as 500ms, 10s, 15m or 2h, in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)", text.lower())
    if found is None:
        raise ValueError("allowed is a number with ms, s, m or h behind it, as in 500ms or 15m")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def positive_duration(text: str) -> float:
    """A `duration` that is not 0."""
    seconds = duration(text)
    if not seconds:
        raise ValueError("allowed is a time longer than 0")
    return seconds


def boolean(text: str) -> bool:
    """True or false."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("allowed are true and false")
    return text.lower() == "true"


def word_of(*allowed: str) -> Callable[[str], str]:
    """One of these words."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return text.lower()

    return read


def consumer_name(text: str) -> str:
    """A name that fits into an URL and a log line."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("allowed are letters, digits, dot, _ and -, 64 at most")
    return text


Reader = Callable[[str], object]
Table = Mapping[str, tuple[str, Reader]]
"""Options by name: the attribute, and the reader of its text."""
OPTIONS: Final[Table] = {
    "path": ("path", text_of),
    "endpoint": ("endpoint", endpoint),
    "token": ("token", text_of),
    "ca": ("ca", read_ca),
    "files": ("files", cast("Reader", word_of(*get_args(Files)))),
    "stream": ("stream", stream_name),
    "topic": ("topic", topic_filter),
    "startingOffsets": ("starting", parse_position),
    "startingTimestamp": ("starting", parse_timestamp),
    "endingOffsets": ("ending", parse_position),
    "endingTimestamp": ("ending", parse_timestamp),
    "maxRowsPerTrigger": ("max_rows", count),
    "maxBytesPerTrigger": ("max_bytes", size),
    "minRowsPerTrigger": ("min_rows", count),
    # as Spark's Kafka source names them
    "maxOffsetsPerTrigger": ("max_rows", count),
    "minOffsetsPerTrigger": ("min_rows", count),
    "maxTriggerDelay": ("max_delay_s", duration),
    "targetBatchTime": ("batch_time_s", positive_duration),
    "minPartitions": ("min_partitions", count),
    "maxRowsPerTask": ("max_rows_per_task", count),
    "columns": ("columns", column_names),
    "decode": ("decode", cast("Reader", word_of(*DECODERS))),
    "payloadSchema": ("payload_schema", text_of),
    "descriptorFile": ("descriptor", content),
    "messageName": ("message", text_of),
    "schemasFolder": ("schemas", schemas),
    "onError": ("on_error", cast("Reader", word_of(*get_args(OnError)))),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "consumer": ("consumer", consumer_name),
    "pushFilters": ("push_filters", boolean),
}
SPARKS_OWN: Final = frozenset({"serialization.format", "queryname"})
"""Options that Spark adds: to a table in its catalog, and to a query with a name."""
