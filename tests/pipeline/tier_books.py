"""What became of each row of a stream in the tables of a pipeline: see `tests.pipeline.tier`."""

from __future__ import annotations

import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import deltalake
from mqttcore.pipeline.tables import MARK
from mqttcore.streams.client import StreamClient

TABLES: Final = "s3a://lake/tier"
WINDOW_US: Final = 10_000_000
Row = Mapping[str, Any]
Windows = dict[tuple[int, str], tuple[int, float]]
"""By start, in unix microseconds, and machine: how many readings, and the highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the stream and the tables have."""

    rows: frozenset[tuple[int, int]]
    """Partition and offset of each row of the stream."""
    acknowledged: int
    """Messages that the broker acknowledged."""
    bronze: Sequence[Row]
    silver: Sequence[Row]
    quarantine: Sequence[Row]
    gold: Sequence[Row]
    mark_us: int
    """The watermark of silver: windows that end there are in gold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the rows."""

    rows: int
    silver: int
    quarantine: int
    repeats: int
    windows: int
    lost: int
    """Rows that are in no table, or not in the second one that they belong to."""
    duplicates: int
    wrong_windows: int
    """Windows of gold that silver does not say, or that are not there."""

    @property
    def is_good(self) -> bool:
        """Whether each row is where it belongs, once."""
        return not self.lost and not self.duplicates and not self.wrong_windows


def verdict(books: Books) -> Verdict:
    """Holds tables and stream against each other."""
    bronze, silver, quarantine = (
        Counter((row["partition"], row["offset"]) for row in rows)
        for rows in (books.bronze, books.silver, books.quarantine)
    )
    numbers = Counter(row["number"] for row in books.silver)
    repeats = repeats_of(books.bronze, {*silver, *quarantine}, numbers)
    lost = len(books.rows - set(bronze)) + max(0, books.acknowledged - len(books.rows))
    lost += len(set(bronze) - set(silver) - set(quarantine) - repeats)
    doubled = sum(map(surplus, (bronze, silver, quarantine, numbers)))
    doubled += len(set(silver) & set(quarantine))
    wanted, found = windows_of(books.silver, books.mark_us), windows_in(books.gold)
    wrong = [key for key in {*wanted, *found} if wanted.get(key) != found.get(key)]
    return Verdict(
        rows=len(books.rows),
        silver=len(books.silver),
        quarantine=len(books.quarantine),
        repeats=len(repeats),
        windows=len(books.gold),
        lost=lost,
        duplicates=doubled,
        wrong_windows=len(wrong) + len(books.gold) - len(found),
    )


def surplus(counted: Counter[Any]) -> int:
    """How many are there beside the first of each."""
    return counted.total() - len(counted)


def repeats_of(
    bronze: Iterable[Row], placed: set[tuple[int, int]], numbers: Mapping[int, int]
) -> set[tuple[int, int]]:
    """Rows that are nowhere else, but whose reading silver has from another row.

    A row is the repeat of a reading only once: machines report none more than twice.
    """
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for row in bronze:
        place = row["partition"], row["offset"]
        number = json.loads(row["payload"])["number"]
        if place not in placed and number in numbers:
            found[number].add(place)
    return {min(places) for places in found.values()}


def windows_of(silver: Iterable[Row], mark_us: int) -> Windows:
    """What gold has to have."""
    values: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in silver:
        start_us = unix_us(row["at"]) // WINDOW_US * WINDOW_US
        if start_us + WINDOW_US <= mark_us:
            values[start_us, row["machine"]].append(row["temperature"])
    return {key: (len(found), max(found)) for key, found in values.items()}


def windows_in(gold: Iterable[Row]) -> Windows:
    """What gold has."""
    return {
        (unix_us(row["window_start"]), row["machine"]): (row["measured"], row["highest"])
        for row in gold
    }


def unix_us(time: Any) -> int:  # noqa: ANN401 -- a datetime, as pyarrow has it
    """Microseconds since 1970, of a time with whole microseconds."""
    return int(time.timestamp()) * 1_000_000 + int(time.microsecond)


def read_verdict(data: pathlib.Path, options: Mapping[str, str], acknowledged: set[int]) -> Verdict:
    """The verdict on a pipeline that has read all of the stream."""
    with StreamClient(str(data)) as client:
        bounds = client.stream("plant").partitions
    rows = {(number, at) for number, bound in enumerate(bounds) for at in range(bound.end)}
    tables = {
        name: deltalake.DeltaTable(f"{TABLES}/{name}", storage_options=dict(options))
        for name in ("bronze", "silver", "quarantine", "load")
    }
    held = {name: table.to_pyarrow_table().to_pylist() for name, table in tables.items()}
    return verdict(
        Books(
            rows=frozenset(rows),
            acknowledged=len(acknowledged),
            bronze=held["bronze"],
            silver=held["silver"],
            quarantine=held["quarantine"],
            gold=held["load"],
            mark_us=tables["silver"].transaction_version(f"tier.silver/{MARK}") or 0,
        )
    )
