"""What is measured, and what has to come out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

OURS: Final = "ours"
MOSQUITTO: Final = "mosquitto"
BESIDE: Final = "beside"
"""What ours is compared with where that is not Mosquitto: another build of it, or another load."""
CEILING: Final = "ceiling"
"""A bare forwarder between sockets: `mqttcore-ceiling`."""
UNKEPT: Final = "unkept"
"""Ours without a data folder, under the load of a row with one."""
BOUNDS: Final = frozenset({CEILING, UNKEPT})
"""What ours is compared with in lines of their own, as a bound."""
BEST: Final = "best"
"""Stands for the broker with the highest figure, ours left out."""
SCALES: Final = {"ms": 1e-3}
"""Times are measured in microseconds."""


@dataclass(slots=True)
class Measured:
    """Every round of one row, by broker."""

    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, broker: str, line: dict[str, Any]) -> None:
        """One round more."""
        self.rounds.setdefault(broker, []).append(line)

    def median(self, broker: str, key: str) -> float | None:
        """The median of one figure over the rounds; `None` when it was not measured."""
        values = self.values(broker, key)
        return statistics.median(values) if values else None

    def values(self, broker: str, key: str) -> list[float]:
        """One figure of all rounds in which it was measured."""
        broker = self.name(broker, key)
        return [line[key] for line in self.rounds.get(broker, ()) if line.get(key) is not None]

    def name(self, broker: str, key: str) -> str:
        """The broker's name; of `BEST`, that with the highest median of a figure."""
        if broker != BEST:
            return broker
        others = self.rounds.keys() - {OURS, BESIDE} - BOUNDS
        return max(sorted(others), key=lambda other: self.median(other, key) or 0, default=BEST)

    def ratios(self, key: str, other: str) -> list[float]:
        """Our figure over another broker's, round by round: rounds of one number are neighbours."""
        other = self.name(other, key)
        ours, theirs = self.rounds.get(OURS, ()), self.rounds.get(other, ())
        pairs = [(mine.get(key), its.get(key)) for mine, its in zip(ours, theirs, strict=False)]
        return [mine / its for mine, its in pairs if mine is not None and its]

    def total(self, key: str) -> int:
        """The sum of one of our counts over the rounds."""
        return sum(line.get(key, 0) for line in self.rounds.get(OURS, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound for one of our figures: so many times another one, and so much more."""

    plus: float = 0.0
    times: float = 0.0
    of: tuple[str, str] | None = None
    """Broker and key of the other figure."""
    or_of: tuple[str, str] | None = None
    """Those of one more; the lesser of both counts."""
    is_floor: bool = False

    def bound(self, measured: Measured) -> float | None:
        """The bound; `None` when the other figure was not measured."""
        if self.of is None:
            return self.plus
        figures = [measured.median(*of) for of in (self.of, self.or_of) if of is not None]
        others = [figure for figure in figures if figure is not None]
        return self.times * min(others) + self.plus if len(others) == len(figures) else None

    def holds(self, value: float | None, bound: float | None, ratio: float | None) -> bool | None:
        """Whether it is kept to, by the ratio of neighbouring rounds where it is one."""
        if ratio is not None and self.of is not None and not self.plus:
            return self.is_met(ratio, self.times)
        return self.is_met(value, bound)

    def is_met(self, value: float | None, bound: float | None) -> bool | None:
        """Whether it is kept to; `None` when something was not measured."""
        if value is None or bound is None:
            return None
        return value >= bound if self.is_floor else value <= bound


def of_rate(broker: str, times: float | None) -> Goal | None:
    """So many times the rate of another broker; `None` without a number."""
    if times is None:
        return None
    return Goal(times=times, of=(broker, "messages_per_s"), is_floor=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a row, a line of the report."""

    name: str = ""
    """Instead of the row's."""
    key: str = "messages_per_s"
    unit: str = "msg/s"
    goal: Goal | None = None
    stretch: Goal | None = None
    """What would be better still."""
    beside: str = ""
    """The bound that it is compared with, instead of other brokers."""
    over: Callable[[Iterable[float]], float] = statistics.median
    """What is made of the rounds."""

    def ratios(self, measured: Measured, other: str) -> tuple[float, float, float] | None:
        """The lowest ratio of ours to another's in a round, the median and the highest."""
        if self.over is not statistics.median:
            return None
        ratios = measured.ratios(self.key, other)
        return (min(ratios), statistics.median(ratios), max(ratios)) if ratios else None

    def value(self, measured: Measured, broker: str) -> float | None:
        """The figure of one broker; `None` when it was not measured."""
        values = measured.values(broker, self.key)
        return self.over(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One load and what is read of it."""

    name: str
    load: tuple[str, ...]
    figures: tuple[Figure, ...] = (Figure(),)
    beside: tuple[str, ...] = ()
    """The load that ours is compared with, under the same broker."""
    has_disk: bool = False
    """The load generator is told a folder, whose disk it syncs in turn with the broker."""
    tls: bool = False
    """Clients and broker speak TLS; ``beside`` does not."""
    settings: str = ""
    """A configuration of ours, in TOML; ``$http`` and ``$token`` are replaced (`Observer`)."""
    beside_settings: str = ""
    """The configuration under ``beside``."""
    has_ceiling: bool = False
    """The bare forwarder carries this load, too."""
    has_unkept: bool = False
    """Ours without a data folder carries this load, too."""
    has_both_cores: bool = False
    """Ours may use the core of the load generator as well; not under ``beside``."""
    is_observed: bool = False
    """An operator looks on (`Observer`); not under ``beside``."""
    reads_log: bool = False
    """Our broker is killed behind the load, and its log is measured."""
    rounds: int | None = None
    """Instead of those of the others."""

    def names(self) -> list[str]:
        """What its lines are called."""
        return [figure.name or self.name for figure in self.figures]


def plain(
    name: str,
    *load: str,
    goal: float | None = None,
    stretch: float | None = None,
    ceiling: float | None = None,
    of: str = MOSQUITTO,
) -> Row:
    """A row of messages a second: how many times another broker's, and which share of the ceiling.

    The share of the ceiling is a goal of its own.
    """
    figures = [Figure(goal=of_rate(of, goal), stretch=of_rate(of, stretch))]
    if ceiling is not None:
        share = of_rate(CEILING, ceiling)
        figures.append(Figure(name=f"{name}, ceiling", goal=share, beside=CEILING))
    return Row(name=name, load=load, figures=tuple(figures), has_ceiling=ceiling is not None)


def aliases(name: str, *load: str) -> Row:
    """A row whose subscribers take topic aliases, beside the same load without any."""
    return Row(name=name, load=(*load, "--aliases", "10"), beside=(*load, "--aliases", "0"))


ALL_LIMITS: Final = """\
[limits]
exempt_addresses = []
address_connects_per_second = 100_000
messages_per_second = 1_000_000_000
anonymous_messages_per_second = 1_000_000_000
bytes_per_second = 1_000_000_000
"""
"""Each message and byte of a client takes from a rate, which is never reached."""
NO_LIMITS: Final = """\
[limits]
connects_per_second = 0
address_connections = 0
address_pending_connections = 0
address_connects_per_second = 0
flapping_connects_per_minute = 0
control_packets_per_second = 0
messages_per_second = 0
anonymous_messages_per_second = 0
bytes_per_second = 0
retained_bytes_per_second = 0
"""
OBSERVED: Final = """\
sys_interval_s = 1.0
[log]
format = "json"
[http]
address = "127.0.0.1:$http"
token_file = "$token"
[[metrics.topics]]
name = "load"
filter = "load/#"
"""
NOT_OBSERVED: Final = "sys_interval_s = 0.0\n"
QOS_1: Final = ("--qos", "1")
BESIDE_PLAIN: Final = Goal(times=0.5, of=(BESIDE, "messages_per_s"), is_floor=True)
CONNECTS: Final = (
    Figure(unit="1/s"),
    Figure(name="TLS handshakes, CPU of each", key="broker_cpu_us", unit="us"),
)

BESIDE_FILTERS: Final = Goal(times=0.97, of=(BESIDE, "messages_per_s"), is_floor=True)


def at_most(broker: str, key: str, times: float) -> Goal:
    """So many times a figure of another broker, or of another load, at most."""
    return Goal(times=times, of=(broker, key))


SHARDS: Final = Figure(
    key="broker_cpu_us",
    unit="us",
    goal=at_most(BESIDE, "broker_cpu_us", 1.1),
    stretch=at_most(BESIDE, "broker_cpu_us", 1.05),
)


def large(name: str, *load: str) -> Row:
    """A row of messages of 1 MB between 10 pairs, beside the best of the other brokers."""
    pairs = ("pairs", "--publishers", "10", "--payload", "1000000")
    return plain(name, *pairs, *load, goal=1.2, stretch=2, of=BEST)


def shards(name: str, *load: str) -> Row:
    """A row with two shards on the one core, beside one shard."""
    return Row(
        name=f"{name}, 2 shards or 1",
        load=load,
        beside=load,
        settings="shards = 2\n",
        beside_settings="shards = 1\n",
        figures=(SHARDS,),
    )


def cores(name: str, *load: str) -> Row:
    """A row with two shards on two cores, beside one shard on one core.

    The load generator has a core, and shares it with the broker: see its CPU time, too.
    """
    name = f"{name}, 2 shards on 2 cores or 1"
    cpu = Figure(name=f"{name}, CPU", key="broker_cpu_us", unit="us")
    return replace(shards(name, *load), name=name, has_both_cores=True, figures=(Figure(), cpu))


def each(name: str, *load: str, most: float | None = None, stretch: float | None = None) -> Row:
    """A row of resident bytes."""
    goals = [None if bound is None else Goal(plus=bound) for bound in (most, stretch)]
    figure = Figure(key="bytes_each", unit="bytes", goal=goals[0], stretch=goals[1])
    return Row(name=name, load=load, figures=(figure,), rounds=1)


def filters(name: str, *load: str) -> Row:
    """A row of resident bytes, and of the processor time of SUBSCRIBE for each filter."""
    cpu = Figure(name="SUBSCRIBE, CPU of a filter", key="broker_cpu_us", unit="us")
    row = each(name, *load, most=150, stretch=100)
    return replace(row, figures=(*row.figures, cpu), rounds=None)


def retained(name: str, *load: str) -> Row:
    """Resident bytes of a retained message, and the time in which a new subscriber has all.

    Both may not get worse (issue 18). The bound of the bytes is the first measurement of this row,
    without optimisation: the 274 bytes of the issue are of other topics. The time is half of that
    of Mosquitto at most.
    """
    replay = Figure(
        name=f"{name} to #", key="replay_s", unit="s", goal=at_most(MOSQUITTO, "replay_s", 0.5)
    )
    row = each(name, *load, most=310)
    return replace(row, figures=(*row.figures, replay), rounds=None)


ROWS: Final = (
    plain("50 pairs, QoS 0, 1 in flight", "pairs", "--window", "1", goal=1.5, ceiling=0.92),
    plain("50 pairs, QoS 0, 16 in flight", "pairs", "--window", "16", goal=13, ceiling=0.75),
    plain("50 pairs, QoS 0, 256 in flight", "pairs", "--window", "256", goal=30, stretch=50),
    plain("50 pairs, QoS 0, 16, 1 KiB", "pairs", "--payload", "1024", goal=11, stretch=14),
    large("10 pairs, QoS 0, 1 in flight, 1 MB", "--window", "1"),
    large("10 pairs, QoS 1, 4 in flight, 1 MB", *QOS_1, "--window", "4"),
    plain("50 pairs, QoS 1, 16 in flight", "pairs", *QOS_1, goal=12, stretch=15),
    plain("50 pairs, QoS 2, 16 in flight", "pairs", "--qos", "2", goal=15, stretch=20),
    plain("50 alone, QoS 2, own topic, 1", "own", "--qos", "2", "--window", "1"),
    plain("50 alone, QoS 2, own topic, 16", "own", "--qos", "2"),
    plain("fan-out 1 to 1000, 1 in flight", "fanout", "--window", "1", goal=2.1, ceiling=0.9),
    plain("fan-out 1 to 1000, 16 in flight", "fanout", "--window", "16", goal=20, ceiling=0.75),
    plain("200 publishers to 4 wildcards, 16", "fanin", "--window", "16", goal=20, stretch=25),
    plain("shared group, 100 to 10, 16", "shared", "--window", "16", goal=11, stretch=14),
    Row(
        name="50 pairs, QoS 1, 5,000 msg/s",
        # Longer than other rows, so that the p99 is that of more messages.
        load=("pairs", *QOS_1, "--rate", "5000", "--seconds", "5"),
        figures=(
            Figure(
                name="50 pairs, QoS 1, 5,000 msg/s, p99",
                key="p99_us",
                unit="us",
                goal=at_most(MOSQUITTO, "p99_us", 1),
                stretch=at_most(MOSQUITTO, "p99_us", 0.8),
            ),
            Figure(
                name="50 pairs, QoS 1, 5,000 msg/s, CPU of each",
                key="broker_cpu_us",
                unit="us",
                goal=at_most(MOSQUITTO, "broker_cpu_us", 0.85),
                stretch=at_most(MOSQUITTO, "broker_cpu_us", 0.7),
            ),
        ),
    ),
    each("idle connection", "idle", "--filters", "0", stretch=734),
    each("idle connection, one wildcard filter", "idle", most=1_500, stretch=734),
    filters("100,000 wildcard filters", "filters"),
    retained("900,000 retained messages", "retained"),
    Row(
        name="50 pairs, QoS 0, 16, filters or none",
        load=("pairs", "--filters", "100000"),
        beside=("pairs",),
        figures=(Figure(goal=BESIDE_FILTERS),),
    ),
    Row(
        name="connects",
        load=("connects",),
        figures=(
            Figure(unit="1/s", goal=of_rate(MOSQUITTO, 1), stretch=of_rate(MOSQUITTO, 1.5)),
            Figure(
                name="connects, CPU of each",
                key="broker_cpu_us",
                unit="us",
                goal=at_most(MOSQUITTO, "broker_cpu_us", 0.9),
            ),
        ),
    ),
    shards("fan-out, 16", "fanout", "--window", "16"),
    shards("shared group, 16", "shared", "--window", "16"),
    cores("50 pairs, QoS 0, 16", "pairs"),
    cores("fan-out, 16", "fanout", "--window", "16"),
    aliases("50 pairs, QoS 0, 16, alias or none", "pairs"),
    aliases("50 pairs, QoS 1, 16, alias or none", "pairs", *QOS_1),
    aliases("fan-out 1 to 1000, 16, alias or none", "fanout", "--window", "16"),
    Row(
        name="50 pairs, QoS 0, 16, TLS or plain",
        load=("pairs",),
        beside=("pairs",),
        tls=True,
        figures=(Figure(goal=BESIDE_PLAIN),),
    ),
    Row(
        name="50 pairs, QoS 0, 16, limits or none",
        load=("pairs",),
        beside=("pairs",),
        settings=ALL_LIMITS,
        beside_settings=NO_LIMITS,
        figures=(Figure(goal=Goal(times=0.98, of=(BESIDE, "messages_per_s"), is_floor=True)),),
    ),
    Row(
        name="50 pairs, QoS 0, 16, observed or none",
        load=("pairs",),
        beside=("pairs",),
        settings=OBSERVED,
        beside_settings=NOT_OBSERVED,
        is_observed=True,
    ),
    Row(name="50 pairs, QoS 0, 16, TLS", load=("pairs",), tls=True),
    Row(name="TLS handshakes", load=("connects",), tls=True, figures=CONNECTS),
)
KEPT: Final = ("--sessions", "kept", "--qos", "1")
DEEP: Final = (*KEPT, "--window", "64")


def synced(name: str, *load: str) -> Row:
    """A row of messages a second that are synced before they are acknowledged.

    The goal is a share of the lesser of two bounds (ADR 0140).

    What the disk allows: all publishers together have at most ``publishers * window`` messages in
    flight, and none is acknowledged before it is synced, so that many messages pass in the time of
    one sync. That time is measured in the same run and folder, before the load: the median of 50
    times a write of as many bytes as these messages have in the log (topic, payload and 48 bytes
    each) to a plain file, and fdatasync. ``disk_allows_per_s = publishers * window / sync time``.

    What the core allows: the rate of the same broker without a data folder under the same load, in
    the same rounds.
    """
    disk, core = (OURS, "disk_allows_per_s"), (UNKEPT, "messages_per_s")
    goal, stretch = (Goal(times=times, of=disk, or_of=core, is_floor=True) for times in (0.7, 0.9))
    figures = (
        Figure(goal=goal, stretch=stretch),
        Figure(name=f"{name}, nothing kept", beside=UNKEPT),
        Figure(name=f"{name}, disk allows", key="disk_allows_per_s"),
        Figure(name=f"{name}, one sync", key="disk_sync_us", unit="ms"),
    )
    return Row(name=name, load=load, figures=figures, has_disk=True, has_unkept=True)


def beside_the_disk(share: str, plus_ms: float) -> Goal:
    """Half as much again as the disk's own sync in the same run, and so much more."""
    return Goal(times=1.5, of=(OURS, f"disk_{share}_us"), plus=plus_ms * 1e3)


NOBODY: Final = synced("50 writers, nobody there, 64, kept", "queue", *DEEP)
DURABLE_ROWS: Final = (
    Row(
        name="one at a time, kept",
        load=("turns",),
        has_disk=True,
        figures=(
            Figure(name="disk alone: write and sync, p50", key="disk_p50_us", unit="ms"),
            Figure(name="disk alone: write and sync, p99", key="disk_p99_us", unit="ms"),
            Figure(
                name="idle PUBACK, p50",
                key="ack_p50_us",
                unit="ms",
                goal=beside_the_disk("p50", 1),
            ),
            Figure(
                name="idle PUBACK, p99",
                key="ack_p99_us",
                unit="ms",
                goal=beside_the_disk("p99", 5),
            ),
        ),
    ),
    Row(
        name="50 pairs, QoS 1, 20,000 msg/s, kept",
        load=("pairs", *DEEP, "--rate", "20000"),
        figures=(
            Figure(goal=Goal(plus=19_800, is_floor=True)),
            Figure(
                name="PUBACK at 20,000 msg/s, p99",
                key="ack_p99_us",
                unit="ms",
                goal=Goal(plus=30_000),
            ),
        ),
    ),
    Row(
        name="50 pairs, QoS 1, 64 in flight, kept",
        load=("pairs", *DEEP),
        reads_log=True,
        figures=(
            Figure(goal=Goal(plus=60_000, is_floor=True)),
            Figure(
                name="log over payload and topic, delivered",
                key="log_extra_bytes",
                unit="bytes",
                goal=Goal(plus=100),
            ),
        ),
    ),
    replace(
        NOBODY,
        reads_log=True,
        figures=(
            *NOBODY.figures,
            Figure(
                name="log over payload and topic, queued",
                key="log_extra_bytes",
                unit="bytes",
                goal=Goal(plus=48),
            ),
        ),
    ),
    synced("50 pairs, QoS 1, 1 in flight, kept", "pairs", *KEPT, "--window", "1"),
    plain("50 pairs, QoS 1, 16 in flight, kept", "pairs", *KEPT),
    plain("50 pairs, QoS 2, 16 in flight, kept", "pairs", "--sessions", "kept", "--qos", "2"),
    plain("fan-out 1 to 1000, QoS 1, 16, kept", "fanout", *KEPT),
    plain("50 pairs, QoS 0, 16 in flight, clean", "pairs"),
)
"""What `--durable` measures: ours with a folder and sync before acknowledgement, Mosquitto with its
own persistence, which saves every half hour and at the end."""
START: Final = Figure(
    name="start to first connection",
    key="start_s",
    unit="s",
    goal=Goal(plus=0.06),
    stretch=Goal(plus=0.04),
)
EMBEDDED: Final = Figure(
    name="Broker.start() in a program", key="start_s", unit="s", goal=Goal(plus=0.003)
)
RELOAD: Final = (
    Figure(name="reload of a plugin, shortest of 20", key="reload_s", unit="s", over=min),
    Figure(name="reload of a plugin, median of 20", key="reload_s", unit="s"),
    Figure(
        name="reload of a plugin, longest of 20",
        key="reload_s",
        unit="s",
        goal=Goal(plus=0.05),
        over=max,
    ),
)
