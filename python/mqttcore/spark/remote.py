"""Reads sealed files over HTTP, for machines that cannot read the broker's folder.

What is needed of a file is fetched into a file of the same size with holes: its footer, and the row
groups with the wanted rows. The reader in Rust reads it as any other.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from mqttcore.errors import FileChangedError, StreamFileError
from mqttcore.spark.folder import FileMovedError, SealedFile, SealedIndex, index_of

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from mqttcore.streams.client import StreamClient

__all__ = ["RemoteFolder"]

WHOLE_BYTES: Final = 1 << 20
"""Files up to this size are fetched as a whole."""
FOOTER_BYTES: Final = 1 << 16
"""Bytes that are fetched for a footer at first; most footers are smaller."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of a file that are in memory at once."""
MAGIC: Final = b"PAR1"
"""The last bytes of a Parquet file; before them is the length of the footer, 4 bytes."""


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
                Fetch(self.client, self.stream, file, copy).rows(start, end)
            except FileChangedError as error:
                raise FileMovedError(file.path) from error
            copy.flush()
            yield copy.name


@dataclass(slots=True)
class Fetch:
    """Fetches parts of one file to their places in a copy."""

    client: StreamClient
    stream: str
    file: SealedFile
    copy: IO[bytes]
    tag: str | None = None
    """Tag of the file that the first part came from."""

    def rows(self, start: int, end: int) -> None:
        """Fetches the parts of the file that a reader of these rows needs."""
        size = self.file.size_bytes
        self.copy.truncate(size)
        if size <= WHOLE_BYTES:
            self.part(0, size)
            return
        for first, last in spans(self.footer(), self.file.base, start, end):
            self.part(first, last)

    def footer(self) -> FileMetaData:
        """Fetches and parses the footer of the file."""
        import pyarrow.parquet as pq

        size = self.file.size_bytes
        known = max(size - FOOTER_BYTES, 0)
        self.part(known, size)
        self.copy.seek(size - len(MAGIC) - 4)
        length = int.from_bytes(self.copy.read(4), "little")
        begin = size - len(MAGIC) - 4 - length
        if self.copy.read() != MAGIC or begin < 0:
            raise StreamFileError(f"{self.file.path}: it does not end like a Parquet file")
        if begin < known:
            self.part(begin, known)
        self.copy.flush()
        return pq.read_metadata(self.copy.name)

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


def spans(metadata: FileMetaData, base: int, start: int, end: int) -> list[tuple[int, int]]:
    """The places of the row groups with any row of ``[start, end)``; adjacent ones as one."""
    found: list[tuple[int, int]] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        first, base = base, base + group.num_rows
        if first >= end or base <= start:
            continue
        columns = [group.column(place) for place in range(group.num_columns)]
        begins = [column.dictionary_page_offset or column.data_page_offset for column in columns]
        sizes = (column.total_compressed_size for column in columns)
        begin = min(begins)
        last = max(place + size for place, size in zip(begins, sizes, strict=True))
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, last))
    return found


def scratch() -> str | None:
    """The folder for temporary files of Spark's tasks; None: the default folder."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and pathlib.Path(first).is_dir() else None
