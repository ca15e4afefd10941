"""Brings the parts of a sealed file that a reader needs into a file of the same size with holes."""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Protocol

from mqttcore.errors import StreamFileError

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from mqttcore.spark.folder import SealedFile

__all__ = ["Fetch", "scratch"]

WHOLE_BYTES: Final = 1 << 20
"""Files up to this size are fetched as a whole."""
FOOTER_BYTES: Final = 1 << 16
"""Bytes that are fetched for a footer at first; most footers are smaller."""
MAGIC: Final = b"PAR1"
"""The last bytes of a Parquet file; before them is the length of the footer, 4 bytes."""


class Source(Protocol):
    """Where parts of a file come from."""

    def part(self, start: int, end: int) -> None:
        """Copies the bytes ``[start, end)`` to their place."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Brings parts of one file to their places in a copy."""

    file: SealedFile
    copy: IO[bytes]
    source: Source

    def rows(self, start: int, end: int) -> None:
        """Fetches the parts of the file that a reader of these rows needs."""
        size = self.file.size_bytes
        self.copy.truncate(size)
        if size <= WHOLE_BYTES:
            self.source.part(0, size)
            return
        for first, last in spans(self.footer(), self.file.base, start, end):
            self.source.part(first, last)

    def footer(self) -> FileMetaData:
        """Fetches and parses the footer of the file."""
        import pyarrow.parquet as pq

        size = self.file.size_bytes
        known = max(size - FOOTER_BYTES, 0)
        self.source.part(known, size)
        self.copy.seek(size - len(MAGIC) - 4)
        length = int.from_bytes(self.copy.read(4), "little")
        begin = size - len(MAGIC) - 4 - length
        if self.copy.read() != MAGIC or begin < 0:
            raise StreamFileError(f"{self.file.path}: it does not end like a Parquet file")
        if begin < known:
            self.source.part(begin, known)
        self.copy.flush()
        return pq.read_metadata(self.copy.name)


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
