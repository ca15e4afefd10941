"""Publishes rows to an mqttcore broker: tasks stage, one commit publishes, exactly once."""

from __future__ import annotations

import logging
import pathlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from mqttcore.errors import EndpointError, StreamOptionError
from mqttcore.spark.feedback import guard_of
from mqttcore.spark.messages import Form, ipc
from mqttcore.spark.retry import with_retries
from mqttcore.streams.client import StreamClient, read_ca

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mqttcore.spark.messages import RowPlace
    from mqttcore.spark.sink_options import SinkOptions

__all__ = ["BrokerAddress", "Staged"]

logger = logging.getLogger(__name__)
COMMIT_S: Final = 600.0
"""Seconds that the broker may take to publish a batch."""
TARGET: Final = "the broker that gets the rows"
STAGE_BYTES: Final = 32 << 20
"""Bytes that a task collects before it sends them: rows may arrive slowly, but a request must be
fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(WriterCommitMessage):
    """The result of a task for the driver."""

    query: str
    batch: int
    stages: tuple[str, ...]
    """One name for each `STAGE_BYTES`; none without rows."""
    rows: int


class BrokerAddress:
    """The endpoint of an mqttcore broker as a target of rows. It pickles without connections."""

    def __init__(self, options: SinkOptions, schema: StructType, *, is_first: bool = False) -> None:
        """Asks the broker which topics would come back to the query.

        ``is_first`` also checks that the broker is reachable, without waiting for it.

        Raises:
            StreamOptionError: the path is none of a broker, or a column is none of a message.
            LoopError: option topic is what the query reads.
            EndpointError: the broker does not answer, or has no such stream.
        """
        self.client = client_of(options)
        self.replacing = options.prefix and f"{options.prefix}/#"
        try:
            if is_first:
                self.client.streams()
            guard = with_retries(partial(guard_of, options, self.client), what=TARGET)
            self.form = Form(options, schema, guard)
        finally:
            self.client.close()

    def send(self, batches: Iterable[pa.RecordBatch], place: RowPlace) -> Staged:
        """Stages the rows of a task.

        Raises:
            EndpointError: a row is no message, or the broker has no room, or does not come back.
        """
        stages, rows = [], 0
        for part in parts(self.form.messages(batches)):
            stage, count = with_retries(partial(self.stage, place, part), what=TARGET)
            stages.append(stage)
            rows += count
        return Staged(query=place.query, batch=place.batch, stages=tuple(stages), rows=rows)

    def stage(self, place: RowPlace, part: Sequence[pa.RecordBatch]) -> tuple[str, int]:
        """Makes one attempt, with a unique name."""
        stage = secrets.token_hex(16)
        return stage, self.client.stage(place.query, place.batch, stage, ipc(part))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publishes the staged rows, unless they were published before.

        Raises:
            EndpointError: the broker refuses it, or does not come back.
        """
        for (query, batch), stages in staged(messages).items():
            if not stages and self.replacing is None:
                continue
            if not with_retries(partial(self.publish, query, batch, stages), what=TARGET):
                logger.info("batch %d of %s was published before", batch, query)
                self.client.abort(query, batch, stages)
        self.client.close()

    def publish(self, query: str, batch: int, stages: Sequence[str]) -> bool:
        """Publishes the stages; False: they were published before."""
        return self.client.commit(query, batch, stages, replacing=self.replacing)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Lets the broker discard the staged rows; otherwise it does so after a day."""
        for (query, batch), stages in staged(messages).items():
            try:
                self.client.abort(query, batch, stages)
            except EndpointError as error:
                logger.warning(
                    "cannot remove the stages of batch %d of %s, they stay for a day: %s",
                    batch,
                    query,
                    error,
                )
        self.client.close()


def client_of(options: SinkOptions) -> StreamClient:
    """The broker's endpoint, also for workers that run in another folder.

    Raises:
        StreamOptionError: option path is no folder, or option ca has no certificate.
    """
    place = options.endpoint
    if place is None:
        path = pathlib.Path(options.path or "").absolute()
        if not path.is_dir():
            raise StreamOptionError(f"option path = {options.path!r}: no such folder")
        place = str(path)
    try:
        ca = read_ca(options.ca) if options.ca is not None else None
    except ValueError as error:
        raise StreamOptionError(f"option ca = {options.ca!r}: {error}") from error
    return StreamClient(place, token=options.token, timeout_s=COMMIT_S, ca=ca)


def parts(messages: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Groups batches into stages of `STAGE_BYTES` or slightly more."""
    part: list[pa.RecordBatch] = []
    size = 0
    for batch in messages:
        part.append(batch)
        size += batch.nbytes
        if size >= STAGE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def staged(
    messages: Sequence[WriterCommitMessage | None],
) -> dict[tuple[str, int], list[str]]:
    """The stages of each batch: one batch, or none if no task was completed."""
    found: dict[tuple[str, int], list[str]] = {}
    for message in messages:
        if isinstance(message, Staged):
            found.setdefault((message.query, message.batch), []).extend(message.stages)
    return found
