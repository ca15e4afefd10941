"""The run itself: ramp up, churn, drain, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import wire as mqtt
from tests.soak.ledger import Ledger
from tests.soak.peers import Peer, Publisher, Subscriber
from tests.wire import Wire, unique

TICK_S = 0.02
RAMP_S = 60.0
LEAVES = ("disconnect", "close", "abort", "takeover")
# What a broker may grow under a steady load: its pools fill, its allocator keeps some.
GROWTH_SHARE = 1.2
GROWTH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how many, how fast."""

    seconds: float = 120.0
    clients: int = 2_000
    messages_per_s: float = 1_500.0
    leaves_per_s: float = 50.0
    strangers_per_s: float = 20.0
    padding_bytes: int = 100
    drain_s: float = 60.0
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run found."""

    ledger: Ledger
    seed: int
    connects: int = 0
    start_bytes: int = 0
    end_bytes: int = 0
    faults: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report: figures, then what is wrong."""
        counts = [self.ledger.count(qos) for qos in range(3)]
        sent = ", ".join(f"QoS {qos} {sent}/{came}" for qos, (sent, came) in enumerate(counts))
        lost, twice = len(self.ledger.lost()), self.ledger.repeats[2]
        return [
            f"sent/arrived: {sent}; connects: {self.connects}; seed: {self.seed}",
            f"lost QoS 1/2: {lost}, duplicated QoS 2: {twice},"
            f" RSS start/end: {self.start_bytes >> 10}/{self.end_bytes >> 10} KiB",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise ProcessLookupError(pid)


def all_online(peers: Sequence[Peer]) -> bool:
    """Whether everybody has been let in."""
    return all(peer.is_online for peer in peers)


class Soak:
    """Pairs of a publisher and a subscriber, and strangers that come and go."""

    def __init__(
        self, plan: Plan, port: int, memory: Callable[[], int], ledger: Ledger | None = None
    ) -> None:
        self.plan = plan
        self.port = port
        self.memory = memory
        self.dice = random.Random(plan.seed)  # noqa: S311 -- a seed that can be repeated
        self.ledger = ledger or Ledger()
        self.outcome = Outcome(ledger=self.ledger, seed=plan.seed)
        self.tasks: set[asyncio.Task[None]] = set()
        base = unique("soak")
        pairs = range(max(plan.clients // 2, 1))
        self.publishers = [self.publisher(base, number) for number in pairs]
        self.subscribers = [self.subscriber(base, number) for number in pairs]

    def publisher(self, base: str, number: int) -> Publisher:
        """The publisher of a pair."""
        return Publisher(
            name=f"{base}-p{number}",
            version=mqtt.VERSIONS[number % 3],
            port=self.port,
            ledger=self.ledger,
            number=number,
            topic=f"{base}/{number}/data",
            padding=b"x" * self.plan.padding_bytes,
        )

    def subscriber(self, base: str, number: int) -> Subscriber:
        """The subscriber of a pair."""
        return Subscriber(
            name=f"{base}-s{number}",
            version=mqtt.VERSIONS[number // 3 % 3],
            port=self.port,
            ledger=self.ledger,
            filter=f"{base}/{number}/+" if number % 2 else f"{base}/{number}/data",
        )

    @property
    def peers(self) -> Sequence[Peer]:
        """Everybody with a session."""
        return [*self.subscribers, *self.publishers]

    async def run(self) -> Outcome:
        """All of it, with a deadline on every part."""
        await self.ramp_up()
        await self.churn()
        await self.drain()
        self.judge()
        await self.end()
        return self.outcome

    async def ramp_up(self) -> None:
        """Connects everybody, subscribers first."""
        for group in (self.subscribers, self.publishers):
            for at in range(0, len(group), 100):
                await asyncio.gather(*(peer.connect() for peer in group[at : at + 100]))
            await self.until(partial(all_online, group), RAMP_S)
        await self.until(lambda: all(each.is_subscribed for each in self.subscribers), RAMP_S)
        self.outcome.connects = len(self.peers)

    async def until(self, done: Callable[[], bool], limit_s: float) -> None:
        """Waits until something is so; a run that is not there in time is judged as it is."""
        deadline = time.monotonic() + limit_s
        while not done() and time.monotonic() < deadline:  # noqa: ASYNC110 -- no event says so
            await asyncio.sleep(TICK_S)

    async def churn(self) -> None:
        """Publishes, drops connections, lets strangers in, until the time is over."""
        began = time.monotonic()
        warm = began + self.plan.seconds * 0.2
        done = [0, 0, 0]
        while (elapsed := time.monotonic() - began) < self.plan.seconds:
            rates = (self.plan.messages_per_s, self.plan.leaves_per_s, self.plan.strangers_per_s)
            steps = (self.publish_one, self.drop_one, self.let_a_stranger_in)
            for index, (rate, step) in enumerate(zip(rates, steps, strict=True)):
                while done[index] < rate * elapsed:
                    done[index] += 1
                    step()
            if not self.outcome.start_bytes and time.monotonic() > warm:
                self.outcome.start_bytes = self.memory()
            await asyncio.sleep(TICK_S)
        self.outcome.end_bytes = self.memory()

    def publish_one(self) -> None:
        """Anybody publishes, at any quality."""
        self.dice.choice(self.publishers).publish(self.dice.randrange(3))

    def drop_one(self) -> None:
        """Anybody leaves, and comes back within a second."""
        peer = self.dice.choice(self.peers)
        if not peer.is_online:
            return
        how = self.dice.choice(LEAVES)
        peer.leave(how)
        away_s = 0.0 if how == "takeover" else self.dice.random()
        asyncio.get_running_loop().call_later(away_s, self.spawn, peer)

    def spawn(self, peer: Peer) -> None:
        """Connects a peer again."""
        self.outcome.connects += 1
        self.keep(peer.connect())

    def let_a_stranger_in(self) -> None:
        """Somebody connects without a session, subscribes, and is gone."""
        self.outcome.connects += 1
        self.keep(self.stranger())

    def keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine as a task that nobody forgets."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stranger(self) -> None:
        """One short session, in any version, with any end."""
        version = self.dice.choice(mqtt.VERSIONS)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        topic = f"stranger/{self.dice.randrange(100)}"
        writer.write(mqtt.connect(unique("stranger"), version=version))
        writer.write(mqtt.subscribe((f"{topic}/#", 1), version=version))
        writer.write(mqtt.publish(topic, b"x", qos=1, packet_id=2, version=version))
        await reader.read(2)
        if self.dice.random() < 0.5:
            writer.write(mqtt.disconnect())
        elif self.dice.random() < 0.5:
            writer.transport.abort()
        writer.close()

    async def drain(self) -> None:
        """Brings everybody back and waits until nothing is under way any more."""
        await self.until(partial(all_online, self.peers), self.plan.drain_s)
        await self.until(self.is_settled, self.plan.drain_s)

    def is_settled(self) -> bool:
        """Whether everything that was sent is acknowledged and has arrived."""
        return not self.ledger.unacknowledged() and not self.ledger.lost()

    def judge(self) -> None:
        """Collects everything that is wrong."""
        faults = self.ledger.faults()
        away = sum(not peer.is_online for peer in self.peers)
        if away:
            faults.append(f"{away} clients could not come back")
        allowed = int(self.outcome.start_bytes * GROWTH_SHARE) + GROWTH_BYTES
        if self.outcome.end_bytes > allowed:
            faults.append(f"memory grew beyond {allowed >> 10} KiB")
        if not all(all(self.ledger.count(qos)) for qos in range(3)):
            faults.append("a quality was not tried at all")
        with Wire(self.port, version=4) as one:
            one.connect(unique("judge"))
            one.ping()
        self.outcome.faults = faults

    async def end(self) -> None:
        """Leaves no connection and no task behind."""
        for peer in self.peers:
            peer.leave("disconnect")
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
