"""A pipeline's table as a folder of Parquet files."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mqttcore.pipeline.definitions import Definition, Found
from mqttcore.pipeline.files import replace_file, sync_path
from mqttcore.pipeline.locations import Location
from mqttcore.pipeline.table_files import (
    arrow_schema,
    overlaps,
    rows_between,
    times_of,
    write_all,
)
from mqttcore.pipeline.tables import MARK, Batch, Seen, is_next

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ParquetTable"]

DEFINED = "_definition.json"
"""The file with the table's definition; readers ignore it."""


class ParquetTable:
    """A folder of Parquet files, ``<query id>-<batch>-<number>.parquet``.

    Files of an interrupted batch are removed when the batch is repeated. The last batch and its
    ends are in ``_batches/``, one file for each query; readers skip names that begin with ``_``.
    """

    def __init__(self, path: Path, *, definition: Definition | None = None) -> None:
        """A table in the folder ``path``."""
        self.path = path
        self._definition = definition or {}
        # of files that were looked at: they never change
        self._times: dict[str, tuple[int, int] | None] = {}

    @property
    def place(self) -> str:
        """See `PipelineTable.place`."""
        return str(self.path)

    def found(self) -> Found | None:
        """See `PipelineTable.found`."""
        import pyarrow.parquet as pq

        note, files = self.path / DEFINED, sorted(self.path.glob("[!_.]*.parquet"))
        if not files and not note.exists():
            return None
        schema = pq.read_schema(files[-1]) if files else []
        return Found(
            columns={field.name: str(field.type) for field in schema},
            definition=json.loads(note.read_text()) if note.exists() else None,
            is_extensible=False,
        )

    def columns_of(self, rows: "DataFrame") -> dict[str, str]:
        """See `PipelineTable.columns_of`."""
        return {field.name: str(field.type) for field in arrow_schema(rows)}

    def adopt(self, rows: "DataFrame", added: Sequence[str]) -> None:
        """See `PipelineTable.adopt`; ``added`` is empty, since the table is not extensible."""
        replace_file(self.path / DEFINED, json.dumps(self._definition, sort_keys=True))

    def seen(self, batch: Batch) -> Seen:
        """See `PipelineTable.seen`."""
        books = {book: json.loads(book.read_text()) for book in self.path.glob("_batches/*.json")}
        numbers = [book["batch"] for book in books.values() if book["query"] == batch.query]
        known = books.get(self._book(batch), {})
        ends = known.get("ends")
        return Seen(
            number=max(numbers, default=None),
            ends=tuple(ends) if ends else None,
            mark_us=known.get(MARK),
            mark_before_us=known.get(f"{MARK}_before"),
        )

    def append(self, rows: "DataFrame", batch: Batch, *, mark_us: int | None = None) -> int | None:
        """See `PipelineTable.append`."""
        book, seen = self._book(batch), self.seen(batch)
        if not is_next(self.path, batch, seen.number, seen.ends):
            return None
        name = stem(batch)
        for stale in self._files(batch):
            stale.unlink()
        fresh = self.path / f"_{name}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        written = write_all(rows, Location(str(fresh.absolute())), None)
        for number, file in enumerate(written):
            (fresh / file.path).rename(self.path / f"{name}-{number:05}.parquet")
        shutil.rmtree(fresh)  # a task that died and was repeated leaves a file that nobody names
        sync_path(self.path)
        book.parent.mkdir(exist_ok=True)
        if not (self.path / DEFINED).exists():
            self.adopt(rows, ())
        noted = {"query": batch.query, "batch": batch.number, "ends": batch.ends}
        marks = {MARK: mark_us, f"{MARK}_before": seen.mark_us}
        replace_file(book, json.dumps(noted | marks))
        return sum(int(file.rows) for file in written)

    def rows(
        self,
        like: "DataFrame",
        column: str,
        *,
        since_us: int | None,
        until_us: int | None,
        before: Batch | None = None,
    ) -> "DataFrame":
        """See `PipelineTable.rows`."""
        files = []
        leftover = self._files(before) if before else set()
        for file in sorted(set(self.path.glob("[!_.]*.parquet")) - leftover):
            if file.name not in self._times:
                self._times[file.name] = times_of(file, column)
            if overlaps(self._times[file.name], since_us, until_us):
                files.append(file)
        return rows_between(like, files, column, since_us=since_us, until_us=until_us)

    def _files(self, batch: Batch) -> set[Path]:
        """The files of a batch."""
        return set(self.path.glob(f"{stem(batch)}-*.parquet"))

    def _book(self, batch: Batch) -> Path:
        """The file with the state of the table."""
        return self.path / "_batches" / f"{batch.name}.json"

    def tidy(self) -> None:
        """Does nothing: readers of plain files would see rows twice, or not at all."""


def stem(batch: Batch) -> str:
    """The beginning of the names of the files of a batch."""
    return f"{batch.query}-{batch.number:010}"
