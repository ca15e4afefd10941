"""`python -m tests.spark.crash --kills 100`: a stream to Delta and MQTT while processes are killed.

A client publishes at QoS 1. Spark copies its stream to a Delta table, and publishes a message for
each row, which a subscriber with a session hears at QoS 2. At random moments SIGKILL ends the
broker (sometimes while it seals), the JVM of Spark, Spark's driver, or a Python worker; who died is
started again, and sometimes Spark's last commit marker is removed before that. At the end each row
of the stream stands in the table once and was heard once, and each message that was acknowledged is
among them.
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
from collections.abc import Iterator
from dataclasses import dataclass, field

import deltalake
import pyarrow as pa
from mqttcore.errors import EndpointError
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.spark.copies import TOPIC, Places
from tests.spark.peers import Publisher, Subscriber

CONFIG = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "plant"
filter = ["plant/#"]
partitions = 3

[limits]
queue_messages = 1_000_000
"""
LAST_RUN = "spark-crash.json"
"""What the last run came to, for `make bench-spark`."""
HEARD_S = 60.0
VICTIMS = ("broker", "broker", "sealer", "sealer", "worker", "worker", "java", "driver")
"""A JVM takes longest to come back, so it dies least often."""


class SparkEndedError(RuntimeError):
    """A driver ended that nobody killed."""


@dataclass(slots=True, kw_only=True)
class Spark:
    """One driver with its JVM."""

    process: subprocess.Popen[str]
    log: pathlib.Path
    java: int = 0

    def line(self, word: str) -> str:
        """The next line that begins so."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith(word):
                return text
        raise SparkEndedError(self.log.read_text()[-3000:])

    def begin(self, how: str) -> None:
        """Has it copy, ``go`` for ever or ``once``; returns when its queries run."""
        self.java = self.java or int(self.line("java").split()[1])
        assert self.process.stdin is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        self.line("started")

    def end(self) -> None:
        """Kills what is left of it."""
        for pid in (self.java, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid or self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@dataclass(slots=True, kw_only=True)
class Copies:
    """The Spark that copies, and one that stands by, since a JVM takes its time to start."""

    places: Places
    log: pathlib.Path
    active: Spark = field(init=False)
    next: Spark = field(init=False)

    def __post_init__(self) -> None:
        self.active, self.next = self.spawn(), self.spawn()

    def spawn(self) -> Spark:
        """A driver that waits."""
        command = [sys.executable, "-m", "tests.spark.copies"]
        with self.log.open("a") as log:
            process = subprocess.Popen(  # noqa: S603 -- our own command
                [*command, str(self.places.data), str(self.places.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return Spark(process=process, log=self.log)

    def replace(self) -> None:
        """The next one goes on where the one that died was."""
        self.active.end()
        self.active, self.next = self.next, self.spawn()
        self.active.begin("go")

    def finish(self) -> None:
        """Copies what is left."""
        self.active.end()
        self.next.begin("once")
        self.next.line("done")

    def end(self) -> None:
        """Ends all of it."""
        self.active.end()
        self.next.end()


def workers_of(java: int) -> list[int]:
    """The Python workers of a JVM: the children of its daemons."""
    return [pid for child in children(java) for pid in children(child)]


def children(parent: int) -> list[int]:
    """The processes that a process started."""
    found: list[int] = []
    for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found += map(int, path.read_text().split())
    return found


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: who is killed, and what became of the rows."""

    server: ServerProcess
    copies: Copies
    subscriber: Subscriber
    random: random.Random
    killed: collections.Counter[str] = field(default_factory=collections.Counter)

    def kills(self, count: int) -> Iterator[str]:
        """Kills somebody, so many times; yields who."""
        for _ in range(count):
            victim = self.random.choice(VICTIMS)
            threading.Event().wait(self.random.uniform(0.2, 2.0))
            self.kill(victim)
            self.killed[victim] += 1
            yield victim

    def kill(self, victim: str) -> None:
        """One kill, and a restart."""
        if victim == "broker":
            self.server.crash()
        elif victim == "sealer":
            kill_broker(self.server, sealing_for_s=self.random.uniform(0.0, 0.05))
        elif victim == "worker":
            workers = workers_of(self.copies.active.java)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(workers or [self.copies.active.java]), signal.SIGKILL)
        else:
            self.kill_spark(java=victim == "java")
        if self.copies.active.process.poll() is not None:
            self.copies.replace()

    def kill_spark(self, *, java: bool) -> None:
        """After its first batch of one query or of the other: a run has to bring something."""
        active, heard = self.copies.active, len(self.subscriber.heard)
        try:
            active.line("batch")
        except SparkEndedError as error:
            # its JVM let no batch pass any more
            print(f"Spark gave up: {error}", file=sys.stderr)
            self.killed["gave up"] += 1
        if self.random.random() < 0.5:
            deadline = time.monotonic() + HEARD_S
            while len(self.subscriber.heard) == heard and time.monotonic() < deadline:
                threading.Event().wait(0.05)
        threading.Event().wait(self.random.uniform(0.0, 1.0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(active.java if java else active.process.pid, signal.SIGKILL)
        active.end()
        if self.random.random() < 0.5:
            self.killed["commit marker"] += self.copies.places.forget_commits()


def kill_broker(server: ServerProcess, *, sealing_for_s: float) -> None:
    """A moment after it began to seal."""
    thread = threading.Thread(target=seal, args=(server,))
    thread.start()
    threading.Event().wait(sealing_for_s)
    server.crash()
    thread.join()


def seal(server: ServerProcess) -> None:
    """Has the tail sealed, if the broker lives long enough."""
    with contextlib.suppress(EndpointError), StreamClient(str(server.data)) as client:
        client.seal("plant")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the rows."""

    rows: int
    lost: int
    doubled: int
    said: str


def verdict(places: Places, acknowledged: set[int], subscriber: Subscriber) -> Verdict:
    """Holds the table and what was heard against the stream."""
    with StreamClient(str(places.data)) as client:
        bounds = client.stream("plant").partitions
    rows = {f"{number}/{n}" for number, bound in enumerate(bounds) for n in range(bound.end)}
    listen(subscriber, len(rows))
    table = deltalake.DeltaTable(places.table).to_pyarrow_table()
    pairs = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    copied = collections.Counter(f"{partition}/{offset}" for partition, offset in pairs)
    told = {int(payload) for payload in table["payload"].cast(pa.string()).to_pylist()}
    heard = subscriber.heard
    lost = [len(rows - set(copied)), len(rows - set(heard)), len(acknowledged - told)]
    doubled = [count.total() - len(count) for count in (copied, heard)]
    lost.append(subscriber.sessions_lost)
    said = (
        f"{len(rows)} rows; not in the table {lost[0]}, not heard {lost[1]}, acknowledged and not"
        f" there {lost[2]}, sessions lost {lost[3]}; twice in the table {doubled[0]}, twice heard"
        f" {doubled[1]}"
    )
    return Verdict(len(rows), sum(lost), sum(doubled), said)


def listen(subscriber: Subscriber, count: int) -> None:
    """Returns when so much was heard, or nothing more comes for a minute."""
    heard, deadline = -1, 0.0
    while len(subscriber.heard) < count:
        if len(subscriber.heard) > heard:
            heard, deadline = len(subscriber.heard), time.monotonic() + HEARD_S
        elif time.monotonic() > deadline:
            return
        threading.Event().wait(0.1)


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
    server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
    server.start()
    publisher, subscriber = Publisher(server), Subscriber(server, TOPIC)
    copies = Copies(places=Places(server.data, folder / "copies"), log=folder / "spark.log")
    run = Run(server=server, copies=copies, subscriber=subscriber, random=random.Random(seed))  # noqa: S311 -- no secret
    try:
        subscriber.start()
        subscriber.is_there.wait(60)
        publisher.start()
        copies.active.begin("go")
        began = time.monotonic()
        for number, victim in enumerate(run.kills(kills), 1):
            seconds, heard = time.monotonic() - began, len(subscriber.heard)
            print(f"kill {number}: {victim}, {heard} heard, {seconds:.0f} s", file=sys.stderr)
        publisher.end()
        copies.finish()
        found = verdict(copies.places, publisher.acknowledged, subscriber)
        seconds = time.monotonic() - began
    finally:
        publisher.stopping.set()
        subscriber.stopping.set()
        copies.end()
        server.kill()
    print(f"{len(publisher.acknowledged)} messages acknowledged; killed: {dict(run.killed)}")
    print(f"{found.said}; {seconds / kills:.1f} s a kill")
    keep(found, kills, seconds)
    print(f"{kills} kills: {found.lost} lost, {found.doubled} doubled")
    return int(found.lost > 0 or found.doubled > 0)


def keep(found: Verdict, kills: int, seconds: float) -> None:
    """Writes down what the run came to, and of which commit."""
    path = pathlib.Path(__file__).resolve().parents[2] / ".make" / LAST_RUN
    path.parent.mkdir(exist_ok=True)
    run = {"commit": commit(), "kills": kills, "seconds": seconds}
    of_rows = {"rows": found.rows, "lost": found.lost, "doubled": found.doubled}
    path.write_text(json.dumps({**run, **of_rows}))


def commit() -> str:
    """The commit that is checked out."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 -- the user's git
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
