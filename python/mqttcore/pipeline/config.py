"""The configuration of a pipeline: TOML and validated classes.

```toml
name = "factory"
tables = "tables"            # a folder, relative to this file, or a URI: "s3a://bucket/factory"
trigger = "2 seconds"

[source]
path = "../var"              # the broker's data folder, or endpoint = "http://broker:8080"
stream = "plant"

[silver]
schema = "machine STRING, temperature DOUBLE, at TIMESTAMP"
event_time = "at"
valid = ["temperature BETWEEN -50 AND 400"]
dedupe = ["machine", "at"]

[[gold]]
name = "temperature_1m"
window = "1 minute"
group_by = ["machine"]
columns = ["avg(temperature) AS mean", "max(temperature) AS highest"]

[[alerts]]
name = "hot"
table = "temperature_1m"
when = "highest > 90"
topic = "concat('alerts/', machine)"
```

The optional table ``[spark]`` names the Spark that runs it:

```toml
[spark]
master = "spark://host:7077"     # local[*,4] unless said otherwise
memory = "2g"                    # of the driver
packages = ["org.apache.spark:spark-avro_2.13:4.2.0"]
conf = ["spark.executor.memory=4g"]
```

Tables in an object store need no jar. ``storage`` names the options of the store, as
``AWS_ENDPOINT_URL=https://host``; what it does not name is taken from the environment, and secrets
belong there.

Conditions, columns and topics are Spark SQL over the columns of their table.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, cast

from mqttcore._schema import Entry, Faults, Parsed, Range, read_record
from mqttcore.config.checks import place_of, raise_faults
from mqttcore.config.reading import read_file
from mqttcore.config.values import Filter
from mqttcore.errors import PipelineError
from mqttcore.pipeline.locations import Location, check_location, located
from mqttcore.streams.avro import check_avro
from mqttcore.streams.client import StreamClient, read_ca
from mqttcore.streams.descriptor import check_protobuf
from mqttcore.streams.settings import Format

__all__ = [
    "Alert",
    "Bronze",
    "Gold",
    "Pipeline",
    "Silver",
    "Source",
    "Spark",
    "load",
    "microseconds",
]

NAMES = "lower-case letters, digits and _, beginning with a letter"
UNITS = "a number and a unit, as 10 seconds, 1 minute or 2 hours"
TAKEN = frozenset({"bronze", "silver", "quarantine"})


def check_name(text: str) -> None:
    """Refuses text that is not a name of a table."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", text):
        raise ValueError(f"{text!r} is not a name")


def check_duration(text: str) -> None:
    """Refuses text that Spark does not accept as a duration."""
    if not re.fullmatch(r"[1-9]\d* (millisecond|second|minute|hour|day)s?", text):
        raise ValueError(f"{text!r} is not a duration")


def microseconds(duration: str) -> int:
    """The length of a `Duration`."""
    number, unit = duration.split()
    return int(number) * UNIT_US[unit.removesuffix("s")]


UNIT_US = {
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}


def check_trigger(text: str) -> None:
    """Refuses text that is not a trigger."""
    if text != "available_now":
        check_duration(text)


def check_setting(text: str) -> None:
    """Refuses text that is not a setting."""
    if not re.fullmatch(r"spark\.[^\s=]+=.*", text):
        raise ValueError(f"{text!r} is not a setting")


def check_option(text: str) -> None:
    """Refuses text that is not an option of an object store."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*=.*", text):
        raise ValueError("is not an option")  # it may have a secret


def check_memory(text: str) -> None:
    """Refuses text that Spark does not accept as a size."""
    if not re.fullmatch(r"[1-9]\d*[mg]", text):
        raise ValueError(f"{text!r} is not a size")


def check_master(text: str) -> None:
    """Refuses text that is not a Spark master."""
    if not re.fullmatch(r"local(\[[^\]]+\])?|yarn|local-cluster\[.+\]|(spark|k8s)://\S+", text):
        raise ValueError(f"{text!r} is not a master")


def check_remote(text: str) -> None:
    """Refuses Spark Connect: it would run the function that writes a batch in the server."""
    raise ValueError(f"{text!r}: a pipeline does not run through Spark Connect (ADR 0061)")


def check_text(text: str) -> None:
    """Refuses empty text."""
    if not text.strip():
        raise ValueError("is empty")


Name = Annotated[str, Parsed(check_name, NAMES)]
Duration = Annotated[str, Parsed(check_duration, UNITS)]
Trigger = Annotated[str, Parsed(check_trigger, f"available_now, or {UNITS}")]
Setting = Annotated[str, Parsed(check_setting, "a setting of Spark, as spark.executor.memory=4g")]
Option = Annotated[
    str, Parsed(check_option, "an option of delta-rs, as AWS_ENDPOINT_URL=https://host")
]
Place = Annotated[Location, Parsed(check_location, "a folder, or a URI as s3a://bucket/folder")]
Memory = Annotated[str, Parsed(check_memory, "a size, as 512m or 2g")]
Master = Annotated[
    str, Parsed(check_master, "local[*,4], spark://host:port, k8s://https://host:port, yarn")
]
Remote = Annotated[str, Parsed(check_remote, "master, with the address of the cluster")]
Sql = Annotated[str, Parsed(check_text, "a Spark SQL expression")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The stream that the pipeline reads. It needs ``path`` or ``endpoint``."""

    stream: str
    """Name of the stream."""
    path: Path | None = None
    """The broker's data folder, relative to this file."""
    endpoint: str | None = None
    """Instead of ``path``: the broker's HTTP address, ``https://host:port``."""
    token_file: Path | None = None
    """A file with the broker's token, or the secret of a key with the scope ``rows``; alerts need
    ``publish``, too."""
    ca: Path | None = None
    """For ``https``: a file with the trusted CAs. Default: those of the system."""
    topic: Filter = "#"
    """Topic filter of the messages to read."""
    starting: Literal["earliest", "latest"] = "earliest"
    """Where a new pipeline begins: with the oldest rows, or with new ones."""
    rows_per_batch: Annotated[int, Range(1, 2**31 - 1)] = 1_000_000
    """Maximum rows of a batch."""
    batch_time: Duration = "20 seconds"
    """About how long a batch may take: after a longer one the next has fewer rows, 100,000 at
    least, unless the pipeline falls behind; the first has 100,000. If ``trigger`` is longer, only
    ``rows_per_batch`` counts."""

    def place(self) -> dict[str, str]:
        """The stream and its broker, as options of ``format("mqttcore")``.

        Raises:
            PipelineError: the file with the token cannot be read.
        """
        path = str(self.path.absolute()) if self.path else ""
        options = {
            "path": path,
            "endpoint": self.endpoint or "",
            "token": self.token() or "",
            "ca": self.trusted() or "",
            "stream": self.stream,
        }
        return {name: value for name, value in options.items() if value}

    def client(self, *, timeout_s: float = 30.0) -> StreamClient:
        """A client of the broker that stores the stream; nothing is requested yet.

        Raises:
            PipelineError: the file with the token cannot be read.
        """
        place = self.endpoint or str(self.path and self.path.absolute())
        return StreamClient(place, token=self.token(), timeout_s=timeout_s, ca=self.trusted())

    def trusted(self) -> str | None:
        """The CAs as PEM text.

        Raises:
            PipelineError: the file cannot be read, or has no certificate.
        """
        if self.ca is None:
            return None
        try:
            return read_ca(str(self.ca))
        except ValueError as error:
            raise PipelineError(f"{self.ca}: {error}") from error

    def token(self) -> str | None:
        """The token for the endpoint.

        Raises:
            PipelineError: the file with it cannot be read.
        """
        if self.token_file is None:
            return None
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise PipelineError(f"{self.token_file}: cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Bronze:
    """The raw messages, partitioned by day."""

    keep: bool = True
    """Writes the table ``bronze``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silver:
    """Decoded and valid messages, each once; the others go to the table ``quarantine``."""

    schema: Sql
    """Columns of the payload, in Spark's DDL: ``machine STRING, at TIMESTAMP``."""
    decode: Format = "json"
    """Payload format: json, cbor, msgpack, text, protobuf, avro, sparkplug, auto."""
    descriptor: Path | None = None
    """For ``protobuf``: a file with a FileDescriptorSet, made by ``protoc``."""
    message: str | None = None
    """For ``protobuf``: the full name of the message type."""
    schemas: Path | None = None
    """For ``avro``: a folder with a file ``<number>.avsc`` for each schema of the registry."""
    event_time: Name = "timestamp"
    """Time column of windows and of the watermark. Default: the broker's time of the message."""
    watermark: Duration = "1 minute"
    """How late a message may be. Later ones go to quarantine, if there are gold tables or columns
    in ``dedupe``. A window closes when a message is newer than its end by this time."""
    valid: tuple[Sql, ...] = ()
    """Conditions. A message for which one of them is false or null goes to quarantine."""
    dedupe: tuple[Name, ...] = ()
    """Columns that identify a message: of messages with equal values, within the watermark at
    least, one is kept. Without the event time, the values must be unique for ever: no counter
    that starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """Windows over the valid messages."""

    name: Name
    """Name of the table."""
    window: Duration
    """Length of the windows: ``1 minute``."""
    columns: tuple[Sql, ...]
    """Aggregates with their names: ``avg(temperature) AS mean``."""
    slide: Duration | None = None
    """Time from one window to the next. Default: ``window``."""
    group_by: tuple[Name, ...] = ()
    """Columns of silver; each window has a row for each of their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Rows of a table that are published as messages."""

    name: Name
    """Name of the alert."""
    table: Name
    """``silver`` or the name of a gold table."""
    when: Sql
    """Condition of the rows to publish."""
    topic: Sql
    """Topic, as an expression: a constant stands in quotes, ``'alerts/hot'``."""
    payload: Sql | None = None
    """Payload, as an expression. Default: the whole row as JSON."""
    qos: Annotated[int, Range(0, 2)] = 1
    """QoS of the messages."""
    retain: bool = False
    """Publishes retained messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """The Spark that runs a pipeline."""

    master: Master = "local[*,4]"
    """Spark master. ``local[*,4]`` repeats a failed task; ``local[*]`` would end the query."""
    remote: Remote | None = None
    """Refused. A Spark Connect server would run the function of a batch on its own machine, without
    the lock, the supervisor and the progress of the pipeline."""
    memory: Memory = "1g"
    """Memory of the driver."""
    packages: tuple[Sql, ...] = ()
    """Jars that Spark downloads, as ``group:name:version``."""
    conf: tuple[Setting, ...] = ()
    """Other settings, as ``spark.executor.memory=4g``; the last one of a name wins."""

    def settings(self) -> dict[str, str]:
        """All settings except master and memory, by their names in Spark."""
        packages = {"spark.jars.packages": ",".join(self.packages)} if self.packages else {}
        parts = (setting.partition("=") for setting in self.conf)
        return packages | {name: value for name, _, value in parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The whole configuration of a pipeline, with its defaults."""

    name: Name
    """Name of the pipeline, in its progress reports and checkpoints."""
    source: Source
    silver: Silver
    tables: Place | Path = Path("tables")
    """Folder of the tables, relative to this file, or URI of an object store. Executors need access
    to it, too."""
    checkpoints: Place | Path | None = None
    """Folder or URI of the checkpoint. Default: ``_checkpoints`` in ``tables``. For an object
    store, Spark needs its jar."""
    storage: tuple[Option, ...] = ()
    """Options of the object store, as ``AWS_ENDPOINT_URL=https://host``. Others, such as secrets,
    come from the environment, on executors too."""
    format: Literal["delta", "parquet"] = "delta"
    """Format of the tables."""
    trigger: Trigger = "2 seconds"
    """Time between batches, or ``available_now``."""
    spark: Spark = Spark()
    bronze: Bronze = Bronze()
    gold: tuple[Gold, ...] = ()
    alerts: tuple[Alert, ...] = ()

    def table(self, name: str) -> Location:
        """The location of a table."""
        return located(self.tables, self._options()) / name

    def checkpoint(self) -> Location:
        """The location of the checkpoint."""
        default = self.tables / "_checkpoints"
        return located(self.checkpoints or default, self._options())

    def _options(self) -> dict[str, str]:
        parts = (option.partition("=") for option in self.storage)
        return {name: value for name, _, value in parts}


def load(path: Path | str) -> Pipeline:
    """Reads and checks a pipeline's file.

    Raises:
        ConfigError: with everything that is wrong, each with its line and key.
    """
    faults = Faults()
    root = read_file(Path(path), faults)
    if not faults:
        pipeline = read_record(Pipeline, root, key="", faults=faults)
        if pipeline is not None:
            check_source(pipeline.source, root, faults)
            check_names(pipeline, root, faults)
            check_silver(pipeline.silver, root, faults)
            check_places(pipeline, root, faults)
    raise_faults(faults)
    pipeline, folder = cast(Pipeline, pipeline), Path(path).parent
    return replace(
        pipeline,
        tables=beside(folder, pipeline.tables),
        checkpoints=beside(folder, pipeline.checkpoints) if pipeline.checkpoints else None,
    )


def beside(folder: Path, place: Location | Path) -> Location | Path:
    """A location in the file of the folder ``folder``."""
    if isinstance(place, Location) and not place.is_remote:
        return folder / place.path
    return place


def check_places(pipeline: Pipeline, root: Entry, faults: Faults) -> None:
    """Checks locations: Parquet tables need folders, since they commit by renaming."""
    name = str(pipeline.tables)
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", name):
        what = f'"{name}" is a name in a catalog, where no commit tells its batch (ADR 0080)'
        create = f"CREATE TABLE {name}.silver USING delta LOCATION '<tables>/silver'"
        cure = f"take a folder or a URI, and register its tables once: {create}"
        faults.add(place_of(root, "tables"), "tables", what, cure, f"or a folder: ./{name}")
    if located(pipeline.tables, {}).is_remote and pipeline.format == "parquet":
        what = "Parquet tables are folders: an object store has no rename"
        cure = 'take format = "delta", whose tables are Parquet files with a log'
        faults.add(place_of(root, "format"), "format", what, cure)
    remote = located(pipeline.checkpoints or pipeline.tables, {}).is_remote
    if pipeline.storage and not (remote or located(pipeline.tables, {}).is_remote):
        what = "has no effect: neither tables nor checkpoints are in an object store"
        faults.add(place_of(root, "storage"), "storage", what)


def check_source(source: Source, root: Entry, faults: Faults) -> None:
    """Checks that the source has either a path or an endpoint, and certificates only for https."""
    if (source.path is None) == (source.endpoint is None):
        faults.add(place_of(root, "source"), "source", "needs either path or endpoint")
    if source.ca is not None and not (source.endpoint or "").startswith("https:"):
        faults.add(place_of(root, "source.ca"), "source.ca", "needs endpoint = https://host:port")


def check_silver(silver: Silver, root: Entry, faults: Faults) -> None:
    """Checks that Protocol Buffers and Avro have descriptions, and no other format."""

    def fault(name: str, what: str, *notes: str) -> None:
        key = f"silver.{name}"
        faults.add(place_of(root, key), key, what, *notes)

    check_protobuf(silver.decode, silver.descriptor, silver.message, fault)
    check_avro(silver.decode, silver.schemas, fault)


def check_names(pipeline: Pipeline, root: Entry, faults: Faults) -> None:
    """Checks that names of tables are unique, and that alerts name an existing table."""
    taken = set(TAKEN)
    for index, gold in enumerate(pipeline.gold):
        key = f"gold[{index}].name"
        if gold.name in taken:
            faults.add(place_of(root, key), key, f'duplicate table "{gold.name}"')
        taken.add(gold.name)
    tables = ["silver", *(gold.name for gold in pipeline.gold)]
    seen = set[str]()
    for index, alert in enumerate(pipeline.alerts):
        key = f"alerts[{index}]"
        if alert.table not in tables:
            allowed = "allowed: " + ", ".join(tables)
            faults.add(place_of(root, f"{key}.table"), f"{key}.table", "unknown table", allowed)
        if alert.name in seen:
            faults.add(place_of(root, f"{key}.name"), f"{key}.name", "duplicate name of an alert")
        seen.add(alert.name)
