"""Refuses a file whose tables exist with other columns, or with another meaning of the same ones.

Each table stores its definition: the part of the file that its rows depend on. At start, columns
and definitions of the tables are compared with those of the file. A Delta table adopts new columns
of ``silver.schema`` and of ``gold.columns``; its older rows have null there. Every other change
would mix rows of two meanings in one table, and is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqttcore._schema import Faults
from mqttcore.config.checks import place_of, raise_faults
from mqttcore.config.reading import read_file
from mqttcore.errors import PipelineError
from mqttcore.pipeline.config import Gold, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mqttcore.pipeline.tables import PipelineTable

__all__ = [
    "Change",
    "Definition",
    "Found",
    "TablesChangedError",
    "check_tables",
    "definition_of",
    "naming_places",
]

Definition = Mapping[str, object]
"""The part of the file that the rows of a table depend on, as a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Columns and definition of an existing table."""

    columns: Mapping[str, str]
    """The types of its columns by name; empty if it has no rows."""
    definition: Definition | None
    """None: an earlier version made the table."""
    is_extensible: bool
    """Whether columns can be added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between the file and a table."""

    key: str
    """The key of the file: ``gold[0].columns``."""
    what: str
    cure: str


class TablesChangedError(PipelineError):
    """Existing tables do not have the columns of the file; ``changes`` are the differences."""

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__("\n".join(f"{each.key}: {each.what}; {each.cure}" for each in changes))
        self.changes = tuple(changes)


def definition_of(pipeline: Pipeline, table: str) -> Definition:
    """The definition of a table."""
    for gold in pipeline.gold:
        if gold.name == table:
            return of_gold(gold)
    return {"event_time": pipeline.silver.event_time} if table == "silver" else {}


def of_gold(gold: Gold) -> Definition:
    """The definition of a gold table; the order of its lists has no meaning."""
    return {
        "window": plain(gold.window),
        "slide": plain(gold.slide or gold.window),
        "group_by": sorted(gold.group_by),
        "columns": sorted(" ".join(sql.split()) for sql in gold.columns),
    }


def plain(duration: str) -> str:
    """A duration without the plural of its unit."""
    return duration.removesuffix("s")


def check_tables(
    pipeline: Pipeline, made: "Mapping[str, DataFrame]", tables: "Mapping[str, PipelineTable]"
) -> dict[str, list[str]]:
    """The columns to add to each table.

    Args:
        pipeline: The pipeline that is to run.
        made: The tables by name, with the columns that follow from the file.
        tables: The tables as they are.

    Raises:
        TablesChangedError: a table cannot take over what changed.
    """
    changes: list[Change] = []
    added: dict[str, list[str]] = {}
    for name, rows in made.items():
        found = tables[name].found()
        if found is None:
            continue
        columns = tables[name].columns_of(rows)
        new = [column for column in columns if column not in found.columns]
        added[name] = new if found.columns else []
        part = Part(pipeline, name, tables[name].place)
        changes += part.redefined(found) or part.reshaped(found, columns, added[name])
    if changes:
        raise TablesChangedError(changes)
    return {name: columns for name, columns in added.items() if columns}


class Part:
    """The part of a pipeline's file that defines a table."""

    def __init__(self, pipeline: Pipeline, table: str, place: str) -> None:
        """``place``: the location of the table."""
        self._table, self._place = table, place
        self._wanted = definition_of(pipeline, table)
        names = [gold.name for gold in pipeline.gold]
        self._gold = names.index(table) if table in names else None
        self._groups = frozenset[str]()
        if self._gold is not None:
            self._groups = frozenset(pipeline.gold[self._gold].group_by)

    def redefined(self, found: Found) -> list[Change]:
        """The keys whose meaning has changed since the table was made."""
        changes = []
        for key, had in (found.definition or {}).items():
            wanted = self._wanted.get(key)
            if key == "columns" and isinstance(had, list) and isinstance(wanted, list):
                had = [sql for sql in had if sql not in wanted]
                wanted = wanted if had else []
            if had != wanted:
                what = f"was made with {key} = {said(had)}, the file has {said(wanted)}"
                changes.append(self._change(key, what))
        return changes

    def reshaped(
        self, found: Found, columns: Mapping[str, str], new: Sequence[str]
    ) -> list[Change]:
        """The columns that cannot be added to the table.

        ``columns``: those of the file; ``new``: those that the table lacks.
        """
        changes = []
        for name, kind in found.columns.items():
            key = self._key(name)
            if name not in columns:
                changes.append(self._change(key, f"has a column {name}, the file has none"))
            elif columns[name] != kind:
                what = f"has the column {name} as {kind}, the file as {columns[name]}"
                changes.append(self._change(key, what))
        for name in new:
            if name in self._groups:
                changes.append(self._change("group_by", f"has rows that {name} does not group"))
            elif not found.is_extensible:
                what = f"has no column {name}, and only a Delta table can get further ones"
                changes.append(self._change(self._key(name), what))
        return changes

    def _key(self, column: str) -> str:
        """The key of the file that defines a column."""
        if self._gold is None:
            return "schema"
        return "group_by" if column in self._groups else "columns"

    def _change(self, key: str, what: str) -> Change:
        """A change of one key."""
        if self._gold is None:
            where = f"silver.{key}"
            cure = (
                "put it back, or give the pipeline another folder for its tables (and one for its"
                " checkpoints, if the file names one): it then reads the stream from its beginning"
            )
        else:
            where = f"gold[{self._gold}].{key}"
            cure = (
                f"put it back, or give the table another name, or remove {self._place}: the table"
                " is computed from silver again"
            )
        return Change(key=where, what=f"table {self._table} ({self._place}) {what}", cure=cure)


def said(value: object) -> str:
    """A value of a definition, for an error."""
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)


@contextmanager
def naming_places(file: Path) -> Iterator[None]:
    """Names the lines of the pipeline's file in which a `TablesChangedError` has its keys.

    Raises:
        ConfigError: in the place of that error.
    """
    try:
        yield
    except TablesChangedError as error:
        faults = Faults()
        root = read_file(file, faults)
        for change in error.changes:
            faults.add(place_of(root, change.key), change.key, change.what, change.cure)
        raise_faults(faults)
        raise
