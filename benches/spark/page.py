"""docs/spark-report.md, and its plot: each goal, what was measured, met or not met."""

from __future__ import annotations

import math
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from benches.spark.goals import Goal, Measured, Row

HOW: Final = """\
## How

Both sides of a row take turns in one session, after one turn each that does not count; medians of
the turns are compared. S6, S7 and S13 have a session of their own a side, because what a stock
session lacks cannot be taken back in a tuned one; there the median of its batches is a side's
figure. CPU seconds are those of the JVM with all its Python workers. The data are telemetry of
2,000 topics, made anew from fixed seeds (`benches/spark/data.py`). The tail of S2 comes from an
endpoint written in Python, all other tails from a broker. `SCALE=small` tries it out with less.
"""
WIDTH: Final = 720
LINE: Final = 26
MARGIN: Final = 120


def page(measured: Sequence[Measured], *, scale: str, by: str, seconds: float) -> str:
    """The report as text."""
    met = sum(one.verdict == "met" for one in measured)
    lines = [
        "# Spark beside Spark",
        "",
        "Made by `make bench-spark`, which writes it anew.",
        "",
        f"{machine()}, commit {commit()}, scale {scale}, goals compare by {by}, {seconds:.0f} s.",
        "",
        f"{met} of {len(measured)} measured goals met, {len(measured) - met} not met;"
        f" {len(Row) - len(measured)} not measured.",
        "",
        "![each goal and what was measured](spark-report/goals.svg)",
        "",
        "| # | what | must | measured | figures | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = {one.row: one for one in measured}
    lines += [line(row, found.get(row)) for row in Row]
    return "\n".join([*lines, "", HOW])


def line(row: Row, measured: Measured | None) -> str:
    """One row of the table."""
    goal: Goal = row.value
    sign = "≥" if goal.at_least else "≤"
    must = f"{sign} {goal.must:g}"
    if measured is None:
        return f"| {goal.number} | {goal.text} | {must} | - | | not measured |"
    return (
        f"| {goal.number} | {goal.text} | {must} | {measured.value:.2f} | {measured.figures} |"
        f" {measured.verdict} |"
    )


def plot(measured: Sequence[Measured]) -> str:
    """A bar a goal: how far it is reached, on a logarithmic scale; the line is the goal."""
    height = LINE * len(measured) + 40
    middle = MARGIN + (WIDTH - MARGIN) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<line x1="{middle}" y1="10" x2="{middle}" y2="{height - 24}" stroke="black"/>',
        f'<text x="{middle}" y="{height - 8}" text-anchor="middle">goal;'
        " further right is better, each side is a factor of four</text>",
    ]
    for place, one in enumerate(measured):
        parts += bar(one, 16 + place * LINE, middle)
    return "\n".join([*parts, "</svg>", ""])


def bar(one: Measured, top: float, middle: float) -> list[str]:
    """One goal's bar."""
    goal: Goal = one.row.value
    factor = one.value / goal.must if goal.at_least else goal.must / max(one.value, 1e-9)
    reach = max(-1.0, min(1.0, math.log(max(factor, 1e-9), 4))) * (WIDTH - MARGIN) / 2
    left, width = (middle, reach) if reach >= 0 else (middle + reach, -reach)
    colour = "#3a7d44" if one.verdict == "met" else "#b5483a"
    label = escape(f"{one.row.name}: {one.value:.2f}")
    return [
        f'<rect x="{left:.0f}" y="{top}" width="{max(width, 1):.0f}" height="16" fill="{colour}"/>',
        f'<text x="4" y="{top + 13}">{label}</text>',
    ]


def machine() -> str:
    """What it ran on."""
    cores = len(os.sched_getaffinity(0))
    return f"{platform.system().lower()} {platform.machine()}, {cores} cores"


def commit() -> str:
    """The commit that was measured."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 -- the user's git
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def write(docs: pathlib.Path, measured: Sequence[Measured], text: str) -> None:
    """Puts both into the folder of the documentation."""
    (docs / "spark-report").mkdir(exist_ok=True)
    (docs / "spark-report" / "goals.svg").write_text(plot(measured))
    (docs / "spark-report.md").write_text(text)
