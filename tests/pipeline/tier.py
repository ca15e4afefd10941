"""`make tier`: a pipeline with its tables in an object store, while both die again and again.

A client publishes at QoS 1. A pipeline (`python -m mqttcore.pipeline`) writes the stream to tables
in an S3-compatible store. At random moments SIGKILL ends the pipeline's driver with its JVM, the
JVM alone, or a Python worker; and the store is away for a while: it refuses connections, or it
takes requests and answers nothing. A pipeline that ends is started again. At the end each row is in
bronze once, and in silver or quarantine once unless it repeats another one; windows of gold are
those of silver.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tests.crash.process import ServerProcess
from tests.pipeline import store_server
from tests.pipeline.driver import Driver
from tests.pipeline.gate import Gate, Outages
from tests.pipeline.machines import SILVER, Machines
from tests.pipeline.tier_books import Verdict, read_verdict
from tests.spark.crash import CONFIG, commit, workers_of

FILE: Final = """\
name = "tier"
tables = "s3a://lake/tier"
checkpoints = "state"
storage = {storage}
trigger = "1 second"

[source]
path = "data"
stream = "plant"
rows_per_batch = 5_000

[spark]
master = "local[1,4]"
memory = "512m"
conf = ["spark.ui.enabled=false"]

{silver}"""
LAST_RUN: Final = "tier.json"
VICTIMS: Final = ("driver", "driver", "worker", "worker", "java")
BATCH_S: Final = 180.0
"""How long a batch is waited for before the next kill; an outage may hold it up."""
GOES_S: Final = 120.0
"""How long a driver whose JVM was killed may take to say so."""
OUTAGE_S: Final = (2.0, 20.0)
REST_S: Final = 600.0
"""How long the last run may take to read the rest."""
RUNS: Final = 5
"""How often the last run may fail."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: who dies when."""

    file: pathlib.Path
    random: random.Random
    outages: Outages
    told: collections.Counter[str]
    """What happened, by name."""
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        self.driver = Driver.spawn(self.file)

    def events(self, kills: int, outages: int) -> Iterator[str]:
        """Kills, and takes the store away, so many times, in any order; yields what it did."""
        plan = ["kill"] * kills + ["outage"] * outages
        self.random.shuffle(plan)
        for kind in plan:
            if self.random.random() < 0.7:
                self.driver.wait_for_batch(BATCH_S)
            threading.Event().wait(self.random.uniform(0.0, 4.0))
            self.revive()
            yield self.outages.begin() if kind == "outage" else self.kill()

    def revive(self) -> None:
        """A pipeline that ended by itself is started again, as a service manager does."""
        if not self.driver.is_alive:
            self.told["ended"] += 1
            self.driver = Driver.spawn(self.file)

    def kill(self) -> str:
        """One kill, and a restart of what was killed."""
        victim, java = self.random.choice(VICTIMS), self.driver.java
        workers = workers_of(java) if java else []
        if java is None or victim == "driver" or (victim == "worker" and not workers):
            victim = "driver"
            self.driver.kill()
            self.driver = Driver.spawn(self.file)
        elif victim == "java":
            os.kill(java, signal.SIGKILL)
            self.see_end()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(workers), signal.SIGKILL)
        self.told[victim] += 1
        return victim

    def see_end(self) -> None:
        """A driver without a JVM has to end by itself; it is replaced."""
        try:
            self.driver.process.wait(GOES_S)
        except subprocess.TimeoutExpired:
            self.told["hung"] += 1
            self.driver.kill()
        self.driver = Driver.spawn(self.file)

    def finish(self) -> None:
        """Ends the pipeline in order, and reads what is left.

        Raises:
            RuntimeError: a run fails again and again.
        """
        self.outages.wait()
        self.driver.process.terminate()
        self.driver.process.wait(REST_S)
        for _ in range(RUNS):
            self.driver = Driver.spawn(self.file, "--once")
            if self.driver.process.wait(REST_S) == 0:
                return
            self.told["ended"] += 1
        raise RuntimeError(self.file.with_suffix(".log").read_text()[-3000:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    kills: int
    outages: int
    seconds: float
    told: Mapping[str, int]
    verdict: Verdict

    def figures(self) -> dict[str, Any]:
        """As one flat object."""
        run = {"kills": self.kills, "outages": self.outages, "seconds": round(self.seconds)}
        return {"commit": commit(), **run, **asdict(self.verdict), "told": dict(self.told)}


def torment(folder: pathlib.Path, kills: int, outages: int, seed: int) -> Outcome:
    """One run in a folder of its own."""
    (folder / "mqttcore.toml").write_text(CONFIG)
    server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
    server.start()
    machines = Machines(server)
    try:
        with store_server.store("lake", folder / "store.log") as options:
            port = urlsplit(options["AWS_ENDPOINT_URL"]).port
            assert port is not None
            with Gate(port) as gate:
                began = time.monotonic()
                told = live_on(folder, options, gate, machines, (kills, outages, seed))
                seconds = time.monotonic() - began
            found = read_verdict(server.data, options, machines.acknowledged)
    finally:
        machines.stopping.set()
        server.kill()
    return Outcome(kills=kills, outages=outages, seconds=seconds, told=told, verdict=found)


def live_on(
    folder: pathlib.Path,
    options: Mapping[str, str],
    gate: Gate,
    machines: Machines,
    plan: tuple[int, int, int],
) -> Mapping[str, int]:
    """Has machines report and the pipeline die; returns when all is in the tables."""
    kills, outages, seed = plan
    through = {**options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}"}
    file = folder / "pipeline.toml"
    storage = json.dumps([f"{name}={value}" for name, value in through.items()])
    file.write_text(FILE.format(storage=storage, silver=SILVER))
    machines.start()
    chance = random.Random(seed)  # noqa: S311 -- no secret
    told: collections.Counter[str] = collections.Counter()
    away = Outages(gate=gate, random=chance, lengths_s=OUTAGE_S, told=told)
    run = Run(file=file, random=chance, outages=away, told=told)
    try:
        began = time.monotonic()
        for number, what in enumerate(run.events(kills, outages), 1):
            print(f"{number}: {what}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        machines.end()
        run.finish()
    finally:
        run.driver.kill()
    return run.told


def main() -> int:
    """Exits with 1 when a row is lost or doubled, or a window is wrong."""
    made = argparse.ArgumentParser(prog="make tier", description=__doc__)
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--outages", type=int, default=5)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--folder", type=pathlib.Path, help="where logs stay; by default none do")
    options = made.parse_args()
    with contextlib.ExitStack() as stack:
        folder: pathlib.Path | None = options.folder
        if folder is None:
            kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="mqttcore-tier-"))
            folder = pathlib.Path(kept)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = torment(folder, options.kills, options.outages, options.seed)
    line = json.dumps(outcome.figures())
    path = pathlib.Path(__file__).resolve().parents[2] / ".make" / LAST_RUN
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    print(line)
    return int(not outcome.verdict.is_good)


if __name__ == "__main__":
    sys.exit(main())
