"""The configuration of Kafka for streams with ``log = "kafka"``."""

import pathlib
import re
import stat
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

from mqttcore._core import has_kafka, has_kafka_tls
from mqttcore._record import Record
from mqttcore._schema import Faults, Parsed, Place, Range


def check_topic(text: str) -> None:
    """Refuses text that is not a name of a Kafka topic."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic of Kafka")


def check_server(text: str) -> None:
    """Refuses text that is not a host and port; the host may be a name."""
    if not re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", text):
        raise ValueError(f"{text!r} is not a host and port")


KafkaTopic = Annotated[str, Parsed(check_topic, "letters, digits, ., _ and -, up to 249")]
Server = Annotated[str, Parsed(check_server, "host and port, as kafka-1.example.org:9092")]


class KafkaTls(Record):
    """Encrypts the connection to Kafka; certificates and host names of its nodes are verified."""

    ca: pathlib.Path | None = None
    """CAs of the nodes' certificates, as a PEM file; None: those of the system."""
    certificate: pathlib.Path | None = None
    """A certificate of this broker, as a PEM file with its chain."""
    key: pathlib.Path | None = None
    """The private key of that certificate, as a PEM file."""


class KafkaSasl(Record):
    """The broker's user at Kafka."""

    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
    """SASL mechanism; PLAIN and OAUTHBEARER send their secret to Kafka as it is."""
    username: str | None = None
    password_file: pathlib.Path | None = None
    """A file with the password, which only its owner can read."""
    token_file: pathlib.Path | None = None
    """A file with the token of OAUTHBEARER, which another program renews: it is read again when
    80 % of the token's life is over."""

    @property
    def password(self) -> str | None:
        """The password; None with OAUTHBEARER.

        Raises:
            ValueError: the file cannot be read, others may read it, or it is empty.
        """
        return None if self.password_file is None else read_secret(self.password_file, "password")


def read_secret(path: pathlib.Path, what: str) -> str:
    """The password or token (`what`) in a file, without the end of its line.

    Raises:
        ValueError: the file cannot be read, others may read it, or it is empty.
    """
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{path} cannot be read: {why}") from error
    if stat.S_IMODE(mode) & stat.S_IRWXO:
        raise ValueError(f"{path} can be read by all users of this machine")
    if not text or "\0" in text:
        raise ValueError(f"{path} has no {what}")
    return text


class Kafka(Record):
    """The Kafka for streams with ``log = "kafka"``."""

    servers: tuple[Server, ...]
    """Addresses of some of its nodes; the others are found through them."""
    delivery_timeout_s: Annotated[float, Range(1, 86_400)] = 120.0
    """Seconds after which a message that Kafka did not accept is given up: its publisher is
    disconnected without an acknowledgement, and sends it again."""
    linger_ms: Annotated[int, Range(0, 1_000)] = 1
    """Time that a record waits for others in the same request; 5 is better for a high rate."""
    compression: Literal["none", "lz4", "snappy"] = "lz4"
    """Compression of records."""
    queue_bytes: Annotated[int, Range(1 << 20, 2**40)] = 64 << 20
    """If this many bytes wait for Kafka, QoS 0 is dropped and publishers that wait are not read;
    twice as much is refused."""
    start_deadline_s: Annotated[float, Range(0.1, 3_600)] = 15.0
    """Seconds to reach Kafka; otherwise the broker does not start."""
    tls: KafkaTls | None = None
    """TLS of the connection; None: it is not encrypted."""
    sasl: KafkaSasl | None = None
    """The user; None: no user name."""

    @property
    def addresses(self) -> str:
        """The servers in the format of Kafka's client."""
        return ",".join(self.servers)


BUILD: Final = (
    "this build of mqttcore has no Kafka; install one that has:"
    ' MATURIN_PEP517_ARGS="--features kafka" pip install --no-binary mqttcore mqttcore,'
    " or in a checkout make build FEATURES=kafka"
)


TLS_BUILD: Final = (
    "this build of mqttcore has Kafka without TLS and SASL; make build FEATURES=kafka-tls has both"
)


def check_security(kafka: Kafka, place: Callable[[str], Place], faults: Faults) -> None:
    """Checks ``[kafka.tls]`` and ``[kafka.sasl]``."""
    for name, table in (("kafka.tls", kafka.tls), ("kafka.sasl", kafka.sasl)):
        if table is not None and has_kafka and not has_kafka_tls:
            faults.add(place(name), name, TLS_BUILD)
    if kafka.tls is not None:
        check_certificates(kafka.tls, place, faults)
    if kafka.sasl is not None:
        check_user(kafka, kafka.sasl, place, faults)


def check_certificates(tls: KafkaTls, place: Callable[[str], Place], faults: Faults) -> None:
    """Checks that the files exist, and that the certificate has a key."""
    if (tls.certificate is None) != (tls.key is None):
        faults.add(place("kafka.tls"), "kafka.tls", "certificate and key must be set together")
    for name in ("ca", "certificate", "key"):
        path: pathlib.Path | None = getattr(tls, name)
        if path is not None and not path.is_file():
            faults.add(place(f"kafka.tls.{name}"), f"kafka.tls.{name}", f"{path} is not a file")


def check_user(
    kafka: Kafka, sasl: KafkaSasl, place: Callable[[str], Place], faults: Faults
) -> None:
    """Checks the secret, and that others cannot read it on the connection."""
    is_token = sasl.mechanism == "OAUTHBEARER"
    needed = ("token_file",) if is_token else ("username", "password_file")
    for name in ("username", "password_file", "token_file"):
        key = f"kafka.sasl.{name}"
        is_set = getattr(sasl, name) is not None
        if is_set and name not in needed:
            faults.add(place(key), key, f"has no effect with {sasl.mechanism}")
        elif not is_set and name in needed:
            faults.add(place("kafka.sasl"), key, f"is missing; {sasl.mechanism} needs it")
    name, what = ("token_file", "token") if is_token else ("password_file", "password")
    path: pathlib.Path | None = getattr(sasl, name)
    try:
        if path is not None:
            read_secret(path, what)
    except ValueError as error:
        key = f"kafka.sasl.{name}"
        faults.add(place(key), key, str(error), "allowed: a file that only its owner can read")
    is_local = all(server.startswith(LOCAL) for server in kafka.servers)
    if sasl.mechanism in ("PLAIN", "OAUTHBEARER") and kafka.tls is None and not is_local:
        what = f"{sasl.mechanism} sends the {what} as it is, and the connection to Kafka is not"
        what += " encrypted"
        key = "kafka.sasl.mechanism"
        faults.add(place(key), key, what, "allowed: with [kafka.tls], or a SCRAM mechanism")


LOCAL: Final = ("127.", "localhost:", "[::1]:")
"""Beginnings of addresses of this machine."""


def check_kafka(
    logs: Sequence[str], kafka: Kafka | None, place: Callable[[str], Place], faults: Faults
) -> None:
    """Checks ``log`` of each stream together with ``[kafka]``."""
    named = [index for index, log in enumerate(logs) if log == "kafka"]
    if kafka is not None and not kafka.servers:
        faults.add(place("kafka.servers"), "kafka.servers", "is empty", "allowed: 1 or more")
    if kafka is not None:
        check_security(kafka, place, faults)
    if kafka is not None and not named:
        faults.add(place("kafka"), "kafka", "has no effect without a stream whose log is kafka")
    for index in named:
        key = f"streams[{index}].log"
        if not has_kafka:
            faults.add(place(key), key, BUILD)
        elif kafka is None:
            faults.add(place(key), key, "needs the address of Kafka", "allowed: with [kafka]")
