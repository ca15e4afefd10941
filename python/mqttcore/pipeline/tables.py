"""Output tables of a pipeline: Delta tables without a jar, or Parquet files.

A batch of a streaming query is known by ``(query id, batch id)``; Spark repeats it after a crash.
`append` takes each of them once, however often it is called. It also holds each batch against the
source's offsets that the table has seen: Spark does not sync its checkpoint, so after a power cut
a batch may come again under its old number with other rows, and that must not be mistaken for a
repeat.
"""

import contextlib
import inspect
import json
import logging
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mqttcore.errors import PipelineError
from mqttcore.pipeline.files import replace_file, sync_path

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, Row

__all__ = ["Batch", "DeltaTable", "ParquetTable", "PipelineTable"]

# What an executor reports of each file that it wrote.
WRITTEN = "path string, size long, rows long, day string, stats string"
PARTITION = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of one query."""

    name: str
    """The query's name."""
    query: str
    """The query's id, the same after each restart from its checkpoint."""
    number: int
    """Spark's batch id."""
    starts: tuple[int, ...]
    """First offset of each source partition that it reads."""
    ends: tuple[int, ...]
    """Offset behind the last one of each source partition."""


class PipelineTable(Protocol):
    """Takes each batch once."""

    path: Path

    def append(self, rows: "DataFrame", batch: Batch) -> int | None:
        """Adds the rows of ``batch``; None when the table has that batch already.

        Returns:
            How many rows were added.

        Raises:
            PipelineError: the batch does not follow the ones that the table has.
        """

    def tidy(self) -> None:
        """Makes few large files of many small ones, where that can be done under readers."""


def is_next(table: Path, batch: Batch, last: int | None, ends: Sequence[int] | None) -> bool:
    """Whether ``batch`` is new to a table.

    Args:
        table: Its folder, for the error.
        batch: What comes.
        last: Number of the last batch of this query id in the table; None without a batch.
        ends: How far the table has the source; None: nothing yet.

    Raises:
        PipelineError: the batch is neither a repeat nor the next one.
    """
    if ends is None or (last is not None and batch.number < last):
        return ends is None
    is_repeat = batch.number == last
    found = batch.ends if is_repeat else batch.starts
    if tuple(ends) != found:
        doing = "comes again up to" if is_repeat else "begins at"
        raise PipelineError(
            f"{table}: has the source up to offsets {list(ends)}, but batch {batch.number} of"
            f" {batch.name} {doing} {list(found)}: the checkpoint and the table do not belong"
            f" together. Restore both, or remove both"
        )
    return not is_repeat


class DeltaTable:
    """A Delta table: executors write Parquet files, the driver commits them with delta-rs.

    The transaction identifiers of the table keep what was seen: the query's id holds its last
    batch, and ``<query name>/<partition>`` the end of each source partition.
    """

    def __init__(self, path: Path, *, partitioned: bool = False) -> None:
        """A table in the folder ``path``; ``partitioned``: by the rows' column ``day``."""
        self.path = path
        self.partitioned = partitioned

    def append(self, rows: "DataFrame", batch: Batch) -> int | None:
        """See `PipelineTable.append`."""
        import deltalake

        table = self._open(rows)
        last = table.transaction_version(batch.query)
        names = [f"{batch.name}/{partition}" for partition in range(len(batch.ends))]
        ends = [end for end in map(table.transaction_version, names) if end is not None]
        if not is_next(self.path, batch, last, ends or None):
            return None
        partition = PARTITION if self.partitioned else None
        written = write_all(rows, self.path, partition)
        versions = {batch.query: batch.number} | dict(zip(names, batch.ends, strict=True))
        seen = [deltalake.Transaction(app_id=name, version=at) for name, at in versions.items()]
        table.create_write_transaction(
            [self._added(file) for file in written],
            mode="append",
            schema=table.schema(),
            partition_by=[PARTITION] if partition else None,
            commit_properties=deltalake.CommitProperties(app_transactions=seen),
        )
        table.update_incremental()
        sync_path(self.path / "_delta_log" / f"{table.version():020}.json")
        sync_path(self.path / "_delta_log")
        return sum(int(file.rows) for file in written)

    def tidy(self) -> None:
        """Also removes files of no version of the last week, as those of batches that died."""
        import deltalake
        from deltalake.exceptions import DeltaError

        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            return
        table = deltalake.DeltaTable(self.path)
        try:
            table.optimize.compact()
            table.vacuum(dry_run=False, full=True)
        except DeltaError as error:
            # another writer changed the table; the next run tries again
            logging.getLogger(__name__).warning("%s: compaction failed: %s", self.path, error)

    def _added(self, file: "Row") -> "AddAction":
        """What the table's log says of one file."""
        from deltalake.transaction import AddAction

        return AddAction(
            path=file.path,
            size=file.size,
            partition_values={PARTITION: file.day} if self.partitioned else {},
            modification_time=(self.path / file.path).stat().st_mtime_ns // 1_000_000,
            data_change=True,
            stats=file.stats,
        )

    def _open(self, rows: "DataFrame") -> "deltalake.DeltaTable":
        """Returns the table; creates it with the columns of ``rows`` if it does not exist."""
        import deltalake

        if deltalake.DeltaTable.is_deltatable(str(self.path)):
            return deltalake.DeltaTable(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        return deltalake.DeltaTable.create(
            self.path,
            schema=arrow_schema(rows),
            partition_by=[PARTITION] if self.partitioned else None,
        )


class ParquetTable:
    """A folder of Parquet files, ``<query id>-<batch>-<number>.parquet``.

    What a batch leaves behind when it is interrupted goes when it comes again. The last batch and
    its ends are in ``_batches/``, a file a query; readers pass over names that begin with ``_``.
    """

    def __init__(self, path: Path) -> None:
        """A table in the folder ``path``."""
        self.path = path

    def append(self, rows: "DataFrame", batch: Batch) -> int | None:
        """See `PipelineTable.append`."""
        book = self.path / "_batches" / f"{batch.name}.json"
        known = json.loads(book.read_text()) if book.exists() else {}
        last = known["batch"] if known.get("query") == batch.query else None
        if not is_next(self.path, batch, last, known.get("ends")):
            return None
        name = f"{batch.query}-{batch.number:010}"
        for stale in self.path.glob(f"{name}-*.parquet"):
            stale.unlink()
        fresh = self.path / f"_{name}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        written = write_all(rows, fresh, None)
        for number, file in enumerate(written):
            (fresh / file.path).rename(self.path / f"{name}-{number:05}.parquet")
        fresh.rmdir()
        sync_path(self.path)
        book.parent.mkdir(exist_ok=True)
        replace_file(
            book, json.dumps({"query": batch.query, "batch": batch.number, "ends": batch.ends})
        )
        return sum(int(file.rows) for file in written)

    def tidy(self) -> None:
        """Does nothing: a reader of plain files would see rows twice, or not at all."""


def write_all(rows: "DataFrame", folder: Path, partition: str | None) -> "list[Row]":
    """Has the executors write files into ``folder``; a row of `WRITTEN` for each."""
    return rows.mapInArrow(partial(write_files, str(folder), partition), WRITTEN).collect()


def write_files(
    folder: str, partition: str | None, batches: "Iterable[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Runs in an executor: one file for the rows of the task, or one a ``day``; reports each."""
    import pyarrow as pa

    files: dict[str, File] = {}
    with contextlib.ExitStack() as stack:
        for batch in batches:
            for day, rows in split(batch, partition):
                if day not in files:
                    file = File(Path(folder), day, rows.schema)
                    files[day] = stack.enter_context(contextlib.closing(file))
                files[day].write(rows)
    reports = [file.report() for file in files.values()]
    columns = [("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64())]
    schema = pa.schema([*columns, ("day", pa.string()), ("stats", pa.string())])
    yield pa.RecordBatch.from_pylist(reports, schema=schema)


def split(batch: "pa.RecordBatch", partition: str | None) -> "Iterator[tuple[str, pa.RecordBatch]]":
    """The rows of each ``day`` without that column; all of them, under "", without a partition."""
    import pyarrow.compute as pc

    if partition is None:
        if batch.num_rows:
            yield "", batch
        return
    days = batch[partition]
    rows = batch.drop_columns([partition])
    for day in pc.unique(days).to_pylist():
        yield str(day), rows.filter(pc.equal(days, day))


class File:
    """A Parquet file of a table, under a name that no other attempt has."""

    def __init__(self, table: Path, day: str, schema: "pa.Schema") -> None:
        """Begins a file below the folder ``table``."""
        import pyarrow.parquet as pq

        self.day = day
        name = f"part-{uuid.uuid4()}.parquet"
        self.relative = f"{PARTITION}={day}/{name}" if day else name
        self.path = table / self.relative
        self.path.parent.mkdir(exist_ok=True)
        self._writer = pq.ParquetWriter(self.path, schema, compression="zstd")

    def write(self, rows: "pa.RecordBatch") -> None:
        """Adds rows."""
        self._writer.write_batch(rows)

    def close(self) -> None:
        """Ends the file and has it on the disk."""
        self._writer.close()
        sync_path(self.path)
        sync_path(self.path.parent)

    def report(self) -> dict[str, object]:
        """One row of `WRITTEN`."""
        import pyarrow.parquet as pq

        footer = pq.read_metadata(self.path)
        return {
            "path": self.relative,
            "size": self.path.stat().st_size,
            "rows": footer.num_rows,
            "day": self.day,
            "stats": json.dumps(statistics(footer)),
        }


def statistics(footer: "pq.FileMetaData") -> dict[str, object]:
    """What Delta says of a file so that readers can pass over it: rows, and bounds of integers."""
    bounds: dict[str, tuple[int, int]] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            found = column.statistics
            if "." in column.path_in_schema or column.physical_type not in ("INT32", "INT64"):
                continue
            if found is None or not found.has_min_max or not isinstance(found.min, int):
                continue
            low, high = bounds.get(column.path_in_schema, (found.min, found.max))
            bounds[column.path_in_schema] = min(low, found.min), max(high, found.max)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
    }


def arrow_schema(rows: "DataFrame") -> "pa.Schema":
    """The columns of ``rows`` as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # before Spark 4.2, timestamps were always in UTC, without a parameter
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(rows.schema, **zone)
