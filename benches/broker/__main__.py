"""Measures mqttcore beside Mosquitto, one core each, and says which goals are met.

Some rows compare two loads or configurations of mqttcore instead; with `--beside`, all compare two
builds of it. More brokers come from a file (`make bench-broker PEERS=peers.toml`):

    [name]
    command = ["path", "--port", "$port", "--config", "$config", "--data", "$data"]
    config = "text of the file $config"
    tls = "more of it in rows of TLS; $certificates/server.pem and server.key are there"

Rows of TLS have full handshakes, without tickets, and certificates of P-256.

Every broker runs as its own process on one core, as users run it; the load generator
(`mqttcore-load`) runs on another. Brokers take turns, row by row and round by round, each time
freshly started; every second round is the other way round. In rows of the ceiling, the other is a
bare forwarder between sockets (`mqttcore-ceiling`). In lines with `nothing kept`, the other is ours
without a data folder. A ratio is the median of the ratios of the
rounds, with the lowest and the highest: rates of different machines or different hours are not
compared. `load` is how busy the core of the load generator is; at 1 the row measures the generator.
In the row with a fixed rate the time of a message begins when it was due, and the generator never
sleeps, so that it sends on time; a round of that row takes 5 s. In the rows of connections, clients
close theirs as soon as they have CONNACK and have sent DISCONNECT. The CPU time of a broker is the
clock of its process, in nanoseconds.

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
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benches.broker import page
from benches.broker.brokers import Brokers, ReportError
from benches.broker.log import extra_bytes
from benches.broker.observer import Observer
from benches.broker.reload import reload_times
from benches.broker.rows import (
    BESIDE,
    BEST,
    BOUNDS,
    CEILING,
    DURABLE_ROWS,
    EMBEDDED,
    MOSQUITTO,
    OURS,
    RELOAD,
    ROWS,
    SCALES,
    START,
    UNKEPT,
    Figure,
    Goal,
    Measured,
    Row,
)

START_ROUNDS = 5


def measure_rows(
    brokers: Brokers, options: argparse.Namespace
) -> Iterator[tuple[Figure, str, Measured]]:
    """All busy rows, interleaved: round by round, row by row, broker by broker.

    A broker that fails a row is left out of it from then on, and all are if ours fails; the reason
    is among the failures of the options.
    """
    rows = DURABLE_ROWS if brokers.durable else ROWS
    chosen = [row for row in rows if any(options.rows in name for name in row.names())]
    results = [Measured() for _ in chosen]
    for number in range(options.rounds):
        for row, result in zip(chosen, results, strict=True):
            if row.rounds is None or number < row.rounds:
                measure_round(brokers, options, (row, number), result)
    for row, result in zip(chosen, results, strict=True):
        for figure, name in zip(row.figures, row.names(), strict=True):
            yield figure, name, result


def measure_round(
    brokers: Brokers, options: argparse.Namespace, turn: tuple[Row, int], result: Measured
) -> None:
    """One round of one row, for each broker that has not failed it."""
    row, number = turn
    for name in in_turn(brokers, row, number):
        if options.failures.keys() & {(row.name, OURS), (row.name, name)}:
            continue
        progress(f"round {number + 1} of {options.rounds}: {row.name}: {name}")
        try:
            result.add(name, measure_row(brokers, row, name, options))
        except ReportError as error:
            options.failures[row.name, name] = f"{row.name}: {name}: {error}"


def in_turn(brokers: Brokers, row: Row, number: int) -> tuple[str, ...]:
    """Who carries this row, in the order of this round: the other way round in each second one."""
    names = (OURS, BESIDE) if row.beside else brokers.names(tls=row.tls, ceiling=row.has_ceiling)
    names += (UNKEPT,) if row.has_unkept else ()
    return names if number % 2 == 0 else names[::-1]


def measure_row(
    brokers: Brokers, row: Row, name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """One round of one row for one broker."""
    extra = ["--payload", str(options.payload), "--seconds", str(options.seconds)]
    extra += ["--connections", str(options.connections)]
    is_other_load = bool(row.beside) and name == BESIDE
    kind, *load = row.beside if is_other_load else row.load
    settings = row.beside_settings if is_other_load else row.settings
    looks_on: AbstractContextManager[None] = nullcontext()
    if row.is_observed and not is_other_load:
        observer = Observer(brokers.folder)
        settings, looks_on = observer.settings(settings), observer.looks_on()
    with (
        brokers.running(
            OURS if is_other_load or name == UNKEPT else name,
            tls=row.tls and not is_other_load,
            settings=settings,
            both_cores=row.has_both_cores and not is_other_load,
            keeps=name != UNKEPT,
        ) as broker,
        looks_on,
        tempfile.TemporaryDirectory(dir=brokers.folder, prefix="disk-") as disk,
    ):
        if row.has_disk and name != UNKEPT:
            extra += ["--disk", disk]
        is_alone = not row.has_both_cores or is_other_load
        line = brokers.load((kind, *extra, *load, *broker.words), is_alone=is_alone)
        if row.reads_log and name == OURS:
            broker.kill()
            line["log_extra_bytes"] = extra_bytes(broker.data, line)
    return line


def measure_start(brokers: Brokers) -> Measured:
    """Seconds from the spawn of a broker to the first CONNECT that it accepts."""
    result = Measured()
    for _ in range(START_ROUNDS):
        for name in brokers.names():
            progress(f"start: {name}")
            with brokers.running(name) as broker:
                result.add(name, {"start_s": broker.started_s})
    return result


PROGRAM = """
import time
from mqttcore import Broker, Settings
from mqttcore.config import Listener
broker = Broker(Settings(listeners=(Listener(address="127.0.0.1:0", anonymous=True),)))
began = time.perf_counter()
broker.start()
print(time.perf_counter() - began)
broker.stop()
"""


def measure_embedded(brokers: Brokers) -> Measured:
    """Seconds that `Broker.start()` takes in a program."""
    result = Measured()
    for _ in range(START_ROUNDS):
        for name, python in brokers.pythons.items():
            if python:
                progress(f"embedded: {name}")
                took_s = brokers.program(python, PROGRAM)
                result.add(name, {"start_s": float(took_s)})
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
    """One line with its medians, its ratios and whether its goal is met."""
    goal = figure.goal
    first = figure.beside or (BESIDE if BESIDE in result.rounds else MOSQUITTO)
    is_rate = figure.unit in {"msg/s", "1/s"}
    details = ("p50_us", "p99_us", "broker_cpu_us") if is_rate else ()
    compared = {figure.beside} if figure.beside else result.rounds.keys() - {OURS} - BOUNDS
    ratios = {other: figure.ratios(result, other) for other in sorted(compared)}
    return {
        "row": name,
        "unit": figure.unit,
        "ours": figure.value(result, OURS),
        "other": figure.value(result, first),
        "other_name": first,
        "others": {other: figure.value(result, other) for other in ratios},
        "ratios": {other: span for other, span in ratios.items() if span is not None},
        "goal": goal and goal_text(goal, goal.bound(result), figure.unit),
        "goal_ratio": goal.times if goal and goal.of and goal.of[0] == MOSQUITTO else None,
        "met": goal and is_met(figure, goal, result),
        "stretch": figure.stretch
        and goal_text(figure.stretch, figure.stretch.bound(result), figure.unit),
        "stretch_met": figure.stretch and is_met(figure, figure.stretch, result),
        "lost": result.total("lost"),
        "duplicated": result.total("duplicated"),
        "load_busy": result.median(OURS, "load_busy"),
        "details": {
            name: {key: result.median(name, key) for key in details} for name in result.rounds
        },
        "rounds": result.rounds,
    }


def is_met(figure: Figure, goal: Goal, result: Measured) -> bool | None:
    """Whether our figure keeps to a goal; `None` when something was not measured."""
    of = None if goal.of is None or goal.of[0] == OURS else goal.of[0]
    span = None if of is None else figure.ratios(result, of)
    return goal.holds(figure.value(result, OURS), goal.bound(result), span and span[1])


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
    if goal.of is not None and goal.of[0] in {MOSQUITTO, CEILING, BEST}:
        return f"{sign} {goal.times:g} x{' the best' if goal.of[0] == BEST else ''}"
    return f"{sign} {number(bound, unit)}"


def verdict(line: dict[str, Any]) -> str:
    """What a reader looks for, with losses said aloud."""
    text = {None: "", True: "met", False: "NOT MET"}[line["met"]]
    if line["lost"] or line["duplicated"]:
        text += f" lost {line['lost']}, duplicated {line['duplicated']}"
    return text


def pair(line: dict[str, Any], key: str) -> str:
    """One detail of both sides, ours first."""
    values = [line["details"].get(name, {}).get(key) for name in (OURS, line["other_name"])]
    if not any(values):
        return ""
    return " / ".join(f"{value:,.1f}" if value else "-" for value in values)


def span_text(span: Sequence[float] | None) -> str:
    """A median of ratios with the lowest and the highest."""
    if span is None:
        return "-"
    low, median, high = span
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """The rows as text; details are ours / the other."""
    layout = "{:<41} {:>11} {:>11} {:>18}  {:>15} {:>21} {:>5}  {:<12} {}"
    head = ("row (msg/s, bytes or times)", "ours", "other", "ratio (range)")
    print(layout.format(*head, "CPU us/msg", "p99 us", "load", "goal", "").rstrip())
    for line in lines:
        figures = (number(line["ours"], line["unit"]), number(line["other"], line["unit"]))
        ratio = span_text(line["ratios"].get(line["other_name"]))
        details = (pair(line, "broker_cpu_us"), pair(line, "p99_us"))
        busy = "" if line["load_busy"] is None else f"{line['load_busy']:.2f}"
        tail = (*details, busy, line["goal"] or "", verdict(line))
        print(layout.format(line["row"], *figures, ratio, *tail).rstrip())
        for name, span in line["ratios"].items():
            if name != line["other_name"]:
                print(
                    layout.format(f"  beside {name}", "", "", span_text(span), *[""] * 5).rstrip()
                )


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
    parser.add_argument("--peers", type=Path, help="TOML file that names more brokers")
    parser.add_argument(
        "--page", type=Path, help="write the table of all rows and its plot, as Markdown"
    )
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    parser.add_argument("--load", type=Path, help="a mqttcore-load that is built already")
    parser.add_argument("--folder", type=Path, help="on the disk that is measured (the system's)")
    parser.add_argument("--python", default=sys.executable, help="that has mqttcore (this one)")
    options = parser.parse_args()
    if options.page and (options.rows or options.durable or options.ours_only or options.beside):
        parser.error("--page: the page has all rows, beside Mosquitto")
    return options


def report(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures everything that the options ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options.connections = min(options.connections, hard - 200 if hard > 0 else soft)
    with tempfile.TemporaryDirectory(prefix="mqttcore-bench-", dir=options.folder) as folder:
        brokers = Brokers(options, Path(folder), durable=options.durable)
        for result in measure_all(brokers, options):
            yield summary(*result)
        if options.page:
            for result in measure_rows(Brokers(options, Path(folder), durable=True), options):
                yield summary(*result)


def measure_all(
    brokers: Brokers, options: argparse.Namespace
) -> Iterator[tuple[Figure, str, Measured]]:
    """The busy rows, then the figures that need no load."""
    yield from measure_rows(brokers, options)
    if options.rows in START.name:
        yield START, START.name, measure_start(brokers)
    if options.rows in EMBEDDED.name:
        yield EMBEDDED, EMBEDDED.name, measure_embedded(brokers)
    reload_figures = [figure for figure in RELOAD if options.rows in figure.name]
    if reload_figures:
        reloads = measure_reload(brokers, options)
        yield from ((figure, figure.name, reloads) for figure in reload_figures)


def main() -> int:
    """Prints the table; 0 when it could be made, 1 when it could not or a goal is missed."""
    options = parse()
    lines: list[dict[str, Any]] = []
    options.failures = {}
    try:
        lines.extend(report(options))
    except ReportError as error:
        options.failures[""] = str(error)
    progress("")
    if options.json:
        print(json.dumps(lines, indent=1))
    elif lines:
        print_table(lines)
    if options.page and lines:
        page.write(options.page, lines)
    for failure in options.failures.values():
        print(f"bench-broker: {failure}", file=sys.stderr)
    if options.failures:
        return 1
    return int(options.strict and any(line["met"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
