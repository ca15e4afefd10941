"""Output tables of a pipeline: Delta tables without a jar; Parquet files: `parquet_table`.

A batch of a streaming query is known by ``(query id, batch id)``; Spark repeats it after a crash.
`append` takes each of them once, however often it is called. It also holds each batch against the
source's offsets that the table has seen: Spark does not sync its checkpoint, so after a power cut
a batch may come again under its old number with other rows, and that must not be mistaken for a
repeat. With a batch, a table keeps the watermark up to which it is complete, and the one before.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mqttcore.errors import PipelineError
from mqttcore.pipeline.definitions import Definition, Found
from mqttcore.pipeline.files import sync_path
from mqttcore.pipeline.locations import Location, located
from mqttcore.pipeline.table_files import (
    PARTITION,
    arrow_schema,
    overlaps,
    remote_rows_between,
    rows_between,
    unix_us,
    write_all,
)

if TYPE_CHECKING:
    import datetime

    import deltalake
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, Row

__all__ = ["MARK", "Batch", "DeltaTable", "PipelineTable", "Seen", "is_next"]


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
    """End offset of each source partition; empty for a table that is computed from another one,
    which lacks batches that add nothing to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The batches of a query in a table."""

    number: int | None = None
    """The last batch of the query; None: there is none."""
    ends: tuple[int, ...] | None = None
    """The source offsets up to which the table has rows; None: it has none yet."""
    mark_us: int | None = None
    """The watermark after the last batch, in Unix microseconds."""
    mark_before_us: int | None = None
    """The watermark after the previous batch."""

    def before(self, batch: Batch) -> int | None:
        """The watermark of the table before ``batch``, even if it already has that batch."""
        return self.mark_before_us if self.number == batch.number else self.mark_us


class PipelineTable(Protocol):
    """A table that adds each batch once."""

    @property
    def place(self) -> str:
        """The location of the table, for errors."""

    def found(self) -> Found | None:
        """State of the table; None: it does not exist."""

    def columns_of(self, rows: "DataFrame") -> dict[str, str]:
        """The columns that the table has if ``rows`` are added, with their types."""

    def adopt(self, rows: "DataFrame", added: Sequence[str]) -> None:
        """Adds the columns ``added`` of ``rows`` to the table, and stores its definition."""

    def seen(self, batch: Batch) -> Seen:
        """The batches of the query of ``batch`` in the table."""

    def append(self, rows: "DataFrame", batch: Batch, *, mark_us: int | None = None) -> int | None:
        """Adds the rows of ``batch``; None if the table has this batch already.

        Args:
            rows: The rows.
            batch: Which batch they are of.
            mark_us: The watermark behind it, which the table keeps.

        Returns:
            How many rows were added.

        Raises:
            PipelineError: the batch does not follow the ones that the table has.
        """

    def rows(
        self,
        like: "DataFrame",
        column: str,
        *,
        since_us: int | None,
        until_us: int | None,
        before: Batch | None = None,
    ) -> "DataFrame":
        """The rows whose ``column`` is in ``[since_us, until_us)``, in unix microseconds.

        ``like`` has the columns of the table. Files without such rows are not read, and none that
        `append` removes when it takes the batch ``before``.
        """

    def tidy(self) -> None:
        """Merges small files into few large ones, if readers are not affected."""


def is_next(table: object, batch: Batch, last: int | None, ends: Sequence[int] | None) -> bool:
    """Whether ``batch`` is new to a table.

    Args:
        table: Where it is, for the error.
        batch: What comes.
        last: Number of the last batch of this query id in the table; None without a batch.
        ends: How far the table has the source; None: nothing yet.

    Raises:
        PipelineError: the batch is neither a repeat nor the next one.
    """
    if not batch.ends:
        return last is None or batch.number > last
    if ends is None and last is not None:
        raise PipelineError(
            f"{table}: has batches of this query, but none of the name {batch.name}: the pipeline"
            f" had another name. Give it that name again, or remove its tables and its checkpoint"
        )
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

    The transaction identifiers of the table store its state: the query's id has its last batch,
    ``<name>/<partition>`` the end of each source partition, and ``<name>/watermark`` and
    ``<name>/watermark_before`` Unix microseconds.
    """

    def __init__(
        self,
        path: Path | Location,
        *,
        partitioned: bool = False,
        definition: Definition | None = None,
    ) -> None:
        """A table in the folder ``path``; ``partitioned``: by the rows' column ``day``."""
        self.location = located(path, {}) if isinstance(path, Path) else path
        self.partitioned = partitioned
        self._definition = definition or {}

    @property
    def place(self) -> str:
        """See `PipelineTable.place`."""
        return str(self.location)

    @property
    def path(self) -> Path:
        """Its folder; only for a table that is not in an object store."""
        return self.location.path

    def found(self) -> Found | None:
        """See `PipelineTable.found`."""
        table = self._open()
        if table is None:
            return None
        kept = table.metadata().configuration.get(DEFINITION)
        return Found(
            columns=types_of(table.schema()),
            definition=json.loads(kept) if kept else None,
            is_extensible=True,
        )

    def columns_of(self, rows: "DataFrame") -> dict[str, str]:
        """See `PipelineTable.columns_of`."""
        import deltalake

        return types_of(deltalake.Schema.from_arrow(arrow_schema(rows)))

    def adopt(self, rows: "DataFrame", added: Sequence[str]) -> None:
        """See `PipelineTable.adopt`."""
        import deltalake
        import pyarrow as pa

        table = self._made(rows)
        if added:
            # rows that the table has are null there
            fields = [arrow_schema(rows).field(name).with_nullable(True) for name in added]
            table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(fields)).fields)
        if not self._properties().items() <= table.metadata().configuration.items():
            table.alter.set_table_properties(self._properties(), raise_if_not_exists=False)

    def _properties(self) -> dict[str, str]:
        """The metadata of the table without the columns."""
        return {DEFINITION: json.dumps(self._definition, sort_keys=True)}

    def seen(self, batch: Batch) -> Seen:
        """See `PipelineTable.seen`."""
        table = self._open()
        return Seen() if table is None else seen_of(table, batch)

    def append(self, rows: "DataFrame", batch: Batch, *, mark_us: int | None = None) -> int | None:
        """See `PipelineTable.append`."""
        import deltalake

        table = self._made(rows)
        seen = seen_of(table, batch)
        if not is_next(self.place, batch, seen.number, seen.ends):
            return None
        partition = PARTITION if self.partitioned else None
        written = write_all(rows, self.location, partition)
        versions = {batch.query: batch.number, f"{batch.name}/{MARK}": mark_us}
        versions |= {f"{batch.name}/{MARK}_before": seen.mark_us}
        versions |= {f"{batch.name}/{place}": end for place, end in enumerate(batch.ends)}
        noted = [
            deltalake.Transaction(app_id=name, version=at)
            for name, at in versions.items()
            if at is not None
        ]
        table.create_write_transaction(
            [self._added(file) for file in written],
            mode="append",
            schema=table.schema(),
            partition_by=[PARTITION] if partition else None,
            commit_properties=deltalake.CommitProperties(app_transactions=noted),
        )
        if not self.location.is_remote:
            table.update_incremental()
            sync_path(self.path / "_delta_log" / f"{table.version():020}.json")
            sync_path(self.path / "_delta_log")
        return sum(int(file.rows) for file in written)

    def tidy(self) -> None:
        """Merges files; removes files that are in no version of the last week."""
        from deltalake.exceptions import DeltaError

        table = self._open()
        if table is None:
            return
        try:
            table.optimize.compact()
            table.vacuum(dry_run=False, full=True)
        except DeltaError as error:
            # another writer changed the table; the next run tries again
            logging.getLogger(__name__).warning("%s: compaction failed: %s", self.place, error)

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
        table = self._open()
        files = [
            path
            for path, times in (times_in(table, column) if table is not None else ())
            if overlaps(times, since_us, until_us)
        ]
        if self.location.is_remote:
            return remote_rows_between(
                like, self.location, files, column, since_us=since_us, until_us=until_us
            )
        paths = [self.path / file for file in files]
        return rows_between(like, paths, column, since_us=since_us, until_us=until_us)

    def _added(self, file: "Row") -> "AddAction":
        """The log entry of one file."""
        from deltalake.transaction import AddAction

        return AddAction(
            path=file.path,
            size=file.size,
            partition_values={PARTITION: file.day} if self.partitioned else {},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=file.stats,
        )

    def _open(self) -> "deltalake.DeltaTable | None":
        """Returns the table; None if it does not exist.

        Raises:
            PipelineError: the table, or its store, cannot be read.
        """
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        # `is_deltatable` keeps all threads of Python waiting until the store has answered
        try:
            return deltalake.DeltaTable(self.place, storage_options=dict(self.location.options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise PipelineError(f"{self.place}: cannot be opened: {error}") from error

    def _made(self, rows: "DataFrame") -> "deltalake.DeltaTable":
        """Returns the table; creates it with the columns of ``rows`` if it does not exist."""
        import deltalake

        table = self._open()
        if table is not None:
            return table
        if not self.location.is_remote:
            self.path.mkdir(parents=True, exist_ok=True)
        return deltalake.DeltaTable.create(
            self.place,
            storage_options=dict(self.location.options),
            schema=arrow_schema(rows),
            partition_by=[PARTITION] if self.partitioned else None,
            configuration=self._properties(),
            raise_if_key_not_exists=False,
        )


MARK = "watermark"
DEFINITION = "mqttcore.definition"
"""Property of a Delta table: its definition as JSON."""


def types_of(schema: "deltalake.Schema") -> dict[str, str]:
    """The columns of a Delta table, and their types."""
    fields = json.loads(schema.to_json())["fields"]
    return {
        field["name"]: field["type"]
        if isinstance(field["type"], str)
        else json.dumps(field["type"], sort_keys=True)
        for field in fields
    }


def seen_of(table: "deltalake.DeltaTable", batch: Batch) -> Seen:
    """The state in the log of a Delta table."""
    names = [f"{batch.name}/{partition}" for partition in range(len(batch.ends))]
    ends = tuple(end for end in map(table.transaction_version, names) if end is not None)
    return Seen(
        number=table.transaction_version(batch.query),
        ends=ends or None,
        mark_us=table.transaction_version(f"{batch.name}/{MARK}"),
        mark_before_us=table.transaction_version(f"{batch.name}/{MARK}_before"),
    )


def times_in(
    table: "deltalake.DeltaTable", column: str
) -> "list[tuple[str, tuple[int, int] | None]]":
    """The files of a Delta table, and the first and last time of a column if it is known."""
    import pyarrow as pa

    def times(file: "dict[str, datetime.datetime | None]") -> tuple[int, int] | None:
        first, last = file.get(f"min.{column}"), file.get(f"max.{column}")
        if first is None or last is None or first.tzinfo is None:
            return None
        return unix_us(first), unix_us(last)

    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [(file["path"], times(file)) for file in files]
