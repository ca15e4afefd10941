"""A stream as the source sees it: sealed files, and the tail at the endpoint of the broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqttcore.errors import EndpointUnreachableError, StreamFolderError, StreamOptionError
from mqttcore.spark.folder import StreamFolder, find_folder
from mqttcore.spark.typed import TypedColumns, typed_columns
from mqttcore.streams.client import Client

if TYPE_CHECKING:
    from mqttcore.spark.options import SourceOptions

__all__ = ["State", "StreamLog", "open_log"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A stream at one moment; all offsets are one a partition."""

    name: str
    epoch: str
    earliest: tuple[int, ...]
    """The first row that still counts."""
    sealed: tuple[int, ...]
    """The first row that is not in a sealed file."""
    end: tuple[int, ...]
    """The first row that is not there yet, or not safe yet."""
    filters: tuple[str, ...] = ()
    """What the stream takes in."""


@dataclass(slots=True, kw_only=True)
class StreamLog:
    """Where a stream's rows are. It pickles without any open connection."""

    name: str
    folder: StreamFolder | None
    client: Client

    def state(self) -> State:
        """What the broker says, or while it is away, what is sealed."""
        try:
            return self.live_state()
        except EndpointUnreachableError:
            if self.folder is None:
                raise
        return self.sealed_state()

    def live_state(self) -> State:
        """What the broker says."""
        info = self.client.stream(self.name)
        return State(
            name=info.name,
            epoch=info.epoch,
            earliest=tuple(bounds.earliest for bounds in info.partitions),
            sealed=tuple(bounds.sealed_end for bounds in info.partitions),
            end=tuple(bounds.end for bounds in info.partitions),
            filters=info.filters,
        )

    def sealed_state(self) -> State:
        """What the folder says: without the broker nothing else can be read."""
        folder = self.needed_folder()
        index = folder.index()
        described = folder.describe()
        return State(
            name=described.name,
            epoch=described.epoch,
            earliest=index.earliest,
            sealed=index.ends,
            end=index.ends,
            filters=described.filters,
        )

    def needed_folder(self) -> StreamFolder:
        """The folder, which some questions need.

        Raises:
            StreamFolderError: only the endpoint is known, and its folder is not on this machine.
        """
        if self.folder is None:
            raise StreamFolderError(
                f"stream {self.name}: its sealed rows are in files that this machine does not see;"
                " mount the broker's data folder, or name it with option path"
            )
        return self.folder

    def typed(self) -> TypedColumns | None:
        """The typed columns of the stream itself."""
        if self.folder is not None:
            return typed_columns(self.folder.describe().schema)
        return typed_columns(self.client.stream(self.name).schema)

    def aliases(self) -> dict[str, Any]:
        """What Sparkplug's aliases meant where the sealed rows end, as far as that is known."""
        return self.folder.aliases() if self.folder is not None else {}

    def offsets_at(self, timestamp_us: int) -> tuple[int, ...]:
        """The first row of each partition at or after a time, sealed or not."""
        try:
            return self.client.offsets(self.name, timestamp_us=timestamp_us)
        except EndpointUnreachableError:
            if self.folder is None:
                raise
        return self.needed_folder().sealed_at(timestamp_us)

    def hold(self, consumer: str, offsets: Sequence[int]) -> None:
        """Asks the broker to keep everything from ``offsets`` on for this consumer.

        A broker that is away deletes nothing, and is told with the next batch.
        """
        try:
            self.client.hold(self.name, consumer, offsets)
        except EndpointUnreachableError as error:
            logger.warning("stream %s: no hold for %s: %s", self.name, consumer, error)

    def close(self) -> None:
        """Ends the connection to the broker."""
        self.client.close()

    def row_bytes(self) -> float:
        """About what a row takes, to turn a limit of bytes into one of rows."""
        known = self.folder.index().row_bytes() if self.folder is not None else None
        return known or ROW_BYTES


ROW_BYTES = 256.0
"""Of a row of a stream that has nothing sealed yet."""


def open_log(options: SourceOptions) -> StreamLog:
    """Finds the stream that options name; opens no connection unless only an endpoint is named.

    Raises:
        StreamFolderError: the path holds no such stream.
        StreamOptionError: the options do not say which stream.
        EndpointError: only an endpoint is named, and it does not answer or has no such stream.
    """
    if options.path is not None:
        folder = find_folder(options.path, options.stream)
        client = Client(options.endpoint or socket_beside(folder), token=options.token)
        return StreamLog(name=folder.describe().name, folder=folder, client=client)
    if options.endpoint is None or options.stream is None:
        raise StreamOptionError("option path, or options endpoint and stream, are missing")
    client = Client(options.endpoint, token=options.token)
    return StreamLog(
        name=options.stream, folder=shared_folder(client, options.stream), client=client
    )


def socket_beside(folder: StreamFolder) -> str:
    """Where a broker that runs on this folder answers."""
    return f"unix:{folder.path.absolute().parent / 'endpoint.sock'}"


def shared_folder(client: Client, stream: str) -> StreamFolder | None:
    """The broker's folder, if this machine sees it at the same path and it is the same stream."""
    info = client.stream(stream)
    folder = StreamFolder(info.path)
    try:
        return folder if folder.describe().epoch == info.epoch else None
    except StreamFolderError:
        return None
