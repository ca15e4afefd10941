"""The run: processes of a broker, each killed; clients that publish, leave and come back; the end.

The guarantee of the broker must hold: a message of QoS 1 or 2 that it acknowledged arrives,
at QoS 2 once; first arrivals of one publisher at one quality keep their order; a session that
CONNACK confirmed is there after the crash, with its subscriptions; a retained message that was
acknowledged is there, or a later one; a repeat at QoS 1 has DUP.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests import wire as mqtt
from tests.crash.peers import Changer, Keeper, MortalPublisher, MortalSubscriber, Pool
from tests.crash.process import ServerProcess
from tests.soak.ledger import Ledger, Message
from tests.soak.peers import Peer
from tests.wire import Wire, unique

TICK_S = 0.005
KEEPERS = 2
CHANGERS = 2
CHANGING = 8
MEMBERS = 3
POOL_SHARE = 0.1
KEPT_SHARE = 0.05
LEAVES = ("disconnect", "close", "abort", "takeover")
ABSENT = 2
ABSENT_SHARE = 0.5
"""Of the messages: those to subscribers that stay away for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often, how many, how fast."""

    cycles: int = 20
    pairs: int = 8
    messages_per_s: float = 2_000.0
    leaves_per_s: float = 20.0
    changes_per_s: float = 20.0
    life_s: tuple[float, float] = (0.05, 0.6)
    away_share: float = 0.3
    stop_share: float = 0.1
    absence_messages: tuple[int, int] = (1_100, 3_000)
    """Messages sent to a subscriber until it comes back from a long absence."""
    drain_s: float = 60.0
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run found."""

    ledger: Ledger
    seed: int
    pool: Ledger = field(default_factory=Pool)
    cycles: int = 0
    sessions_lost: int = 0
    retained_lost: int = 0
    subscriptions_lost: int = 0
    absences: int = 0
    """Long absences that ended: the queue was read by a client that came back."""
    faults: list[str] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Lost, doubled, reordered, sessions lost, unexplained."""
        ledger, pool = self.ledger, self.pool
        lost = len(ledger.lost()) + len(pool.lost()) + self.retained_lost
        doubled = ledger.repeats[2] + pool.repeats[2]
        sessions = self.sessions_lost + self.subscriptions_lost
        return lost, doubled, len(ledger.inversions), sessions, lost

    def lines(self) -> list[str]:
        """The report; its last line is the verdict."""
        sent = [self.ledger.count(qos) for qos in (1, 2)]
        figures = ", ".join(f"QoS {qos} {a}/{b}" for qos, (a, b) in enumerate(sent, 1))
        lost, doubled, reordered, sessions, unexplained = self.counts
        return [
            f"sent/arrived: {figures}; repeats at QoS 1 (allowed): {self.ledger.repeats[1]},"
            f" without DUP: {len(self.ledger.unmarked)};"
            f" long absences: {self.absences}; seed: {self.seed}",
            *(f"FAULT: {fault}" for fault in self.faults),
            f"{self.cycles} cycles: {lost} lost, {doubled} doubled, {reordered} reordered,"
            f" {sessions} sessions lost, {unexplained} unexplained",
        ]


class Crash:
    """Pairs of a publisher and a subscriber around one folder."""

    def __init__(self, plan: Plan, server: ServerProcess, ledger: Ledger | None = None) -> None:
        self.plan = plan
        self.server = server
        self.dice = random.Random(plan.seed)  # noqa: S311 -- a seed that can be repeated
        self.ledger = ledger or Ledger()
        self.outcome = Outcome(ledger=self.ledger, seed=plan.seed)
        base = unique("crash")
        self.publishers = [self.publisher(base, number) for number in range(plan.pairs)]
        self.subscribers = [self.subscriber(base, number) for number in range(plan.pairs)]
        self.state = f"{base}/state"
        self.keepers = [self.keeper(base, number) for number in range(KEEPERS)]
        self.changers = [self.changer(base, number) for number in range(CHANGERS)]
        self.members = [self.member(base, number) for number in range(MEMBERS)]
        self.pooled = self.pool_publisher(base)
        self.peers: list[Peer] = [
            *self.subscribers,
            *self.publishers,
            *self.keepers,
            *self.changers,
            *self.members,
            self.pooled,
        ]
        self.tasks: set[asyncio.Task[None]] = set()
        self.absent: dict[int, int] = {}

    def publisher(self, base: str, number: int) -> MortalPublisher:
        """The publisher of a pair; 3.1 cannot tell a lost session, so only some speak it."""
        return MortalPublisher(
            name=f"{base}-p{number}",
            version=(5, 4, 5, 3)[number % 4],
            port=0,
            ledger=self.ledger,
            number=number,
            topic=f"{base}/{number}/data",
            padding=b"x" * self.dice.choice((0, 100, 5_000)),
        )

    def keeper(self, base: str, number: int) -> Keeper:
        """A publisher of retained messages, with books of its own."""
        return Keeper(
            name=f"{base}-k{number}",
            version=(5, 4)[number % 2],
            port=0,
            ledger=Ledger(),
            number=number,
            topic=f"{self.state}/{number}",
        )

    def subscriber(self, base: str, number: int) -> MortalSubscriber:
        """The subscriber of a pair."""
        return MortalSubscriber(
            name=f"{base}-s{number}",
            version=(5, 4, 3, 5)[number % 4],
            port=0,
            ledger=self.ledger,
            filter=f"{base}/{number}/+" if number % 2 else f"{base}/{number}/data",
        )

    def changer(self, base: str, number: int) -> Changer:
        """A subscriber that changes its subscriptions, with books of its own."""
        return Changer(
            name=f"{base}-c{number}",
            version=(5, 4)[number % 2],
            port=0,
            ledger=Ledger(),
            filter=f"{base}/nothing",
            topics=tuple(f"{base}/changing/{number}/{each}" for each in range(CHANGING)),
        )

    def member(self, base: str, number: int) -> MortalSubscriber:
        """A member of a shared subscription."""
        return MortalSubscriber(
            name=f"{base}-m{number}",
            version=(5, 4, 5)[number % 3],
            port=0,
            ledger=self.outcome.pool,
            filter=f"$share/{base.replace('/', '-')}/{base}/pool/+",
        )

    def pool_publisher(self, base: str) -> MortalPublisher:
        """Who publishes to them."""
        return MortalPublisher(
            name=f"{base}-pool",
            version=5,
            port=0,
            ledger=self.outcome.pool,
            number=0,
            topic=f"{base}/pool/data",
        )

    async def run(self, progress: Callable[[str], None] = lambda _: None) -> Outcome:
        """All of it."""
        try:
            await self.first_life()
            began = time.monotonic()
            for cycle in range(self.plan.cycles):
                await self.one_life()
                self.outcome.cycles = cycle + 1
                if time.monotonic() - began > 2:
                    began = time.monotonic()
                    progress(f"{cycle + 1} of {self.plan.cycles} cycles")
            await self.last_life()
        finally:
            await self.end()
        return self.outcome

    async def first_life(self) -> None:
        """Everybody has a session and a subscription before anything is broken."""
        await self.begin(1.0)
        await self.until(lambda: all(each.is_online for each in self.peers), self.plan.drain_s)
        await self.until(
            lambda: all(
                each.is_subscribed for each in (*self.subscribers, *self.changers, *self.members)
            ),
            self.plan.drain_s,
        )

    async def one_life(self) -> None:
        """Publishes until the moment comes; then the broker is gone, and begins again."""
        end = time.monotonic() + self.dice.uniform(*self.plan.life_s)
        began = time.monotonic()
        done = [0, 0, 0]
        while (now := time.monotonic()) < end:
            plan = self.plan
            rates = (plan.messages_per_s, plan.leaves_per_s, plan.changes_per_s)
            for index, (rate, step) in enumerate(
                zip(rates, (self.publish_one, self.drop_one, self.change_one), strict=True)
            ):
                while done[index] < rate * (now - began):
                    done[index] += 1
                    step()
            await asyncio.sleep(TICK_S)
        # Somebody comes, goes or is replaced in the very moment.
        for _ in range(self.dice.randint(0, 3)):
            self.drop_one()
        if self.dice.random() < self.plan.stop_share:
            await asyncio.to_thread(self.server.stop)
        else:
            self.server.kill()
        await self.begin(1.0 - self.plan.away_share)

    async def begin(self, share: float) -> None:
        """Starts the broker and connects a part of the clients."""
        for peer in self.peers:
            peer.leave("abort")
        await asyncio.to_thread(self.server.start)
        self.end_absences()
        for peer in self.peers:
            peer.port = self.server.port
            if self.dice.random() < share and not self.is_absent(peer):
                self.connect(peer)

    def end_absences(self) -> None:
        """Calls back those to whom enough was sent, and sends others away instead."""
        done = [each for each, until in self.absent.items() if self.sent_to(each) >= until]
        for each in done:
            del self.absent[each]
            self.outcome.absences += 1
        here = [each for each in range(self.plan.pairs) if each not in {*self.absent, *done}]
        wanted = min(ABSENT, self.plan.pairs // 2) - len(self.absent)
        for each in self.dice.sample(here, min(wanted, len(here))):
            if self.subscribers[each].is_subscribed:
                more = self.dice.randint(*self.plan.absence_messages)
                self.absent[each] = self.sent_to(each) + more

    def sent_to(self, pair: int) -> int:
        """Messages that the publisher of a pair has sent."""
        return sum(self.ledger.flow(pair, qos).sent for qos in (1, 2))

    def is_absent(self, peer: Peer) -> bool:
        """Whether a subscriber stays away for longer than this run."""
        return any(peer is self.subscribers[each] for each in self.absent)

    def connect(self, peer: Peer) -> None:
        """Connects a peer, in a task of its own."""
        task = asyncio.get_running_loop().create_task(self.connected(peer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def connected(self, peer: Peer) -> None:
        """A connection that comes too late for this run is nobody's fault."""
        violations = peer.ledger.violations.copy()
        await peer.connect()
        if peer.line is None or peer.line.transport is None:
            peer.ledger.violations = violations

    def publish_one(self) -> None:
        """Anybody publishes, at QoS 1 or 2."""
        chance = self.dice.random()
        if chance < KEPT_SHARE:
            self.dice.choice(self.keepers).publish(1)
        elif chance < KEPT_SHARE + POOL_SHARE:
            self.pooled.publish(self.dice.choice((1, 2)))
        elif self.absent and self.dice.random() < ABSENT_SHARE:
            pair = self.dice.choice(list(self.absent))
            self.publishers[pair].publish(self.dice.choice((1, 2)))
        else:
            self.dice.choice(self.publishers).publish(self.dice.choice((1, 2)))

    def change_one(self) -> None:
        """Somebody subscribes to something more, or to something less."""
        changer = self.dice.choice(self.changers)
        changer.change(self.dice.choice(changer.topics))

    def drop_one(self) -> None:
        """Somebody leaves or comes back."""
        peer = self.dice.choice(self.peers)
        if peer.is_online:
            how = self.dice.choice(LEAVES)
            peer.leave(how)
            if how == "takeover":
                self.connect(peer)
        elif peer.line is None and not self.is_absent(peer):
            self.connect(peer)

    async def last_life(self) -> None:
        """Everybody comes back; nothing may stay under way."""
        for peer in self.peers:
            if not peer.is_online:
                self.connect(peer)
        await self.until(lambda: all(each.is_online for each in self.peers), self.plan.drain_s)
        await self.until(self.is_settled, self.plan.drain_s)
        await self.try_subscriptions()
        self.judge()

    def is_settled(self) -> bool:
        """Whether everything that was sent is acknowledged and has arrived."""
        is_idle = not any(changer.asked for changer in self.changers)
        is_acknowledged = not any(book.unacknowledged() for book in self.books)
        return is_idle and is_acknowledged and not (self.ledger.lost() or self.outcome.pool.lost())

    async def try_subscriptions(self) -> None:
        """Publishes to every topic that a changer ever named: only to what it holds it gets any."""
        if not all(changer.is_online and not changer.asked for changer in self.changers):
            return
        await asyncio.to_thread(self.publish_to_changers)

        def has_arrived() -> bool:
            return all(each.ledger.count(1)[1] >= len(each.held) for each in self.changers)

        await self.until(has_arrived, min(self.plan.drain_s, 10.0))
        for changer in self.changers:
            found = {message.sequence for message in changer.ledger.lost()}
            got = {topic for place, topic in enumerate(changer.topics) if place not in found}
            self.outcome.subscriptions_lost += len(got ^ changer.held)

    def publish_to_changers(self) -> None:
        """One message to each topic; those that nobody may get come first."""
        with Wire(self.server.port) as one:
            one.connect(unique("asks"))
            for changer in self.changers:
                messages = [changer.ledger.send(0, 1) for _ in changer.topics]
                for topic, message in sorted(
                    zip(changer.topics, messages, strict=True),
                    key=lambda pair: pair[0] in changer.held,
                ):
                    changer.ledger.acknowledge(message)
                    one.publish(topic, message.stamp(), qos=1)

    @property
    def books(self) -> list[Ledger]:
        """Those of the pairs and of the shared subscription, of the keepers and of the changers."""
        own = (*self.keepers, *self.changers)
        return [self.ledger, self.outcome.pool, *(each.ledger for each in own)]

    async def until(self, done: Callable[[], bool], limit_s: float) -> None:
        """Waits until something is so; a run that is not there in time is judged as it is."""
        deadline = time.monotonic() + limit_s
        while not done() and time.monotonic() < deadline:  # noqa: ASYNC110 -- no event says so
            await asyncio.sleep(TICK_S)

    def judge(self) -> None:
        """Collects everything that is wrong."""
        for book in self.books:
            # The DISCONNECT of a broker that is stopped in order.
            book.violations.pop("DISCONNECT 0x8B", None)
        for book in self.books[1:]:
            self.ledger.violations.update(book.violations)
            book.violations.clear()
        faults = [*self.ledger.faults(), *self.outcome.pool.faults()]
        self.outcome.sessions_lost = self.ledger.violations["session lost"]
        self.outcome.retained_lost = self.count_stale()
        if self.outcome.retained_lost:
            faults.append(f"{self.outcome.retained_lost} retained messages lost")
        if self.outcome.subscriptions_lost:
            faults.append(f"{self.outcome.subscriptions_lost} subscriptions are not as confirmed")
        away = sum(not peer.is_online for peer in self.peers)
        if away:
            faults.append(f"{away} clients could not come back")
        if not all(all(self.ledger.count(qos)) for qos in (1, 2)):
            faults.append("a quality was not tried at all")
        self.outcome.faults = faults

    def count_stale(self) -> int:
        """Topics whose retained message is older than the last one that was acknowledged."""
        kept: dict[str, int] = {}
        with Wire(self.server.port) as one:
            one.connect(unique("judge"))
            one.subscribe(f"{self.state}/+")
            one.send(mqtt.pingreq())
            while (packet := one.receive()).kind != mqtt.PINGRESP:
                if packet.kind == mqtt.PUBLISH:
                    kept[str(packet.topic)] = Message.of(packet.payload).sequence
        return sum(kept.get(each.topic, -1) < each.acknowledged() for each in self.keepers)

    async def end(self) -> None:
        """Leaves no connection, no task and no process behind."""
        for peer in self.peers:
            peer.leave("abort")
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.server.kill()
