"""`python -m tests.kafka.loss --kills 20`: broker and Kafka are killed while clients publish.

Publishers of QoS 1 and 2, with sessions that are kept, send again what was not acknowledged, as
the specification says. At random moments SIGKILL ends the broker, the Kafka node, or both, and
they are started again. At the end Spark reads the whole topic: each message that was acknowledged
is in it, and the first records of each publisher stand in the order in which they were sent.
Messages may be there twice: a crash between Kafka's acknowledgement and that of the broker cannot
be told from one before both.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field

import pyarrow.dataset as dataset

from tests.crash.peers import MortalPublisher
from tests.crash.process import ServerProcess
from tests.kafka.jars import MissingToolError
from tests.kafka.node import Node
from tests.kafka.read_back import copied
from tests.soak.ledger import Ledger, Message

TICK_S = 0.005
DRAIN_S = 120.0
TOPIC = "loss"
CONFIG = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true

[[streams]]
name = "{topic}"
filter = ["loss/#"]
log = "kafka"
partitions = 2

[kafka]
servers = ["{servers}"]
start_deadline_s = 60
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often, how many, how fast."""

    kills: int = 10
    publishers: int = 6
    messages_per_s: float = 400.0
    life_s: tuple[float, float] = (0.3, 2.0)
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run found."""

    kills: int
    seed: int
    acknowledged: int = 0
    records: int = 0
    lost: int = 0
    reordered: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report; its last line is the verdict."""
        return [
            f"{self.acknowledged} acknowledged, {self.records} records, of them {self.repeated}"
            f" repeats (allowed); seed: {self.seed}",
            *(f"FAULT: {fault}" for fault in self.faults),
            f"{self.kills} kills: {self.lost} lost, {self.reordered} reordered",
        ]


class Loss:
    """A node, a broker, and publishers."""

    def __init__(self, plan: Plan, folder: pathlib.Path) -> None:
        self.plan = plan
        self.folder = folder
        self.dice = random.Random(plan.seed)  # noqa: S311 -- a seed that can be repeated
        self.ledger = Ledger()
        self.node = Node(folder / "node")
        self.server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
        self.peers = [
            MortalPublisher(
                name=f"publisher-{number}",
                version=(5, 4)[number % 2],
                port=0,
                ledger=self.ledger,
                number=number,
                topic=f"loss/{number}",
                padding=b"x" * 100,
            )
            for number in range(plan.publishers)
        ]
        self.sending = True

    def run(self) -> Outcome:
        """All of it.

        Raises:
            MissingToolError: Java, Maven or a jar is missing.
        """
        self.node.start()
        try:
            asyncio.run(self.runs())
            copied(self.node.servers, TOPIC, self.folder / "copy")
        finally:
            self.server.kill()
            self.node.remove()
        return self.judge()

    async def runs(self) -> None:
        """Kills and begins again, as often as planned; then everything is acknowledged."""
        assert self.server.config is not None
        text = CONFIG.format(topic=TOPIC, servers=self.node.servers)
        self.server.config.write_text(text, encoding="utf-8")
        await self.begin()
        publishing = asyncio.create_task(self.publish())
        for _ in range(self.plan.kills):
            await asyncio.sleep(self.dice.uniform(*self.plan.life_s))
            await self.kill_one(self.dice.choice(("broker", "kafka", "both")))
        await asyncio.sleep(self.plan.life_s[1])
        self.sending = False
        await publishing
        await self.until_acknowledged()
        for peer in self.peers:
            peer.leave("disconnect")

    async def kill_one(self, victim: str) -> None:
        """Ends the victim without a word, and starts it again."""
        if victim != "kafka":
            self.server.kill()
        if victim != "broker":
            self.node.kill()
            # the publishers go on against a broker without Kafka meanwhile
            await asyncio.to_thread(self.node.start)
        if victim != "kafka":
            await self.begin()

    async def begin(self) -> None:
        """Starts the broker and connects everybody."""
        for peer in self.peers:
            peer.leave("abort")
        await asyncio.to_thread(self.server.start)
        for peer in self.peers:
            peer.port = self.server.port
            await peer.connect()

    async def publish(self) -> None:
        """Somebody publishes at QoS 1 or 2, so often a second; who lost the broker comes again."""
        began, done = time.monotonic(), 0
        while self.sending:
            while done < self.plan.messages_per_s * (time.monotonic() - began):
                done += 1
                self.dice.choice(self.peers).publish(self.dice.choice((1, 1, 1, 2)))
            await asyncio.sleep(TICK_S)

    async def until_acknowledged(self) -> None:
        """Waits until nothing is under way."""
        deadline = time.monotonic() + DRAIN_S
        while any(peer.under_way for peer in self.peers):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(TICK_S)

    def judge(self) -> Outcome:
        """Holds the records against what was acknowledged."""
        outcome = Outcome(kills=self.plan.kills, seed=self.plan.seed)
        files = [str(file) for file in (self.folder / "copy").rglob("*.parquet")]
        table = dataset.dataset(files, format="parquet").to_table()
        ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        for payload in ordered["payload"].to_pylist():
            self.ledger.arrive(Message.of(payload))
        flows = self.ledger.flows.values()
        outcome.acknowledged = sum(len(flow.acknowledged) for flow in flows)
        outcome.records = table.num_rows
        outcome.lost = len(self.ledger.lost())
        outcome.reordered = len(self.ledger.inversions)
        outcome.repeated = sum(self.ledger.repeats.values())
        found = self.ledger.violations
        outcome.faults = [f"{count} x {what}" for what, count in sorted(found.items())]
        if waiting := self.ledger.unacknowledged():
            outcome.faults.append(f"{waiting} messages never acknowledged")
        return outcome


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.loss")
    parser.add_argument("--kills", type=int, default=Plan().kills)
    parser.add_argument("--seed", type=int, default=Plan().seed)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqttcore-kafka-") as folder:
        try:
            plan = Plan(kills=options.kills, seed=options.seed)
            outcome = Loss(plan, pathlib.Path(folder)).run()
        except MissingToolError as missing:
            print(f"kafka: skipped: {missing}")
            return 0
    print("\n".join(outcome.lines()))
    return 1 if outcome.lost or outcome.reordered or outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
