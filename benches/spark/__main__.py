"""`python -m benches.spark`: measures, prints a line a row, and writes docs/spark-report.md."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benches.spark import page
from benches.spark.data import SCALES, dataset
from benches.spark.first import first_rows
from benches.spark.floor import floors
from benches.spark.goals import Measured, Outcome, Row, Unmeasured, attempt
from benches.spark.kafka import kafka
from benches.spark.kills import kills

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
FIRST: Final = "S12"
FLOORS: Final = "floors"
KAFKA: Final = "S8"
KILLS: Final = "S9"


def main() -> int:
    """Runs what was asked for; the report is written when that was everything."""
    options = parser().parse_args()
    began = time.monotonic()
    outcomes = []
    for one in rows(options):
        outcomes.append(one)
        print(said(one), flush=True)
    if options.only is None:
        seconds = time.monotonic() - began
        page.write(options.docs, outcomes, scale=options.scale, by=options.by, seconds=seconds)
    return int(any(one.verdict == "failed" for one in outcomes))


def said(one: Outcome) -> str:
    """A row in a line."""
    if isinstance(one, Unmeasured):
        return f"{one.row.name:12} {'-':>8}  {one.reason}  {one.verdict}"
    return f"{one.row.name:12} {one.value:8.2f}  {one.figures}  {one.verdict}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    made.add_argument("--scale", choices=sorted(SCALES), default="full", help="how much data")
    made.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    made.add_argument("--by", choices=("wall", "cpu"), default="wall", help="what goals compare")
    made.add_argument("--kills", type=int, default=20, help="of S9; its goal is 100")
    named = f"these rows, as S1,S3,{FIRST}, or {FLOORS} (S6, S7, S13)"
    made.add_argument("--only", help=named)
    made.add_argument("--data", type=pathlib.Path, default=ROOT / ".make" / "bench-spark")
    made.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    made.add_argument("--memory", default="4g", help="heap of the JVM")
    return made


def rows(options: argparse.Namespace) -> Iterator[Outcome]:
    """What was asked for, one after the other."""
    wanted = set(options.only.split(",")) if options.only else None
    if wanted is None or wanted - {FLOORS, FIRST, KAFKA, KILLS}:
        yield from scans(options, wanted)
    if wanted is None or KAFKA in wanted:
        begin(KAFKA)
        yield from kafka(options)
    if wanted is None or FIRST in wanted:
        begin(FIRST)
        data = dataset(options.data, SCALES["small"])
        yield from attempt([Row.S12], lambda: first_rows(data, options.data / "packages"))
    if wanted is None or FLOORS in wanted:
        begin("S6, S7 and S13")
        small = options.scale == "small"
        yield from floors(options.data, turns=1 if small else 2, batches=20 if small else 80)
    if wanted is None or KILLS in wanted:
        begin(KILLS)
        yield from attempt([Row.S9], lambda: kills(options.kills, ROOT / ".make"))


def scans(options: argparse.Namespace, wanted: set[str] | None) -> Iterator[Outcome]:
    """Rows that read a stream which is there: first those with JVMs of their own."""
    from benches.spark.scans import ALONE, SCANS, in_session, sessions
    from benches.spark.sink import sink

    begin(f"the stream of scale {options.scale}")
    chosen = {
        row: measure
        for row, measure in {**SCANS, Row.S11: sink}.items()
        if wanted is None or row.value.number in wanted
    }
    for row in sorted(ALONE & chosen.keys(), key=lambda row: row.name):
        yield from scan(row, partial(sessions, options, chosen.pop(row)))
    if chosen:
        with in_session(options) as bench:
            for row, measure in chosen.items():
                yield from scan(row, partial(measure, bench))


def scan(row: Row, measure: Callable[[], Measured]) -> Iterator[Outcome]:
    """One of these rows."""
    begin(row.name)
    yield from attempt([row], lambda: iter([measure()]))


def begin(what: str) -> None:
    """Tells who watches what takes its time now."""
    print(f"... {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
