"""Measures mqttcore beside Mosquitto, one core each, and says which goals are met.

Every broker runs as its own process on one core, as users run it; the load generator
(`mqttcore-load`) runs on another. Brokers take turns, row by row and round by round, each time
freshly started, and the medians of the rounds are compared: rates of different machines or
different hours are not.

Mosquitto runs without persistence and log, with `set_tcp_nodelay true` as every fast client sets
it, and with `max_queued_messages 0`, so that it may queue what it has no time to send instead of
dropping it. `max_inflight_messages` keeps its default of 20, which is above every window here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START_S = 10.0
STOP_S = 10.0
ROW_S = 60.0
CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05ready"
CONNACK = b"\x20\x02\x00\x00"
MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
log_dest none
"""


class ReportError(Exception):
    """The report cannot be made; the text says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One load and its goal: how many times Mosquitto's rate, or none."""

    name: str
    load: tuple[str, ...]
    goal: float | None = None


ROWS = (
    Row(name="50 pairs, QoS 0, 1 in flight", load=("pairs", "--window", "1"), goal=1.1),
    Row(name="50 pairs, QoS 0, 16 in flight", load=("pairs", "--window", "16"), goal=5),
    Row(name="50 pairs, QoS 0, 256 in flight", load=("pairs", "--window", "256")),
    Row(name="50 pairs, QoS 1, 16 in flight", load=("pairs", "--qos", "1"), goal=4),
    Row(name="50 pairs, QoS 2, 16 in flight", load=("pairs", "--qos", "2")),
    Row(name="fan-out 1 to 1000, 1 in flight", load=("fanout", "--window", "1")),
    Row(name="fan-out 1 to 1000, 16 in flight", load=("fanout", "--window", "16"), goal=6),
    Row(name="200 publishers to 4 wildcards, 16", load=("fanin", "--window", "16"), goal=7),
    Row(name="shared group, 100 to 10, 16", load=("shared", "--window", "16")),
    Row(name="50 pairs, QoS 1, 5,000 msg/s", load=("pairs", "--qos", "1", "--rate", "5000")),
)
KEPT = ("--sessions", "kept")
DURABLE_ROWS = (
    Row(
        name="50 pairs, QoS 1, 1 in flight, kept",
        load=("pairs", *KEPT, "--qos", "1", "--window", "1"),
    ),
    Row(name="50 pairs, QoS 1, 16 in flight, kept", load=("pairs", *KEPT, "--qos", "1")),
    Row(name="50 pairs, QoS 2, 16 in flight, kept", load=("pairs", *KEPT, "--qos", "2")),
    Row(
        name="50 pairs, QoS 1, 20,000 msg/s, kept",
        load=("pairs", *KEPT, "--qos", "1", "--rate", "20000"),
    ),
    Row(name="fan-out 1 to 1000, QoS 1, 16, kept", load=("fanout", *KEPT, "--qos", "1")),
    Row(name="50 pairs, QoS 0, 16 in flight, clean", load=("pairs",)),
)
"""What `--durable` measures: ours with a folder and sync before acknowledgement, Mosquitto with its
own persistence, which saves every half hour and at the end."""
IDLE_GOAL_BYTES = 4_096
START_GOAL_S = 0.3
START_ROUNDS = 5


@dataclass(slots=True)
class Measured:
    """Every round of one row, by broker."""

    row: str
    goal: float | None
    unit: str
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def median(self, broker: str, key: str) -> float | None:
        """The median of one figure over the rounds; `None` when it was not measured."""
        values = [line[key] for line in self.rounds.get(broker, ()) if line.get(key) is not None]
        return statistics.median(values) if values else None


class Brokers:
    """Starts and ends the two brokers, one at a time."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.python: str = options.python
        self.folder = folder
        self.durable: bool = options.durable
        self.mosquitto = None if options.ours_only else find_mosquitto()
        cores = sorted(os.sched_getaffinity(0))
        self.broker_core, self.load_core = (cores[0], cores[-1])
        if len(cores) < 2:
            print("bench-broker: only one core: broker and load share it", file=sys.stderr)

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured, in turn."""
        return ("ours", "mosquitto") if self.mosquitto else ("ours",)

    def command(self, name: str, port: int) -> list[str]:
        """The command line of one broker on one port of the loopback."""
        data = self.folder / f"{name}-{port}"
        if name == "ours":
            ours = [self.python, "-m", "mqttcore.serve", "--listen", f"127.0.0.1:{port}"]
            return [*ours, "--data", str(data)] if self.durable else ours
        config = self.folder / f"mosquitto-{port}.conf"
        text = MOSQUITTO_CONFIG.format(port=port)
        if self.durable:
            data.mkdir(mode=0o777)
            data.chmod(0o777)
            kept = f"persistence true\npersistence_location {data}/"
            text = text.replace("persistence false", kept)
        config.write_text(text)
        return [str(self.mosquitto), "-c", str(config)]

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[tuple[int, int, float]]:
        """A broker that answers: its process id, its port, and how long it took, in seconds."""
        port = free_port()
        log = self.folder / f"{name}-{port}.log"
        with log.open("wb") as sink:
            began = time.monotonic()
            process = subprocess.Popen(  # noqa: S603 -- our own command line
                self.command(name, port),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=lambda: settle(self.broker_core),
            )
            try:
                ready = wait_until_ready(process, port, log)
                yield process.pid, port, ready - began
            finally:
                end(process)

    def load(self, binary: Path, words: Sequence[str]) -> dict[str, Any]:
        """Runs one row of the load generator on its core."""
        try:
            done = subprocess.run(  # noqa: S603 -- our own binary
                [str(binary), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ROW_S,
                check=False,
                preexec_fn=lambda: settle(self.load_core),
            )
        except subprocess.TimeoutExpired:
            raise ReportError(f"the load took more than {ROW_S:.0f} s: {' '.join(words)}") from None
        if done.returncode != 0:
            raise ReportError(f"{' '.join(words)}: {done.stderr.strip()}")
        line: dict[str, Any] = json.loads(done.stdout)
        return line


def find_mosquitto() -> str:
    """The broker's path; Debian keeps it where only root looks.

    Raises:
        ReportError: It is not installed.
    """
    path = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        raise ReportError(
            "mosquitto is not installed (Debian: apt-get install mosquitto);"
            " --ours-only measures without it"
        )
    return path


def settle(core: int) -> None:
    """Keeps this process on one core, ahead of what else runs there if that is allowed.

    Linux weighs sessions against each other before it looks at the processes in them.
    """
    os.sched_setaffinity(0, {core})
    os.setsid()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        Path("/proc/self/autogroup").write_text("-15")


def free_port() -> int:
    """A port that was free a moment ago; brokers are told where to listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> float:
    """Asks until a CONNECT is accepted, and answers when that was.

    Raises:
        ReportError: The broker ended, or took longer than `START_S`.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
            peer.sendall(CONNECT)
            if peer.recv(4, socket.MSG_WAITALL) == CONNACK:
                return time.monotonic()
        time.sleep(0.001)
    tail = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    raise ReportError(f"{process.args[0]!r} does not accept a CONNECT: {tail[0]}")  # type: ignore[index] # a list


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to stop, then insists."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)


def build_load() -> Path:
    """Builds the load generator and answers where it is.

    Raises:
        ReportError: cargo is missing or refuses.
    """
    command = ["cargo", "build", "--release", "--quiet", "--package", "mqttcore-benches"]
    command += ["--bin", "mqttcore-load", "--message-format", "json-render-diagnostics"]
    try:
        done = subprocess.run(  # noqa: S603 -- our own command line
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReportError(f"the load generator does not build: {error}") from error
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "mqttcore-load":
            return Path(message["executable"])
    raise ReportError("cargo built no mqttcore-load")


def measure_rows(brokers: Brokers, binary: Path, options: argparse.Namespace) -> list[Measured]:
    """All busy rows, interleaved: round by round, row by row, broker by broker."""
    chosen = [
        row for row in (DURABLE_ROWS if options.durable else ROWS) if options.rows in row.name
    ]
    results = [Measured(row.name, row.goal, "msg/s") for row in chosen]
    extra = ("--payload", str(options.payload), "--seconds", str(options.seconds))
    for number in range(options.rounds):
        for row, result in zip(chosen, results, strict=True):
            for name in brokers.names:
                progress(f"round {number + 1} of {options.rounds}: {row.name}: {name}")
                with brokers.running(name) as (pid, port, _):
                    words = (*row.load, *extra, "--address", f"127.0.0.1:{port}", "--pid", str(pid))
                    result.rounds.setdefault(name, []).append(brokers.load(binary, words))
    return results


def measure_idle(brokers: Brokers, binary: Path, options: argparse.Namespace) -> Measured:
    """Resident bytes of one more connection with one subscription."""
    result = Measured("idle connection", IDLE_GOAL_BYTES, "bytes")
    words = ("idle", "--connections", str(options.connections))
    for name in brokers.names:
        progress(f"idle: {name}")
        with brokers.running(name) as (pid, port, _):
            line = brokers.load(
                binary, (*words, "--address", f"127.0.0.1:{port}", "--pid", str(pid))
            )
            result.rounds[name] = [line]
    return result


def measure_start(brokers: Brokers) -> Measured:
    """Seconds from the spawn of a broker to the first CONNECT that it accepts."""
    result = Measured("start to first connection", START_GOAL_S, "s")
    for _ in range(START_ROUNDS):
        for name in brokers.names:
            progress(f"start: {name}")
            with brokers.running(name) as (_pid, _port, took_s):
                result.rounds.setdefault(name, []).append({"start_s": took_s})
    return result


def progress(text: str) -> None:
    """One line that the next one overwrites, where people look on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


FIGURES = {"msg/s": "messages_per_s", "bytes": "bytes_per_connection", "s": "start_s"}


def summary(result: Measured) -> dict[str, Any]:
    """One row with its medians, its ratio and whether its goal is met."""
    key = FIGURES[result.unit]
    ours, other = result.median("ours", key), result.median("mosquitto", key)
    ratio = ours / other if ours is not None and other else None
    judged = ratio if result.unit == "msg/s" else ours
    met = None
    if result.goal is not None and judged is not None:
        met = judged >= result.goal if result.unit == "msg/s" else judged <= result.goal
    return {
        "row": result.row,
        "unit": result.unit,
        "ours": ours,
        "mosquitto": other,
        "ratio": ratio,
        "goal": result.goal,
        "met": met,
        "lost": sum(line.get("lost", 0) for line in result.rounds.get("ours", ())),
        "duplicated": sum(line.get("duplicated", 0) for line in result.rounds.get("ours", ())),
        "details": {
            name: {key: result.median(name, key) for key in ("p50_us", "p99_us", "broker_cpu_us")}
            for name in result.rounds
        },
        "rounds": result.rounds,
    }


def number(value: float | None, unit: str) -> str:
    """A figure in few characters."""
    if value is None:
        return "-"
    return f"{value:,.3f} s" if unit == "s" else f"{value:,.0f}"


def goal_text(line: dict[str, Any]) -> str:
    """The goal in the words of its row."""
    if line["goal"] is None:
        return ""
    if line["unit"] == "msg/s":
        return f">= {line['goal']:g} x"
    return f"<= {number(line['goal'], line['unit'])}"


def verdict(line: dict[str, Any]) -> str:
    """What a reader looks for, with losses said aloud."""
    text = {None: "", True: "met", False: "NOT MET"}[line["met"]]
    if line["lost"] or line["duplicated"]:
        text += f" lost {line['lost']}, duplicated {line['duplicated']}"
    return text


def pair(line: dict[str, Any], key: str) -> str:
    """One detail of both brokers, ours first."""
    values = [line["details"].get(name, {}).get(key) for name in ("ours", "mosquitto")]
    if all(value is None for value in values):
        return ""
    return " / ".join("-" if value is None else f"{value:,.1f}" for value in values)


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """The rows as text; details are ours / Mosquitto."""
    layout = "{:<36} {:>11} {:>11} {:>6}  {:<11} {:<8} {:>15} {:>21}"
    head = ("row (msg/s, bytes or s)", "ours", "mosquitto", "ratio", "goal", "")
    print(layout.format(*head, "CPU us/msg", "p99 us").rstrip())
    for line in lines:
        ratio = "-" if line["ratio"] is None else f"{line['ratio']:.2f}"
        figures = (number(line["ours"], line["unit"]), number(line["mosquitto"], line["unit"]))
        tail = (pair(line, "broker_cpu_us"), pair(line, "p99_us"))
        text = layout.format(line["row"], *figures, ratio, goal_text(line), verdict(line), *tail)
        print(text.rstrip())


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of every busy row (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured in a round (2)")
    parser.add_argument("--payload", type=int, default=64, help="bytes (64)")
    parser.add_argument("--connections", type=int, default=10_000, help="idle ones (10000)")
    parser.add_argument("--rows", default="", help="only rows whose name holds this text")
    parser.add_argument("--ours-only", action="store_true", help="leave Mosquitto out")
    parser.add_argument(
        "--durable", action="store_true", help="sessions and messages that outlive the broker"
    )
    parser.add_argument("--strict", action="store_true", help="fail when a goal is not met")
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    parser.add_argument("--load", type=Path, help="a mqttcore-load that is built already")
    parser.add_argument("--python", default=sys.executable, help="that has mqttcore (this one)")
    return parser.parse_args()


def report(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures everything that the options ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options.connections = min(options.connections, hard - 200 if hard > 0 else soft)
    with tempfile.TemporaryDirectory(prefix="mqttcore-bench-") as folder:
        brokers = Brokers(options, Path(folder))
        binary = (options.load or build_load()).resolve()
        results = measure_rows(brokers, binary, options)
        if options.rows in "idle connection":
            results.append(measure_idle(brokers, binary, options))
        if options.rows in "start to first connection":
            results.append(measure_start(brokers))
    progress("")
    return [summary(result) for result in results]


def main() -> int:
    """Prints the table; 0 when it could be made, 1 when it could not or a goal is missed."""
    options = parse()
    try:
        lines = report(options)
    except ReportError as error:
        progress("")
        print(f"bench-broker: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(lines, indent=1))
    else:
        print_table(lines)
    return int(options.strict and any(line["met"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
