"""Reads sealed files over HTTP, for machines that cannot read the broker's folder.

What is needed of a file is fetched into a file of the same size with holes: its footer, and the row
groups with the wanted rows. The reader in Rust reads it as any other.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from mqttcore.errors import FileChangedError
from mqttcore.spark.fetching import Fetch, scratch
from mqttcore.spark.folder import FileMovedError, SealedFile, SealedIndex, index_of

if TYPE_CHECKING:
    from mqttcore.streams.client import StreamClient

__all__ = ["RemoteFolder"]

PIECE_BYTES: Final = 1 << 20
"""Bytes of a file that are in memory at once."""


class RemoteFolder:
    """The sealed files of one stream. It pickles as their location."""

    def __init__(self, client: StreamClient, stream: str) -> None:
        self.client = client
        self.stream = stream
        self._index: SealedIndex | None = None

    def __reduce__(self) -> tuple[type[RemoteFolder], tuple[StreamClient, str]]:
        return RemoteFolder, (self.client, self.stream)

    def index(self) -> SealedIndex:
        """The index of the files; requested once, until `forget`."""
        if self._index is None:
            self._index = index_of(self.client.files(self.stream), pathlib.PurePath())
        return self._index

    def placed(self, file: SealedFile) -> SealedFile:
        """A file of `SealedIndex.named`; the endpoint knows it by this name."""
        return file

    def forget(self) -> None:
        """Has the next use request the index again."""
        self._index = None

    @contextmanager
    def at_hand(self, file: SealedFile, start: int, end: int) -> Iterator[str]:
        """A path at which the rows ``[start, end)`` of a file can be read, inside the block.

        Raises:
            FileMovedError: the file is another one by now, or gone.
            EndpointUnreachableError: the broker is away.
        """
        with tempfile.NamedTemporaryFile(
            prefix="mqttcore-", suffix=".parquet", dir=scratch()
        ) as copy:
            try:
                parts = Parts(self.client, self.stream, file, copy)
                Fetch(file, copy, parts).rows(start, end)
            except FileChangedError as error:
                raise FileMovedError(file.path) from error
            copy.flush()
            yield copy.name


@dataclass(slots=True)
class Parts:
    """Fetches parts of one file from the endpoint."""

    client: StreamClient
    stream: str
    file: SealedFile
    copy: IO[bytes]
    tag: str | None = None
    """Tag of the file that the first part came from."""

    def part(self, start: int, end: int) -> None:
        """Fetches the bytes ``[start, end)``."""
        with self.client.file(
            self.stream, self.file.path, start=start, end=end, tag=self.tag
        ) as body:
            if body.total_bytes != self.file.size_bytes:
                raise FileMovedError(self.file.path)
            self.tag = body.tag
            self.copy.seek(start)
            shutil.copyfileobj(body, self.copy, PIECE_BYTES)
