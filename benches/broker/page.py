"""The table of `make bench-broker` as a page, with a picture of the ratios."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benches.broker.brokers import find_mosquitto
from benches.broker.rows import BESIDE, BOUNDS, MOSQUITTO, SCALES

PLACES: Final = {"--load", "--python", "--beside", "--folder", "--peers"}
ROOT: Final = Path(__file__).resolve().parents[2]
MET: Final = {None: "", True: "yes", False: "**no**"}
HEAD: Final = """\
# Performance

mqttcore and other brokers, measured in turns on one machine, one core each.
`make bench-broker ARGS="--page docs/performance.md"` writes this page. A ratio is the figure of
mqttcore divided by that of the other broker: median (lowest to highest) of all rounds. Compare
ratios, since rates depend on the machine. `load` is how busy the core of the load generator was:
near 1, the generator is the limit, and the broker may be faster. Columns of further brokers have
their figure, and the ratio. In rows of the ceiling, the other
is a bare forwarder between sockets (`mqttcore-ceiling`), which checks, keeps and limits nothing. In
rows with `kept`, ours syncs to disk before it acknowledges; Mosquitto saves every half hour. Rows
with a line `nothing kept` have a goal of 0.7 of the lesser of two bounds: the rate of ours without
a data folder in the same rounds, which is the other of that line, and what the disk allows, which
is the messages in flight, divided by the time of one sync of their bytes. `stretch` is a goal
beyond the goal. At 5,000 msg/s, a round takes 5 s. In `connects` and `TLS handshakes`, 8 clients
connect and disconnect again and again, and each closes its connection behind DISCONNECT (ADR 0148).

| | |
| --- | --- |
"""


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Writes the page, and the picture beside it in a folder of the same name."""
    picture = path.with_suffix("") / "ratios.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(picture, lines)
    facts = "".join(f"| {name} | {value} |\n" for name, value in run_facts())
    image = f"![Rates beside Mosquitto, and goals]({path.stem}/{picture.name})"
    path.write_text(f"{HEAD}{facts}\n{image}\n\n{table(lines)}")


def run_facts() -> list[tuple[str, str]]:
    """What was measured, where and how."""
    command = shlex.join(["python", "-m", "benches.broker", *without_paths(sys.argv[1:])])
    return [
        ("commit", commit()),
        ("machine", machine()),
        ("Mosquitto", mosquitto_version()),
        ("command", f"`{command}`"),
    ]


def without_paths(words: Sequence[str]) -> list[str]:
    """A command line without options that are places on one machine."""
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if not {before, word} & PLACES
    ]


def commit() -> str:
    """The commit of the checkout, and whether files differ from it."""

    def git(*words: str) -> str:
        call = ["git", "-C", str(ROOT), *words]
        return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 -- our own

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "rust", "python")
    return f"{git('rev-parse', '--short=8', 'HEAD') or 'unknown'}{', changed' if changed else ''}"


def machine() -> str:
    """Processor, cores, system and congestion control: timers of `bbr` cost large messages time."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    name = names[0] if names else platform.machine()
    linux = platform.release().split("-")[0]
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return f"{name}, {os.cpu_count()} cores, Linux {linux}, TCP {control}"


def mosquitto_version() -> str:
    """What the broker beside ours says of itself."""
    call = [find_mosquitto(), "-h"]
    told = subprocess.run(call, capture_output=True, text=True, check=False).stdout  # noqa: S603 -- Debian's
    return told.partition("\n")[0].removeprefix("mosquitto version ")


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    value *= SCALES.get(unit, 1)
    digits = 3 if unit == "s" else 2 if unit == "ms" else 1 if value < 1_000 else 0
    return f"{value:,.{digits}f} {unit}"


def ratio_text(span: Sequence[float]) -> str:
    """A median with its range."""
    low, median, high = span
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def peer_text(line: dict[str, Any], name: str) -> str:
    """The figure of another broker than Mosquitto, and the ratio of ours to it."""
    span = line["ratios"].get(name)
    if span is None:
        return ""
    return f"{figure(line['others'][name], line['unit'])}; {ratio_text(span)}"


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The rows: one column of ratios for each other broker."""
    peers = sorted(
        {name for line in lines for name in line["ratios"]} - {MOSQUITTO, BESIDE} - BOUNDS
    )
    head = ["row", "mqttcore", "Mosquitto, or other", "ratio", *peers]
    head += ["goal", "met", "stretch", "load"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        met, beyond = (MET[line[key]] for key in ("met", "stretch_met"))
        if line["lost"] or line["duplicated"]:
            met += f" lost {line['lost']}, duplicated {line['duplicated']}"
        span = line["ratios"].get(line["other_name"])
        rows.append(
            [
                line["row"],
                figure(line["ours"], line["unit"]),
                figure(line["other"], line["unit"]),
                "" if span is None else ratio_text(span),
                *(peer_text(line, name) for name in peers),
                line["goal"] or "",
                met,
                f"{line['stretch']}: {beyond}" if line["stretch"] else "",
                "" if line["load_busy"] is None else f"{line['load_busy']:.2f}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def draw(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Ratios of rates to Mosquitto's as bars, with their goals."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rates = [
        (line["row"], line["ratios"][MOSQUITTO], line["goal_ratio"])
        for line in lines
        if line["unit"] in {"msg/s", "1/s"} and MOSQUITTO in line["ratios"]
    ]
    drawn = Figure(figsize=(9, 1.2 + 0.34 * len(rates)), layout="constrained")
    axes = drawn.subplots()
    for place, (_, (low, median, high), goal) in enumerate(rates):
        axes.barh(place, median, color="#4477aa", height=0.6)
        axes.plot([low, high], [place, place], color="#222222", linewidth=1.5)
        if goal is not None:
            axes.plot([goal, goal], [place - 0.4, place + 0.4], color="#cc3311", linewidth=2)
    axes.axvline(1, color="#222222", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rates)), [name for name, *_ in rates])
    axes.invert_yaxis()
    axes.set_xlabel("messages a second, times Mosquitto's (logarithmic); red: goal")
    with rc_context({"svg.hashsalt": "mqttcore"}):
        drawn.savefig(path, metadata={"Date": None})
