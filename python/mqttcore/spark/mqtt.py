"""Publishes rows to any broker over MQTT, at least once.

Each task has its own connection, and ends when the broker has acknowledged all of its messages. If
a task is repeated, the broker gets its messages again: over MQTT 5.0 each message has the user
property `Publisher.ID`, equal in all attempts, by which consumers recognise repeats.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from mqttcore._core import Publisher
from mqttcore.errors import StreamOptionError, UndeliveredError
from mqttcore.spark.feedback import guard_of
from mqttcore.spark.messages import Form, ipc

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mqttcore.spark.messages import RowPlace
    from mqttcore.spark.sink_options import SinkOptions

__all__ = ["Delivered", "Foreign"]

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(WriterCommitMessage):
    """The message of a task to the driver: the task is done."""

    rows: int


class Foreign:
    """A broker that is reached over MQTT, as a target of rows. It pickles without connections."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Connects in tasks only.

        Raises:
            StreamOptionError: a column is none of a message, or the protocol has no place for it;
                or user name and password cannot be sent.
            LoopError: option topic is what the query reads.
        """
        self.options = options
        self.form = Form(options, schema, guard_of(options, None))
        nothing = pa.RecordBatch.from_pylist([], schema=self.form.schema)
        try:
            publisher_of(options, options.client_id, "").publish(b"".join(ipc([nothing])))
        except UndeliveredError as error:
            raise StreamOptionError(f"protocol {options.protocol}: {error}") from error

    def send(self, batches: Iterable[pa.RecordBatch], place: RowPlace) -> Delivered:
        """Publishes the rows of a task.

        Raises:
            UndeliveredError: a row is no message, or the broker refuses it or does not acknowledge
                it.
        """
        with Connection(self.options, place) as connection:
            for batch in self.form.messages(batches):
                connection.publish(batch)
        return Delivered(rows=connection.publisher.next_row)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: the messages are published already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: published messages stay."""


def client_id(prefix: str, place: RowPlace) -> str:
    """The client identifier of one attempt; a second client with it would end the first one."""
    return f"{prefix}-{place.query}-{place.batch}-{place.partition}-{place.attempt}"


def publisher_of(options: SinkOptions, client: str, name: str, *, first_row: int = 0) -> Publisher:
    """Makes a publisher; ``first_row`` is the number of its first message."""
    return Publisher(
        name,
        protocol=options.protocol,
        client_id=client,
        username=options.username,
        password=options.password,
        window=options.window,
        first_row=first_row,
    )


class Connection:
    """Moves bytes between a `Publisher` and a socket. It waits in one place, `wait`.

    When `publish` returns, all messages are acknowledged. So nothing is in flight while Spark is
    slow to deliver the next rows; if the broker closes the idle connection, it connects again.
    """

    def __init__(self, options: SinkOptions, place: RowPlace) -> None:
        """Connects on entering."""
        self.options = options
        self.client = client_id(options.client_id, place)
        self.name = f"{place.query}/{place.batch}/{place.partition}"
        self.publisher = publisher_of(options, self.client, self.name)
        self.out = memoryview(b"")
        """Bytes of the publisher that the socket has not accepted yet."""
        self.blocked_on = selectors.EVENT_READ
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self.naming_the_broker():
            self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.stack:
            if kind is None:
                self.publisher.disconnect()
                with contextlib.suppress(OSError, UndeliveredError):
                    self.write()

    @contextlib.contextmanager
    def naming_the_broker(self) -> Iterator[None]:
        """Raises all failures as one type of error."""
        try:
            yield
        except (OSError, UndeliveredError) as error:
            raise UndeliveredError(f"{self.options.broker}: {error}") from error

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publishes a batch; returns when all its messages are acknowledged.

        Raises:
            UndeliveredError: one of them is none, or the broker refuses it, or does not answer.
        """
        with self.naming_the_broker():
            if self.is_lost():
                self.open()
            self.publisher.publish(b"".join(ipc([batch])))
            self.drive(lambda: not self.publisher.has_rows and self.publisher.in_flight == 0)

    def open(self) -> None:
        """Connects, with the number of the next row."""
        self.stack.close()
        row = self.publisher.next_row
        self.publisher = publisher_of(self.options, self.client, self.name, first_row=row)
        self.out = memoryview(b"")
        with contextlib.ExitStack() as stack:
            self.socket = stack.enter_context(connected(self.options))
            self.selector = stack.enter_context(selectors.DefaultSelector())
            self.selector.register(self.socket, selectors.EVENT_READ)
            self.drive(lambda: self.publisher.is_connected)
            self.stack = stack.pop_all()

    def is_lost(self) -> bool:
        """Whether the broker has ended the connection since the last message."""
        try:
            while self.read():
                pass
        except (OSError, UndeliveredError):
            return True
        return False

    def drive(self, is_over: Callable[[], bool]) -> None:
        """Transfers bytes until `is_over`, or until nothing has progressed for `timeout_s`."""
        retry_s = self.options.timeout_s
        deadline = time.monotonic() + retry_s
        while not is_over():
            before = self.publisher.in_flight, self.publisher.next_row
            self.blocked_on = selectors.EVENT_READ
            sent, received = self.write(), self.read()
            if sent or before != (self.publisher.in_flight, self.publisher.next_row):
                deadline = time.monotonic() + retry_s
            elif time.monotonic() > deadline:
                raise UndeliveredError(self.silence())
            if not (sent or received):
                self.wait(deadline)

    def silence(self) -> str:
        """The error for a missing answer."""
        if not self.publisher.is_connected:
            return "no CONNACK received"
        return f"{self.publisher.in_flight} messages are not acknowledged"

    def wait(self, deadline: float) -> None:
        """Waits for the socket; sends a PINGREQ in time."""
        rest_s = max(0.0, deadline - time.monotonic())
        if self.publisher.keep_alive_s:
            rest_s = min(rest_s, self.publisher.keep_alive_s / 2)
        self.selector.modify(self.socket, self.blocked_on)
        if not self.selector.select(rest_s) and not self.out and self.publisher.is_connected:
            self.publisher.ping()
            self.write()

    def write(self) -> bool:
        """Sends as much as the socket accepts; returns whether it accepted something."""
        self.out = self.out or memoryview(self.publisher.poll_transmit())
        if not self.out:
            return False
        try:
            count = self.socket.send(self.out)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.blocked_on |= selectors.EVENT_WRITE
            return False
        except ssl.SSLWantReadError:
            return False
        except OSError:
            # the broker may have sent a reason
            while self.read():
                pass
            raise
        self.out = self.out[count:]
        return count > 0

    def read(self) -> bool:
        """Handles bytes of the broker; returns whether there were some."""
        try:
            data = self.socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except ssl.SSLWantWriteError:
            self.blocked_on |= selectors.EVENT_WRITE
            return False
        if not data:
            raise UndeliveredError("the broker closed the connection")
        self.publisher.handle_bytes(data)
        return True


def connected(options: SinkOptions) -> socket.socket:
    """A socket to the broker that does not block."""
    url = urllib.parse.urlsplit(options.broker or "")
    host, port = url.hostname or "", url.port or PORTS[url.scheme]
    plain = socket.create_connection((host, port), timeout=options.timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = plain
        if url.scheme == "mqtts":
            secured = trust(options.ca).wrap_socket(plain, server_hostname=host)
        secured.setblocking(False)
    except BaseException:
        plain.close()
        raise
    return secured


def trust(ca: str | None) -> ssl.SSLContext:
    """The certificates that are trusted."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise UndeliveredError(f"option ca = {ca!r}: {error}") from error
