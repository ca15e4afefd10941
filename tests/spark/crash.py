"""`python -m tests.spark.crash --kills 100`: stream to Delta while its processes are killed.

A client publishes at QoS 1. At random moments SIGKILL ends the broker (sometimes while it seals),
the JVM of Spark, Spark's driver, or a Python worker; whoever died is started again. At the end each
row of the stream stands in the table once, and each message that was acknowledged is among them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import deltalake
import pyarrow as pa
from mqttcore.errors import EndpointError
from mqttcore.streams.client import Client

from tests import wire as mqtt
from tests.crash.process import Life
from tests.wire import Wire, WireError

CONFIG = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "plant"
filter = ["plant/#"]
partitions = 3
"""
COPY_S = 240.0
WINDOW = 50
PAUSE_S = 0.1


class Publisher(threading.Thread):
    """Publishes numbers at QoS 1, and says which were acknowledged."""

    def __init__(self, life: Life) -> None:
        super().__init__(daemon=True)
        self.life = life
        self.acknowledged: set[int] = set()
        self.stopping = threading.Event()
        self.next = 0

    def run(self) -> None:
        """Connects again and again."""
        while not self.stopping.is_set():
            with contextlib.suppress(OSError, WireError, IndexError):
                self.publish()
            self.stopping.wait(0.05)

    def publish(self) -> None:
        """One connection's life."""
        with Wire(self.life.port) as wire:
            wire.connect(f"publisher-{self.next}")
            while not self.stopping.is_set():
                first = self.next
                self.next += WINDOW
                for number in range(first, first + WINDOW):
                    topic, payload = f"plant/{number % 100}", str(number).encode()
                    wire.send(mqtt.publish(topic, payload, qos=1, packet_id=number - first + 1))
                for _ in range(WINDOW):
                    found = wire.expect(mqtt.PUBACK)
                    self.acknowledged.add(first + (found.packet_id or 0) - 1)
                self.stopping.wait(PAUSE_S)


@dataclass(slots=True, kw_only=True)
class Copy:
    """Spark's driver, as a process."""

    data: pathlib.Path
    folder: pathlib.Path
    process: subprocess.Popen[str] | None = None
    java: int = 0
    log: list[str] = field(default_factory=list)

    def command(self, *more: str) -> list[str]:
        """How it is started."""
        places = [str(self.data), str(self.table), str(self.folder / "checkpoint")]
        return [sys.executable, "-m", "tests.spark.delta_copy", *places, *more]

    @property
    def table(self) -> pathlib.Path:
        """The Delta table."""
        return self.folder / "table"

    def start(self) -> None:
        """Starts it; a batch is done when this returns."""
        with (self.folder / "copy.log").open("a") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- our own command
                self.command(), stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.java = int(self.line("java").split()[1])
        self.line("batch")

    def line(self, word: str) -> str:
        """The next line that begins so."""
        assert self.process is not None
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith(word):
                return text
        raise RuntimeError(f"the copy ended: {(self.folder / 'copy.log').read_text()[-3000:]}")

    def workers(self) -> list[int]:
        """The Python workers of the JVM: the children of its daemons."""
        return [pid for child in children(self.java) for pid in children(child)]

    def end(self, *, hard: bool = True) -> None:
        """Ends driver and JVM."""
        if self.process is None:
            return
        for pid in (self.java, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if hard else signal.SIGTERM)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def finish(self) -> None:
        """Copies what is left."""
        with (self.folder / "copy.log").open("a") as log:
            subprocess.run(  # noqa: S603 -- our own command
                self.command("--once"), stdout=log, stderr=log, check=True, timeout=COPY_S
            )


def children(parent: int) -> list[int]:
    """The processes that a process started."""
    found = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
    every = pathlib.Path(f"/proc/{parent}/task").glob("*/children")
    with contextlib.suppress(OSError):
        texts = [path.read_text() for path in (every if found.exists() else ())]
        return [int(pid) for text in texts for pid in text.split()]
    return []


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: what is killed, and what became of the rows."""

    life: Life
    copy: Copy
    random: random.Random
    killed: collections.Counter[str] = field(default_factory=collections.Counter)

    def kills(self, count: int) -> Iterator[str]:
        """Kills somebody, so many times; yields who."""
        for _ in range(count):
            victim = self.random.choice(("broker", "sealing broker", "java", "driver", "worker"))
            threading.Event().wait(self.random.uniform(0.2, 3.0))
            self.kill(victim)
            self.killed[victim] += 1
            yield victim

    def kill(self, victim: str) -> None:
        """One kill, and a new life."""
        if victim == "sealing broker":
            sealing = threading.Thread(target=self.seal)
            sealing.start()
            threading.Event().wait(self.random.uniform(0.0, 0.05))
        if victim.endswith("broker"):
            self.life.crash()
        elif victim == "worker":
            for pid in self.copy.workers()[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self.kill_copy(victim)
        if victim == "sealing broker":
            sealing.join()
        self.revive()

    def kill_copy(self, victim: str) -> None:
        """The JVM or the driver dies; the other one notices, or is ended."""
        assert self.copy.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.copy.java if victim == "java" else self.copy.process.pid, signal.SIGKILL)
        self.copy.end()

    def revive(self) -> None:
        """A copy that ended, for what reason so ever, begins anew."""
        process = self.copy.process
        if process is None or process.poll() is not None:
            self.copy.end()
            self.copy.start()

    def seal(self) -> None:
        """Has the tail sealed, if the broker lives long enough."""
        with contextlib.suppress(EndpointError), Client(str(self.life.data)) as client:
            client.seal("plant")

    def verdict(self, acknowledged: set[int]) -> tuple[int, int]:
        """Rows of the stream and messages that are lost, and rows that stand there twice."""
        table = deltalake.DeltaTable(self.copy.table).to_pyarrow_table()
        places = collections.Counter(
            zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        )
        with Client(str(self.life.data)) as client:
            bounds = client.stream("plant").partitions
        rows = sum(bound.end for bound in bounds)
        told = {int(payload) for payload in table["payload"].cast(pa.string()).to_pylist()}
        lost = rows - len(places) + len(acknowledged - told)
        return lost, sum(count - 1 for count in places.values())


def main() -> int:
    """Exits with 1 when a row is lost or doubled."""
    made = argparse.ArgumentParser(prog="make spark-crash", description=__doc__)
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--seed", type=int, default=1)
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqttcore-spark-crash-") as folder:
        return crash(pathlib.Path(folder), options.kills, options.seed)


def crash(folder: pathlib.Path, kills: int, seed: int) -> int:
    """One run in a folder of its own."""
    (folder / "mqttcore.toml").write_text(CONFIG)
    life = Life(data=folder / "data", config=folder / "mqttcore.toml")
    copy = Copy(data=folder / "data", folder=folder)
    run = Run(life=life, copy=copy, random=random.Random(seed))  # noqa: S311 -- no secret
    publisher = Publisher(life)
    life.start()
    try:
        publisher.start()
        copy.start()
        for number, victim in enumerate(run.kills(kills), 1):
            acknowledged = len(publisher.acknowledged)
            print(f"kill {number}: {victim}, {acknowledged} acknowledged", file=sys.stderr)
        publisher.stopping.set()
        publisher.join(60)
        copy.end()
        copy.finish()
        lost, doubled = run.verdict(publisher.acknowledged)
    finally:
        publisher.stopping.set()
        copy.end()
        life.kill()
    print(f"{len(publisher.acknowledged)} messages acknowledged; killed: {dict(run.killed)}")
    print(f"{kills} kills: {lost} lost, {doubled} doubled")
    return int(lost > 0 or doubled > 0)


if __name__ == "__main__":
    sys.exit(main())
