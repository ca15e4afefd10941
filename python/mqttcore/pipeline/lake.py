"""A Delta table of a stream's sealed files, without a copy of their rows.

``delta = true`` of a stream has the broker run ``python -m mqttcore.pipeline delta DATA STREAM
--follow``, which makes ``DATA/streams/<stream>/delta``: hard links
to the sealed files, which never change, and Delta's log beside them. It takes in what was sealed,
merged and retired since the last time, each in one commit, so the table always has each row once.
Links keep both sides apart: VACUUM of the table takes no file from the stream, and the stream's
retention takes none from who reads the table.
"""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqttcore.errors import PipelineError
from mqttcore.pipeline.files import locked, sync_path
from mqttcore.pipeline.table_files import statistics
from mqttcore.spark.folder import SealedFile, StreamFolder

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa
    from deltalake.transaction import AddAction, RemoveAction

__all__ = ["Change", "refresh"]

EPOCH = "mqttcore.epoch"
"""Property of the table: the stream's epoch of its rows."""
KEPT_HOURS = 1
"""Hours for which a file that the table no longer names is kept for its readers."""
TRIES = 5
"""Attempts to link files while the index changes."""

Files = dict[str, SealedFile]
"""Files of the stream by their names in the table's folder."""


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a table."""

    added: int
    removed: int
    rows: int
    """Number of rows of the table."""


def refresh(folder: StreamFolder) -> Change:
    """Updates the table of a stream; the broker may run at the same time.

    Raises:
        StreamFolderError: the folder is none of a stream.
        PipelineError: the table is of another epoch, somebody else works on it, or a file cannot
            be read.
    """
    told = folder.describe()
    path = folder.path / "delta"
    if not any(folder.index().files) and not path.exists():
        return Change(0, 0, 0)
    with locked(path, "another process updates it"):
        wanted = linked(folder, path)
        table = opened(path, wanted, told.epoch)
        changed = commit(table, path, wanted, told.name)
        table.vacuum(KEPT_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
    return Change(*changed, rows=sum(file.rows for file in wanted.values()))


def linked(folder: StreamFolder, path: Path) -> Files:
    """The present files, by their names in the table's folder.

    A merge gives a file of the stream other rows. So the names here contain the offsets of the
    rows, and the index is read again if a file differs from it.
    """
    for _ in range(TRIES):
        wanted = {
            name_of(at, file): file
            for at, files in enumerate(folder.index().standing())
            for file in files
        }
        wrong = [file.path for name, file in wanted.items() if not link(file, path / name)]
        if not wrong:
            sync_path(path)
            return wanted
    raise PipelineError(f"{wrong[0]}: differs from the file in {folder.path}/sealed.json")


def name_of(partition: int, file: SealedFile) -> str:
    """The file's name in the table's folder."""
    return f"{partition:05}-{file.base:020}-{file.last:020}.parquet"


def partition_of(name: str) -> int:
    """The partition of a file of the table."""
    return int(name.partition("-")[0])


def link(file: SealedFile, target: Path) -> bool:
    """Links a file to its name in the table's folder; False: it is not the file of the index."""
    import pyarrow.parquet as pq

    if target.exists():
        return True
    if file.is_remote:
        raise PipelineError(
            f"{file.url}: is in object storage only, and the table links to files here: read the"
            " stream with mqttcore.spark, or unset tier.local_age and tier.local_bytes"
        )
    fresh = target.with_name(f"_{target.name}")
    try:
        fresh.unlink(missing_ok=True)
        os.link(file.path, fresh)
        if pq.read_metadata(fresh).num_rows != file.rows:
            fresh.unlink()
            return False
        fresh.rename(target)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PipelineError(f"{file.path}: cannot be linked to {target}: {error}") from error
    return True


def opened(path: Path, wanted: Files, epoch: str) -> "deltalake.DeltaTable":
    """Returns the table with all columns of its files; creates it if it does not exist."""
    import deltalake

    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return deltalake.DeltaTable.create(
            path,
            schema=joined(columns(path / name) for name in wanted),
            configuration={EPOCH: epoch},
            raise_if_key_not_exists=False,
        )
    table = deltalake.DeltaTable(path)
    found = table.metadata().configuration.get(EPOCH)
    if found != epoch:
        raise PipelineError(
            f"{path}: has rows of epoch {found}, but the stream has epoch {epoch}: the same"
            f" offsets may be other rows. Remove that folder to start again"
        )
    known = {field.name for field in table.schema().fields}
    held = {str(action["path"]) for action in adds(table)}
    schemas = (columns(path / name) for name in wanted if name not in held)
    fresh = [field for field in joined(schemas) if field.name not in known]
    if fresh:
        import pyarrow as pa

        table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(fresh)).fields)
    return table


def commit(
    table: "deltalake.DeltaTable", path: Path, wanted: Files, stream: str
) -> tuple[int, int]:
    """Commits exactly the files of ``wanted``; returns how many were added and removed."""
    import deltalake

    held = {str(action["path"]): action for action in adds(table)}
    ends = {partition_of(name): file.last for name, file in wanted.items()}
    before = {at: table.transaction_version(f"{stream}/{at}") for at in ends}

    def has_news(name: str) -> bool:
        last = before[partition_of(name)]
        return last is None or wanted[name].last > last

    came = [added(path / name, is_new=has_news(name)) for name in wanted if name not in held]
    went = [removed(name, held[name], wanted) for name in held if name not in wanted]
    if not came and not went:
        return 0, 0
    table.create_write_transaction(
        [*came, *went],
        mode="append",
        schema=table.schema(),
        commit_properties=deltalake.CommitProperties(
            app_transactions=[
                deltalake.Transaction(app_id=f"{stream}/{at}", version=last)
                for at, last in ends.items()
            ]
        ),
    )
    table.update_incremental()
    return len(came), len(went)


def removed(name: str, held: dict[str, object], wanted: Files) -> "RemoveAction":
    """The log entry for a removed file: merged into another one, or retired."""
    from deltalake.transaction import RemoveAction

    first = held["min.offset"]
    mine = [file for at, file in wanted.items() if partition_of(at) == partition_of(name)]
    is_merged = any(file.base <= first <= file.last for file in mine)  # type: ignore[operator]
    return RemoveAction(
        path=name,
        data_change=not is_merged,
        deletion_timestamp=time.time_ns() // 1_000_000,
        size=held["size_bytes"],  # type: ignore[arg-type]
        partition_values={},
    )


def adds(table: "deltalake.DeltaTable") -> "list[dict[str, object]]":
    """The table's log entries of its files."""
    import pyarrow as pa

    found: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found


def added(path: Path, *, is_new: bool) -> "AddAction":
    """The log entry for an added file."""
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    status = path.stat()
    return AddAction(
        path=path.name,
        size=status.st_size,
        partition_values={},
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=is_new,
        stats=json.dumps(statistics(pq.read_metadata(path))),
    )


def columns(path: Path) -> "pa.Schema":
    """The columns of a file, with the types of Delta."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in pq.read_schema(path)
    ]
    return pa.schema([field.with_nullable(True).remove_metadata() for field in fields])


def joined(schemas: "Iterable[pa.Schema]") -> "pa.Schema":
    """The union of all columns: columns are never removed."""
    import pyarrow as pa

    return pa.unify_schemas([pa.schema([]), *schemas])
