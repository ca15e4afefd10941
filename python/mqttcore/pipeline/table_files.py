"""Files of a pipeline's tables: how executors write them, and their metadata."""

import contextlib
import datetime
import inspect
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttcore.pipeline.files import sync_path
from mqttcore.pipeline.locations import Location

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, Row

__all__ = [
    "PARTITION",
    "arrow_schema",
    "overlaps",
    "remote_rows_between",
    "rows_between",
    "statistics",
    "times_of",
    "unix_us",
    "write_all",
]

# What an executor reports of each file that it wrote.
WRITTEN = "path string, size long, rows long, day string, stats string"
PARTITION = "day"
MOMENT_US = 1_000
"""Other writers of Delta cut times of statistics to milliseconds."""


def write_all(rows: "DataFrame", folder: Location, partition: str | None) -> "list[Row]":
    """Has the executors write files into ``folder``; a row of `WRITTEN` for each."""
    return rows.mapInArrow(partial(write_files, folder, partition), WRITTEN).collect()


def write_files(
    folder: Location, partition: str | None, batches: "Iterable[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Runs in an executor: one file for the rows of the task, or one a ``day``; reports each."""
    import pyarrow as pa

    files: dict[str, File] = {}
    with contextlib.ExitStack() as stack:
        for batch in batches:
            for day, rows in split(batch, partition):
                if day not in files:
                    file = File(folder, day, rows.schema)
                    files[day] = stack.enter_context(contextlib.closing(file))
                files[day].write(rows)
    reports = [file.report() for file in files.values()]
    columns = [("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64())]
    schema = pa.schema([*columns, ("day", pa.string()), ("stats", pa.string())])
    yield pa.RecordBatch.from_pylist(reports, schema=schema)


def split(batch: "pa.RecordBatch", partition: str | None) -> "Iterator[tuple[str, pa.RecordBatch]]":
    """The rows of each ``day`` without that column; without a partition, all rows under ""."""
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
    """A Parquet file of a table, with a unique name."""

    def __init__(self, table: Location, day: str, schema: "pa.Schema") -> None:
        """Begins a file below the folder ``table``."""
        import pyarrow.parquet as pq

        self.day = day
        name = f"part-{uuid.uuid4()}.parquet"
        self.relative = f"{PARTITION}={day}/{name}" if day else name
        self._files = table.filesystem() if table.is_remote else None
        self._path = self.relative if table.is_remote else str(table / self.relative)
        if not table.is_remote:
            Path(self._path).parent.mkdir(exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._path, schema, compression="zstd", filesystem=self._files
        )

    def write(self, rows: "pa.RecordBatch") -> None:
        """Adds rows."""
        self._writer.write_batch(rows)

    def close(self) -> None:
        """Ends the file and syncs it to the disk."""
        self._writer.close()
        if self._files is None:
            sync_path(Path(self._path))
            sync_path(Path(self._path).parent)

    def report(self) -> dict[str, object]:
        """One row of `WRITTEN`."""
        import pyarrow.parquet as pq

        footer = pq.read_metadata(self._path, filesystem=self._files)
        return {
            "path": self.relative,
            "size": self._size(),
            "rows": footer.num_rows,
            "day": self.day,
            "stats": json.dumps(statistics(footer)),
        }

    def _size(self) -> int:
        if self._files is None:
            return Path(self._path).stat().st_size
        size: int = self._files.get_file_info(self._path).size
        return size


def statistics(footer: "pq.FileMetaData") -> dict[str, object]:
    """Statistics of a file, with which readers of Delta skip it.

    The number of rows, and bounds of integers and of times with a zone.
    """
    bounds: dict[str, tuple[Any, Any]] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            found = column.statistics
            if "." in column.path_in_schema or column.physical_type not in ("INT32", "INT64"):
                continue
            if found is None or not found.has_min_max or not is_bound(found.min):
                continue
            low, high = bounds.get(column.path_in_schema, (found.min, found.max))
            bounds[column.path_in_schema] = min(low, found.min), max(high, found.max)
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: bound(low) for name, (low, _) in bounds.items()},
        "maxValues": {name: bound(high) for name, (_, high) in bounds.items()},
    }


def is_bound(value: object) -> bool:
    """Whether `bound` supports a value."""
    return isinstance(value, int) or (
        isinstance(value, datetime.datetime) and value.tzinfo is not None
    )


def bound(value: object) -> object:
    """A minimum or maximum as Delta writes it."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    return value


def times_of(path: Path, column: str) -> tuple[int, int] | None:
    """The first and last time of a column in Unix microseconds; None if unknown."""
    import pyarrow.parquet as pq

    found = statistics(pq.read_metadata(path))
    first, last = (found[side].get(column) for side in ("minValues", "maxValues"))  # type: ignore[attr-defined]  # dicts
    if not isinstance(first, str) or not isinstance(last, str):
        return None
    return unix_us(datetime.datetime.fromisoformat(first)), unix_us(
        datetime.datetime.fromisoformat(last)
    )


def unix_us(time: datetime.datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // datetime.timedelta(microseconds=1)


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def overlaps(times: tuple[int, int] | None, since_us: int | None, until_us: int | None) -> bool:
    """Whether a file may have rows of the times ``[since_us, until_us)``."""
    if times is None:
        return True
    is_early = since_us is not None and times[1] + MOMENT_US < since_us
    is_late = until_us is not None and times[0] - MOMENT_US >= until_us
    return not is_early and not is_late


def rows_between(
    like: "DataFrame",
    files: Sequence[Path],
    column: str,
    *,
    since_us: int | None,
    until_us: int | None,
) -> "DataFrame":
    """The rows of files of the times ``[since_us, until_us)``, with the columns of ``like``."""
    from pyspark.sql import functions as f

    spark = like.sparkSession
    if not files:
        return spark.createDataFrame([], like.schema)
    rows = spark.read.schema(like.schema).parquet(*(f"file://{file.absolute()}" for file in files))
    if since_us is not None:
        rows = rows.where(f.col(column) >= f.timestamp_micros(f.lit(since_us)))
    if until_us is not None:
        rows = rows.where(f.col(column) < f.timestamp_micros(f.lit(until_us)))
    return rows


def remote_rows_between(
    like: "DataFrame",
    folder: Location,
    files: Sequence[str],
    column: str,
    *,
    since_us: int | None,
    until_us: int | None,
) -> "DataFrame":
    """Like `rows_between`, for files of an object store, which executors read without a jar.

    ``files``: their paths below ``folder``.
    """
    spark = like.sparkSession
    if not files:
        return spark.createDataFrame([], like.schema)
    names = spark.createDataFrame([(file,) for file in files], "path string")
    wanted = partial(
        read_files,
        folder,
        arrow_schema(like).serialize().to_pybytes(),
        (column, since_us, until_us),
    )
    return names.repartition(len(files)).mapInArrow(wanted, like.schema)


def read_files(
    folder: Location,
    schema: bytes,
    times: tuple[str, int | None, int | None],
    batches: "Iterable[pa.RecordBatch]",
) -> "Iterator[pa.RecordBatch]":
    """Runs in an executor: the rows of files whose column is in a time ``[since, until)``."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    wanted = pa.ipc.read_schema(pa.py_buffer(schema))
    column, since_us, until_us = times
    condition = pc.scalar(True)
    for bound_us, holds in ((since_us, pc.greater_equal), (until_us, pc.less)):
        if bound_us is not None:
            bound_at = pa.scalar(bound_us, pa.timestamp("us", tz="UTC"))
            condition &= holds(ds.field(column), bound_at)
    for batch in batches:
        files = ds.dataset(
            batch["path"].to_pylist(),
            schema=wanted,
            format="parquet",
            filesystem=folder.filesystem(),
        )
        yield from files.to_batches(filter=condition)


def arrow_schema(rows: "DataFrame") -> "pa.Schema":
    """The columns of ``rows`` with the types of Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # before Spark 4.2, timestamps were always in UTC, without a parameter
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(rows.schema, **zone)
