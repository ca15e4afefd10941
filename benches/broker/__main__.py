"""Measures mqttcore beside Mosquitto, one core each, and says which goals are met.

Some rows compare two loads under mqttcore instead; with `--beside`, all compare two builds of it.
Rows of TLS have full handshakes, without tickets, and certificates of P-256.

Every broker runs as its own process on one core, as users run it; the load generator
(`mqttcore-load`) runs on another. Brokers take turns, row by row and round by round, each time
freshly started, and the medians of the rounds are compared: rates of different machines or
different hours are not.

Mosquitto runs without log, with `set_tcp_nodelay true` as every fast client sets it, and with
`max_queued_messages 0`, so that it may queue what it has no time to send instead of dropping it.
Without `--durable` it has no persistence, and `max_inflight_messages` keeps its default of 20,
which is above every window at QoS 1 and 2; with it, its persistence is on and that is 64.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benches.broker.brokers import Brokers, ReportError
from benches.broker.log import extra_bytes
from benches.broker.reload import reload_times
from benches.broker.rows import (
    BESIDE,
    DURABLE_ROWS,
    IDLE,
    MOSQUITTO,
    OURS,
    RELOAD,
    ROWS,
    SCALES,
    START,
    Figure,
    Goal,
    Measured,
    Row,
)

START_ROUNDS = 5


def measure_rows(
    brokers: Brokers, options: argparse.Namespace
) -> Iterator[tuple[Figure, str, Measured]]:
    """All busy rows, interleaved: round by round, row by row, broker by broker."""
    rows = DURABLE_ROWS if options.durable else ROWS
    chosen = [row for row in rows if any(options.rows in name for name in row.names())]
    results = [Measured() for _ in chosen]
    for number in range(options.rounds):
        for row, result in zip(chosen, results, strict=True):
            for name in (OURS, BESIDE) if row.beside else brokers.names:
                progress(f"round {number + 1} of {options.rounds}: {row.name}: {name}")
                result.add(name, measure_row(brokers, row, name, options))
    for row, result in zip(chosen, results, strict=True):
        for figure, name in zip(row.figures, row.names(), strict=True):
            yield figure, name, result


def measure_row(
    brokers: Brokers, row: Row, name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """One round of one row for one broker."""
    extra = ["--payload", str(options.payload), "--seconds", str(options.seconds)]
    is_other_load = bool(row.beside) and name == BESIDE
    load = row.beside if is_other_load else row.load
    settings = row.beside_settings if is_other_load else row.settings
    with (
        brokers.running(
            OURS if is_other_load else name,
            tls=row.tls and not is_other_load,
            settings=settings,
        ) as broker,
        tempfile.TemporaryDirectory(dir=brokers.folder, prefix="disk-") as disk,
    ):
        if row.has_disk:
            extra += ["--disk", disk]
        line = brokers.load((*load, *extra, *broker.words))
        if row.reads_log and name == OURS:
            broker.kill()
            line["log_extra_bytes"] = extra_bytes(broker.data, line)
    return line


def measure_idle(brokers: Brokers, options: argparse.Namespace) -> Measured:
    """Resident bytes of one more connection with one subscription."""
    result = Measured()
    words = ("idle", "--connections", str(options.connections))
    for name in brokers.names:
        progress(f"idle: {name}")
        with brokers.running(name) as broker:
            result.add(name, brokers.load((*words, *broker.words)))
    return result


def measure_start(brokers: Brokers) -> Measured:
    """Seconds from the spawn of a broker to the first CONNECT that it accepts."""
    result = Measured()
    for _ in range(START_ROUNDS):
        for name in brokers.names:
            progress(f"start: {name}")
            with brokers.running(name) as broker:
                result.add(name, {"start_s": broker.started_s})
    return result


def measure_reload(brokers: Brokers, options: argparse.Namespace) -> Measured:
    """Seconds from SIGHUP to the first CONNECT that meets the new rules."""
    result = Measured()
    progress("reload: ours")
    for took_s in reload_times(options.python, brokers.folder, brokers.broker_core):
        result.add(OURS, {"reload_s": took_s})
    return result


def progress(text: str) -> None:
    """One line that the next one overwrites, where people look on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def summary(figure: Figure, name: str, result: Measured) -> dict[str, Any]:
    """One line with its medians, its ratio and whether its goal is met."""
    ours = figure.value(result, OURS)
    other = figure.value(result, BESIDE if BESIDE in result.rounds else MOSQUITTO)
    goal = figure.goal
    bound = None if goal is None else goal.bound(result)
    is_rate = figure.unit in {"msg/s", "1/s"}
    details = ("p50_us", "p99_us", "broker_cpu_us") if is_rate else ()
    return {
        "row": name,
        "unit": figure.unit,
        "ours": ours,
        "other": other,
        "ratio": ours / other if ours is not None and other else None,
        "goal": goal and goal_text(goal, bound, figure.unit),
        "met": goal and goal.is_met(ours, bound),
        "lost": result.total("lost"),
        "duplicated": result.total("duplicated"),
        "details": {
            name: {key: result.median(name, key) for key in details} for name in result.rounds
        },
        "rounds": result.rounds,
    }


def number(value: float | None, unit: str) -> str:
    """A figure in few characters."""
    if value is None:
        return "-"
    value *= SCALES.get(unit, 1)
    if unit in {"s", "ms"}:
        return f"{value:,.{3 if unit == 's' else 2}f} {unit}"
    return f"{value:,.1f}" if value < 1_000 else f"{value:,.0f}"


def goal_text(goal: Goal, bound: float | None, unit: str) -> str:
    """The goal in the words of its row."""
    sign = ">=" if goal.is_floor else "<="
    if goal.of is not None and goal.of[0] == MOSQUITTO:
        return f"{sign} {goal.times:g} x"
    return f"{sign} {number(bound, unit)}"


def verdict(line: dict[str, Any]) -> str:
    """What a reader looks for, with losses said aloud."""
    text = {None: "", True: "met", False: "NOT MET"}[line["met"]]
    if line["lost"] or line["duplicated"]:
        text += f" lost {line['lost']}, duplicated {line['duplicated']}"
    return text


def pair(line: dict[str, Any], key: str) -> str:
    """One detail of both sides, ours first."""
    other = BESIDE if BESIDE in line["details"] else MOSQUITTO
    values = [line["details"].get(name, {}).get(key) for name in (OURS, other)]
    if not any(values):
        return ""
    return " / ".join(f"{value:,.1f}" if value else "-" for value in values)


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """The rows as text; details are ours / the other."""
    layout = "{:<37} {:>11} {:>11} {:>6}  {:>15} {:>21}  {:<12} {}"
    head = ("row (msg/s, bytes or times)", "ours", "other", "ratio")
    print(layout.format(*head, "CPU us/msg", "p99 us", "goal", "").rstrip())
    for line in lines:
        ratio = "-" if line["ratio"] is None else f"{line['ratio']:.2f}"
        figures = (number(line["ours"], line["unit"]), number(line["other"], line["unit"]))
        details = (pair(line, "broker_cpu_us"), pair(line, "p99_us"))
        tail = (*details, line["goal"] or "", verdict(line))
        print(layout.format(line["row"], *figures, ratio, *tail).rstrip())


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make bench-broker", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="of every busy row (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured in a round (2)")
    parser.add_argument("--payload", type=int, default=64, help="bytes (64)")
    parser.add_argument("--connections", type=int, default=10_000, help="idle ones (10000)")
    parser.add_argument("--rows", default="", help="only rows with a line that holds this text")
    parser.add_argument("--ours-only", action="store_true", help="leave Mosquitto out")
    parser.add_argument("--beside", help="a Python with another build, instead of Mosquitto")
    parser.add_argument(
        "--durable", action="store_true", help="sessions and messages that outlive the broker"
    )
    parser.add_argument("--strict", action="store_true", help="fail when a goal is not met")
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    parser.add_argument("--load", type=Path, help="a mqttcore-load that is built already")
    parser.add_argument("--folder", type=Path, help="on the disk that is measured (the system's)")
    parser.add_argument("--python", default=sys.executable, help="that has mqttcore (this one)")
    return parser.parse_args()


def report(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures everything that the options ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options.connections = min(options.connections, hard - 200 if hard > 0 else soft)
    with tempfile.TemporaryDirectory(prefix="mqttcore-bench-", dir=options.folder) as folder:
        for result in measure_all(Brokers(options, Path(folder)), options):
            yield summary(*result)


def measure_all(
    brokers: Brokers, options: argparse.Namespace
) -> Iterator[tuple[Figure, str, Measured]]:
    """The busy rows, then the figures that need no load."""
    yield from measure_rows(brokers, options)
    if options.rows in IDLE.name:
        yield IDLE, IDLE.name, measure_idle(brokers, options)
    if options.rows in START.name:
        yield START, START.name, measure_start(brokers)
    reload_figures = [figure for figure in RELOAD if options.rows in figure.name]
    if reload_figures:
        reloads = measure_reload(brokers, options)
        yield from ((figure, figure.name, reloads) for figure in reload_figures)


def main() -> int:
    """Prints the table; 0 when it could be made, 1 when it could not or a goal is missed."""
    options = parse()
    lines: list[dict[str, Any]] = []
    failure = None
    try:
        lines.extend(report(options))
    except ReportError as error:
        failure = error
    progress("")
    if options.json:
        print(json.dumps(lines, indent=1))
    elif lines:
        print_table(lines)
    if failure is not None:
        # What was measured before it counts.
        print(f"bench-broker: {failure}", file=sys.stderr)
        return 1
    return int(options.strict and any(line["met"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
