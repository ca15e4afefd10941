"""One attack on a broker of its own: its process, the attacker's, and what a bystander notices."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.storm.attacks import Attack
from tests.storm.round_trips import RoundTrips, percentile
from tests.wire import Wire, unique

GOAL_P99_MS: Final = 20.0
GOAL_STOP_S: Final = 2.0
# Bounds, not goals: what takes longer is ended.
STOP_S: Final = 60.0
END_S: Final = 10.0
# Everything else keeps its default.
SETTINGS: Final = {"MQTTCORE__SHARDS": "1", "MQTTCORE__SYS_INTERVAL_S": "1"}
COUNTERS: Final = ("dropped", "refused", "violations", "panics", "denied")


class StormError(Exception):
    """An attack cannot be run; the text says why."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a bystander noticed of one attack, and what the broker says of it."""

    attack: str
    calm_ms: list[float] = field(default_factory=list)
    storm_ms: list[float] = field(default_factory=list)
    stop_s: float = STOP_S
    """From SIGTERM, under attack, to the exit."""
    status: int = 0
    cpu_s: float = 0.0
    """CPU time of the broker from the first publish of the attack to the exit."""
    sent: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Times of the bystander without and with the attack, in ms."""
        return {
            f"{when}_{name}_ms": round(percentile(values, share), 3)
            for when, values in (("calm", self.calm_ms), ("storm", self.storm_ms))
            for name, share in (("p50", 0.5), ("p99", 0.99))
        }

    @property
    def is_held(self) -> bool:
        """Whether both goals are met."""
        return self.figures["storm_p99_ms"] <= GOAL_P99_MS and self.stop_s <= GOAL_STOP_S

    @property
    def publish_cpu_us(self) -> float:
        """CPU time of the broker for each publish that was sent, in us."""
        return self.cpu_s * 1e6 / max(1, self.sent["publishes"])

    def as_json(self) -> dict[str, Any]:
        """Everything but the single round trips."""
        found = asdict(self)
        del found["calm_ms"], found["storm_ms"]
        figures = {**self.figures, "publish_cpu_us": round(self.publish_cpu_us, 2)}
        return {**found, **figures, "held": self.is_held}


def run(attack: Attack, *, calm_s: float, storm_s: float, core: int | None = None) -> Outcome:
    """A broker, a bystander without and then with the attack, and SIGTERM in the middle of it."""
    outcome = Outcome(attack=attack.name)
    with serving(core) as (broker, port), Wire(port) as figures, Wire(port, version=4) as beside:
        figures.connect(unique("figures"))
        figures.subscribe("$SYS/broker/#")
        bystander = RoundTrips(beside)
        outcome.calm_ms = bystander.measure(calm_s, patience_s=END_S)
        with attacking(attack, port) as attacker:
            began, of_ended = cpu_s(broker.pid), children_cpu_s()
            begin(attacker)
            outcome.storm_ms = bystander.measure(storm_s)
            outcome.counters = counters(figures)
            outcome.stop_s, outcome.status = stop(broker)
            outcome.cpu_s = children_cpu_s() - of_ended - began
            outcome.sent = json.loads(attacker.communicate(timeout=END_S)[0])
    return outcome


def stop(broker: subprocess.Popen[str]) -> tuple[float, int]:
    """Sends SIGTERM; returns the seconds until the exit, and the exit status."""
    began = time.monotonic()
    broker.terminate()
    try:
        broker.wait(STOP_S)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()
    return time.monotonic() - began, broker.returncode


def cpu_s(pid: int) -> float:
    """CPU time that a process has taken."""
    with open(f"/proc/{pid}/stat") as stat:
        # utime and stime; the name before them may have blanks.
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    """CPU time that the processes that have ended took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def counters(figures: Wire) -> dict[str, int]:
    """The newest figures of `$SYS` that say what was dropped or refused, without the zeros."""
    newest = {each.topic or "": each.payload for each in figures.drain()}
    return {
        topic.removeprefix("$SYS/broker/"): int(value)
        for topic, value in newest.items()
        if topic.endswith(COUNTERS) and int(value)
    }


@contextlib.contextmanager
def serving(core: int | None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`mqttcore.serve` with one shard and default limits, perhaps on one core, and its port."""
    command = [sys.executable, "-m", "mqttcore.serve", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(  # noqa: S603 -- our own command
            [*command, "--log-level", "error"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **SETTINGS},
            preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
        )
        try:
            assert process.stdout is not None
            banner = process.stdout.readline()
            if "listening on " not in banner:
                log.seek(0)
                raise StormError(f"the broker does not start: {banner}{log.read().strip()}")
            place = banner.split("listening on ")[1].split(";")[0]
            yield process, int(place.rpartition(":")[2])
        finally:
            end(process)


@contextlib.contextmanager
def attacking(attack: Attack, port: int) -> Iterator[subprocess.Popen[str]]:
    """An attacker whose subscribers are there."""
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", "tests.storm.attacker", str(port), attack.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise StormError(f"{attack.name}: the attacker does not start")
        yield process
    finally:
        end(process)


def begin(attacker: subprocess.Popen[str]) -> None:
    """Lets the flood begin."""
    assert attacker.stdin is not None
    attacker.stdin.write("go\n")
    attacker.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process that is still there, and closes its pipes."""
    process.kill()
    process.communicate()
