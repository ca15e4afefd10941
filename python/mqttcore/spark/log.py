"""The log of a stream for the source: sealed files, and the tail from the broker's endpoint."""

from __future__ import annotations

import dataclasses
import logging
import socket
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from mqttcore.errors import (
    EndpointError,
    EndpointUnreachableError,
    StreamFolderError,
    StreamOptionError,
)
from mqttcore.spark.folder import StreamFolder, find_folder
from mqttcore.spark.remote import RemoteFolder
from mqttcore.spark.retry import RETRY_S, with_retries
from mqttcore.spark.typed import TypedColumns, typed_columns
from mqttcore.streams.client import SOCKET_NAME, StreamClient

if TYPE_CHECKING:
    from mqttcore.spark.folder import SealedIndex
    from mqttcore.spark.options import SourceOptions

__all__ = ["State", "StreamLog", "open_log"]

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of a stream at one moment, with one offset for each partition."""

    name: str
    epoch: str
    earliest: tuple[int, ...]
    """The first readable row."""
    sealed: tuple[int, ...]
    """The first row that is not in a sealed file."""
    end: tuple[int, ...]
    """The end of the rows that exist and are durable."""
    filters: tuple[str, ...] = ()
    """The topic filters of the stream."""
    is_configured: bool = True
    """Whether the broker still adds rows."""


@dataclass(slots=True, kw_only=True)
class StreamLog:
    """Location of the rows of a stream. It pickles without open connections."""

    name: str
    folder: StreamFolder | None
    """The folder of the files on this machine; None: files are fetched over HTTP."""
    client: StreamClient
    is_local: bool = True
    """Whether the broker is on the same machine."""
    remote: RemoteFolder = field(init=False)

    def __post_init__(self) -> None:
        self.remote = RemoteFolder(self.client, self.name)

    def state(self) -> State:
        """The state that the broker reports; if the broker is away, the sealed state."""
        try:
            return self.live_state()
        except EndpointUnreachableError:
            if self.folder is None:
                raise
        return self.sealed_state()

    def live_state(self) -> State:
        """The state that the broker reports."""
        info = self.client.stream(self.name)
        return State(
            name=info.name,
            epoch=info.epoch,
            earliest=tuple(bounds.earliest for bounds in info.partitions),
            sealed=tuple(bounds.sealed_end for bounds in info.partitions),
            end=tuple(bounds.end for bounds in info.partitions),
            filters=info.filters,
            is_configured=info.is_configured,
        )

    def sealed_state(self) -> State:
        """The state in the folder: without the broker, only sealed rows can be read."""
        if self.folder is None:
            raise TypeError("without a folder, only the broker knows them")
        index = self.folder.index()
        described = self.folder.describe()
        return State(
            name=described.name,
            epoch=described.epoch,
            earliest=index.earliest,
            sealed=index.ends,
            end=index.ends,
            filters=described.filters,
        )

    def with_retries(
        self,
        ask: Callable[[], Answer],
        *,
        meanwhile: Callable[[EndpointError], None] | None = None,
        retry_s: float = RETRY_S,
    ) -> Answer:
        """Queries the broker about this stream; waits while it is away (`retry`)."""
        what = f"stream {self.name}"
        return with_retries(ask, what=what, meanwhile=meanwhile, retry_s=retry_s)

    def files(self) -> StreamFolder | RemoteFolder:
        """The sealed files: in the folder, or at the endpoint if the folder is not here."""
        return self.folder or self.remote

    def index_up_to(self, sealed: Sequence[int]) -> SealedIndex | None:
        """An index with all files up to these offsets; None while the endpoint is away."""
        files = self.files()
        try:
            index = files.index()
            if any(known < end for known, end in zip(index.ends, sealed, strict=True)):
                files.forget()
                index = files.index()
        except EndpointUnreachableError:
            return None
        return index

    def on_this_machine(self, *, retry_s: float = RETRY_S) -> StreamLog:
        """This log for a worker, which may not see the folder of the driver.

        Raises:
            StreamFolderError: it sees neither the folder nor an endpoint.
        """
        if self.folder is None or self.folder.is_here():
            return self
        try:
            # a file that should be on this machine and is missing will not come back
            self.with_retries(self.live_state, retry_s=0.0 if self.is_local else retry_s)
        except EndpointUnreachableError as error:
            raise StreamFolderError(
                f"stream {self.name}: {self.folder.path} is not on {socket.gethostname()}, and no"
                f" endpoint answers there ({error}); mount the broker's data folder at the same"
                " path, or give option endpoint = http://host:port with option token: its files"
                " are fetched then"
            ) from error
        return dataclasses.replace(self, folder=None)

    def typed(self) -> TypedColumns | None:
        """The typed columns that the stream has."""
        if self.folder is not None:
            return typed_columns(self.folder.describe().schema)
        return typed_columns(self.client.stream(self.name).schema)

    def offsets_at(self, timestamp_us: int) -> tuple[int, ...]:
        """The first row of each partition at or after a time, sealed or not."""
        try:
            return self.client.offsets(self.name, timestamp_us=timestamp_us)
        except EndpointUnreachableError:
            if self.folder is None:
                raise
        return self.folder.sealed_at(timestamp_us)

    def hold(self, consumer: str, offsets: Sequence[int]) -> None:
        """Asks the broker to keep all rows from ``offsets`` on for this consumer.

        While the broker is away, it deletes nothing; the next batch asks again.
        """
        try:
            self.client.hold(self.name, consumer, offsets)
        except EndpointUnreachableError as error:
            logger.warning("stream %s: cannot place a hold for %s: %s", self.name, consumer, error)

    def close(self) -> None:
        """Ends the connection to the broker."""
        self.client.close()

    def row_bytes(self) -> float:
        """Estimated bytes of a row, to convert a limit of bytes to one of rows."""
        return self.files().index().row_bytes() or ROW_BYTES


ROW_BYTES = 256.0
"""Estimated bytes of a row of a stream without sealed rows."""


def open_log(options: SourceOptions) -> StreamLog:
    """Finds the stream of the options; connects only if the options have an endpoint and no path.

    Raises:
        StreamFolderError: the path holds no such stream.
        StreamOptionError: the options do not say which stream.
        EndpointError: only an endpoint is named, and it does not answer or has no such stream.
    """
    if options.path is not None:
        folder = find_folder(options.path, options.stream)
        place = options.endpoint or socket_beside(folder)
        client = StreamClient(place, token=options.token, ca=options.ca)
        seen = None if options.files == "endpoint" else folder
        name = folder.describe().name
        return StreamLog(name=name, folder=seen, client=client, is_local=is_local(options.endpoint))
    if options.endpoint is None or options.stream is None:
        raise StreamOptionError("option path, or options endpoint and stream, are missing")
    client = StreamClient(options.endpoint, token=options.token, ca=options.ca)
    seen = None if options.files == "endpoint" else shared_folder(client, options.stream)
    if seen is None and options.files == "folder":
        raise StreamFolderError(
            f"stream {options.stream}: its files are in a folder that this machine cannot read;"
            " mount the broker's data folder at the same path or name it with option path, or"
            " set option files = auto, which fetches the files"
        )
    here = is_local(options.endpoint)
    return StreamLog(name=options.stream, folder=seen, client=client, is_local=here)


def is_local(endpoint: str | None) -> bool:
    """Whether an endpoint, or the default socket, is on this machine."""
    host = urllib.parse.urlsplit(endpoint or "").hostname
    return host is None or host in LOOPBACK


LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def socket_beside(folder: StreamFolder) -> str:
    """The socket of a broker that runs on this folder."""
    return f"unix:{folder.path.absolute().parent / SOCKET_NAME.name}"


def shared_folder(client: StreamClient, stream: str) -> StreamFolder | None:
    """The broker's folder, if this machine has the same stream at the same path."""
    info = client.stream(stream)
    folder = StreamFolder(info.path)
    try:
        return folder if folder.describe().epoch == info.epoch else None
    except StreamFolderError:
        return None
