"""One attack on a broker of its own: its process, the attacker's, and what a bystander notices."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mqttcore._core import hash_password

from tests.storm.attacks import VERSION, Attack
from tests.storm.crowd import PASSWORD, USER, Crowd
from tests.storm.round_trips import RoundTrips, percentile
from tests.tls import Files
from tests.wire import Wire, WireError, unique

GOAL_P99_MS: Final = 20.0
GOAL_STOP_S: Final = 2.0
GOAL_CONNECT_MS: Final = 50.0
GOAL_LOGIN_MS: Final = 1_000.0
GOAL_GROWTH: Final = 0.05
NEWCOMERS: Final = 20
LOGINS_A_SECOND: Final = 20
"""For each second of an attack; they take longer."""
# Bounds, not goals: what takes longer is ended.
STOP_S: Final = 60.0
END_S: Final = 10.0
RETURN_S: Final = 45.0
LOOK_S: Final = 1.0
REPEATS: Final = 3
"""Attacks after which memory may have come back."""
UNCHANGED_S: Final = 12.0
"""The broker gives freed memory back when it has used less for five to ten seconds (ADR 0038)."""
# Everything else keeps its default, but for the limits that a crowd sets (`Crowd.limits`).
SETTINGS: Final = {"MQTTCORE__SHARDS": "1", "MQTTCORE__SYS_INTERVAL_S": "1"}
LISTENER: Final = '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n'
LOGINS: Final = """\
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
publish = ["#"]
subscribe = ["#"]
"""
COUNTERS: Final = ("dropped", "refused", "violations", "panics", "denied")


class StormError(Exception):
    """An attack cannot be run; the text says why."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a bystander noticed of one attack, and what the broker says of it."""

    attack: str
    calm_ms: list[float] = field(default_factory=list)
    storm_ms: list[float] = field(default_factory=list)
    connect_ms: list[float] = field(default_factory=list)
    """From the socket of a newcomer to its CONNACK; after the crowd, if that takes all places."""
    login_ms: list[float] = field(default_factory=list)
    """The same for logins with the right password, if a crowd guesses."""
    refused: int = 0
    """Newcomers and logins that were not let in."""
    stop_s: float = STOP_S
    """From SIGTERM, under a second attack, to the exit."""
    status: int = 0
    cpu_s: float = 0.0
    """CPU time of the broker from the first publish of the attack to its end."""
    start_bytes: int = 0
    """Resident memory of the broker, without mapped files, before any attack."""
    before_bytes: int = 0
    """Resident memory of the broker, without mapped files, after an attack that nobody measured:
    tables keep the capacity that they once needed. 0: memory is not judged. If there were more
    attacks, the most after one of them but the last."""
    most_bytes: int = 0
    """At the end of the attack."""
    after_bytes: int = 0
    """When the attackers and their sessions are gone, and it falls no more: after the first of
    `REPEATS` attacks that left no more than those before. A leak grows with each of them; what one
    leaves varies."""
    sent: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Times of the bystander without and with the attack, in ms."""
        times = {
            f"{when}_{name}_ms": round(percentile(values, share), 3)
            for when, values in (("calm", self.calm_ms), ("storm", self.storm_ms))
            for name, share in (("p50", 0.5), ("p99", 0.99))
        }
        if self.login_ms:
            times["login_p99_ms"] = round(percentile(self.login_ms, 0.99), 3)
        return {**times, "connect_ms": round(max(self.connect_ms, default=0.0), 3)}

    @property
    def growth(self) -> float:
        """The part of the memory of before that did not come back."""
        return self.after_bytes / max(1, self.before_bytes) - 1

    def add_memory(self, after_bytes: int) -> None:
        """Notes the memory after one more attack; that after the attacks before is compared."""
        self.before_bytes = max(self.before_bytes, self.after_bytes)
        self.after_bytes = after_bytes

    @property
    def is_held(self) -> bool:
        """Whether all goals are met."""
        is_quick = self.figures["storm_p99_ms"] <= GOAL_P99_MS
        is_open = self.figures["connect_ms"] <= GOAL_CONNECT_MS and not self.refused
        is_in = self.figures.get("login_p99_ms", 0.0) <= GOAL_LOGIN_MS
        is_small = self.growth <= GOAL_GROWTH
        return is_quick and is_open and is_in and is_small and self.stop_s <= GOAL_STOP_S

    @property
    def count(self) -> int:
        """Publishes of the attacker, or its connections."""
        return self.sent.get("publishes") or self.sent.get("opened", 0)

    @property
    def cpu_us(self) -> float:
        """CPU time of the broker for each of them, in us."""
        return self.cpu_s * 1e6 / max(1, self.count)

    def as_json(self) -> dict[str, Any]:
        """Everything but the single round trips."""
        found = asdict(self)
        del found["calm_ms"], found["storm_ms"], found["login_ms"]
        figures = {**self.figures, "cpu_us": round(self.cpu_us, 2), "growth": round(self.growth, 3)}
        return {**found, **figures, "held": self.is_held}


def run(
    attack: Attack | Crowd,
    *,
    calm_s: float,
    storm_s: float,
    core: int | None = None,
    has_memory: bool = True,
) -> Outcome:
    """A broker, a bystander without and then with the attack, and SIGTERM in the middle of another.

    With `has_memory` there is an attack before, and the memory after the two is compared.
    """
    outcome = Outcome(attack=attack.name)
    crowd = attack if isinstance(attack, Crowd) else None
    with serving(crowd, core) as (broker, port, attacked):

        def attack_again() -> int:
            """Resident memory after an attack that is not measured."""
            with attacking(attack, attacked) as attacker:
                begin(attacker)
                time.sleep(storm_s)
                sent_by(attacker)
            end_sessions(attack, port)
            return settled_bytes(broker.pid)

        outcome.start_bytes = resident_bytes(broker.pid)
        logins(crowd, attacked, 1)  # from here on the address is known
        if has_memory:
            outcome.add_memory(attack_again())
        with Wire(port) as figures, Wire(port, version=4) as beside:
            figures.connect(unique("figures"))
            figures.subscribe("$SYS/broker/#")
            bystander = RoundTrips(beside)
            outcome.calm_ms = bystander.measure(calm_s, patience_s=END_S)
            with attacking(attack, attacked) as attacker:
                began = cpu_s(broker.pid)
                begin(attacker)
                outcome.storm_ms = bystander.measure(storm_s)
                outcome.counters = counters(figures)
                # before newcomers come, if the crowd takes all places
                if crowd is not None and crowd.descriptors is not None:
                    outcome.sent = sent_by(attacker)
                outcome.connect_ms, outcome.refused = newcomers(port, NEWCOMERS)
                count = round(storm_s * LOGINS_A_SECOND)
                outcome.login_ms, refused = logins(crowd, attacked, count)
                outcome.refused += refused
                outcome.most_bytes = resident_bytes(broker.pid)
                outcome.sent = outcome.sent or sent_by(attacker)
                outcome.cpu_s = cpu_s(broker.pid) - began
        end_sessions(attack, port)
        if has_memory:
            outcome.add_memory(settled_bytes(broker.pid))
            for _ in range(REPEATS - 1):
                if outcome.growth > GOAL_GROWTH:
                    outcome.add_memory(attack_again())
        with attacking(attack, attacked) as attacker:
            begin(attacker)
            time.sleep(storm_s)
            outcome.stop_s, outcome.status = stop(broker)
    return outcome


def end_sessions(attack: Attack | Crowd, port: int) -> None:
    """Ends the sessions that the subscribers of an attack have left."""
    if isinstance(attack, Attack) and attack.is_offline:
        for number in range(attack.subscribers):
            with Wire(port, version=VERSION) as back:
                back.connect(f"storm-{number}")


def resident_bytes(pid: int) -> int:
    """Memory that a process has for itself."""
    with open(f"/proc/{pid}/status") as status:
        kibibytes = next(line.split()[1] for line in status if line.startswith("RssAnon:"))
    return int(kibibytes) << 10


def settled_bytes(pid: int) -> int:
    """Memory of a process once it has not fallen for `UNCHANGED_S`, or after a bound."""
    began = since = time.monotonic()
    least = resident_bytes(pid)
    while time.monotonic() < min(since + UNCHANGED_S, began + RETURN_S):
        time.sleep(LOOK_S)
        now = resident_bytes(pid)
        if now < least * 0.99:
            least, since = now, time.monotonic()
    return resident_bytes(pid)


def logins(crowd: Crowd | None, port: int, count: int) -> tuple[list[float], int]:
    """Connects clients with the right password, if the crowd guesses it."""
    if crowd is None or not crowd.is_guessing:
        return [], 0
    return newcomers(port, count, username=USER, password=PASSWORD)


def newcomers(port: int, count: int, **login: Any) -> tuple[list[float], int]:  # noqa: ANN401
    """Connects clients, one after the other; returns their times in ms, and how many failed."""
    times, refused = [], 0
    for _ in range(count):
        began = time.monotonic()
        try:
            with Wire(port) as one:
                one.connect(**login)
        except (OSError, WireError):
            refused += 1
        times.append((time.monotonic() - began) * 1_000)
    return times, refused


def sent_by(attacker: subprocess.Popen[str]) -> dict[str, int]:
    """Ends the attack; returns what the attacker has counted."""
    found: dict[str, int] = json.loads(attacker.communicate(timeout=END_S)[0])
    return found


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
    """CPU time that the threads of a process have taken."""
    times = [each.read_text() for each in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(text.split()[0]) for text in times) / 1e9


def counters(figures: Wire) -> dict[str, int]:
    """The newest figures of `$SYS` that say what was dropped or refused, without the zeros."""
    newest = {each.topic or "": each.payload for each in figures.drain()}
    return {
        topic.removeprefix("$SYS/broker/"): int(value)
        for topic, value in newest.items()
        if topic.endswith(COUNTERS) and int(value)
    }


@contextlib.contextmanager
def serving(
    crowd: Crowd | None, core: int | None
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A broker with one shard and default limits, its port, and the port that is attacked.

    An attack on TLS or on logins has a listener of its own.
    """
    command = [sys.executable, "-m", "mqttcore.serve", "--log-level", "error", "-c", "storm.toml"]

    def prepare() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        if crowd is not None and crowd.descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (crowd.descriptors, crowd.descriptors))

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        (pathlib.Path(folder) / "storm.toml").write_text(configuration(crowd, folder))
        process = subprocess.Popen(  # noqa: S603 -- our own command
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **SETTINGS},
            preexec_fn=prepare,
        )
        try:
            assert process.stdout is not None
            banner = process.stdout.readline()
            if "listening on " not in banner:
                log.seek(0)
                raise StormError(f"the broker does not start: {banner}{log.read().strip()}")
            ports = [int(port) for port in re.findall(r":([0-9]+)\b", banner.split(";")[0])]
            yield process, ports[0], ports[-1]
        finally:
            end(process)


def configuration(crowd: Crowd | None, folder: str) -> str:
    """What the broker is told beside `SETTINGS`."""
    text = LISTENER
    if crowd is not None and crowd.is_encrypted:
        Files.make(pathlib.Path(folder))
        text += f'{LISTENER}[listeners.tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    if crowd is not None and crowd.is_guessing:
        hashed = hash_password(PASSWORD, salt=os.urandom(16))
        (pathlib.Path(folder) / "passwords").write_text(f"{USER}:{hashed}\n")
        text += LOGINS
    if crowd is not None:
        text += f"[limits]\n{crowd.limits}\n"
    return text


@contextlib.contextmanager
def attacking(attack: Attack | Crowd, port: int) -> Iterator[subprocess.Popen[str]]:
    """An attacker whose subscribers are there."""
    module = "tests.storm.attacker" if isinstance(attack, Attack) else "tests.storm.crowd"
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", module, str(port), attack.name],
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
