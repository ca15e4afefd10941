"""Histories drawn by Hypothesis, their scripts, and their replay."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.model.world import FILTERS, GROUPS, NAMES, TOPICS, Difference, Tamper, World

BROAD = ("#", "a/#", "a/b", "+/b", "$share/g/a/#")
PLAIN = {"no_local": 0, "retain_as_published": 0, "retain_handling": 0, "identifier": 0}
# Steps of one history, at most.
HISTORY = 50

Script = list[str]


@dataclasses.dataclass(slots=True)
class Run:
    """What a run did."""

    histories: int = 0
    steps: int = 0
    deliveries: int = 0
    # The shortest history that differed, and how.
    script: Script = dataclasses.field(default_factory=list)
    difference: str = ""

    def note(self, script: Script, difference: Difference) -> None:
        """A history differed."""
        if not self.script or len(script) < len(self.script):
            self.script, self.difference = list(script), str(difference)


class Histories(RuleBasedStateMachine):
    """Each rule is one step of `World` by a client that can take it."""

    port: ClassVar[int]
    tamper: ClassVar[Tamper | None] = None
    run: ClassVar[Run]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.port, tamper=type(self).tamper)
        self.run.histories += 1
        self.script: Script = []

    def _do(self, step: str, who: str, **options: Any) -> None:  # noqa: ANN401 -- of any step
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        self.script.append(f"{step}({who!r}{given})")
        self.run.steps += 1
        try:
            getattr(self.world, step)(who, **options)
        except Difference as difference:
            self.run.note(self.script, difference)
            raise

    def _one(self, place: int) -> str:
        connected = sorted(self.world.peers)
        return connected[place % len(connected)]

    def _somebody(self) -> bool:
        return bool(self.world.peers)

    @initialize(
        start=st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(BROAD), st.integers(0, 2)),
            min_size=4,
            max_size=8,
        )
    )
    def begin(self, start: list[tuple[str, str, int]]) -> None:
        """Some are there and have subscribed, so that most messages have somewhere to go."""
        for who, one, qos in start:
            if who not in self.world.peers:
                self._do("connect", who, clean=False, lasting=True, window=9, will=None)
            self._do("subscribe", who, filters=[one], qos=qos, **PLAIN)

    @rule(
        who=st.sampled_from(NAMES),
        clean=st.sampled_from([False, False, True]),
        lasting=st.sampled_from([True, True, False]),
        window=st.sampled_from([1, 2, 9]),
        will=st.sampled_from([None, None, "b", "/b"]),
    )
    def connect(self, who: str, **options: Any) -> None:  # noqa: ANN401
        """Connects, or takes over."""
        self._do("connect", who, **options)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), how=st.sampled_from(["goodbye", "will", "ends"]))
    def disconnect(self, place: int, how: str) -> None:
        """Says goodbye."""
        self._do("disconnect", self._one(place), how=how)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), how=st.sampled_from(["close", "reset"]))
    def drop(self, place: int, how: str) -> None:
        """Breaks off."""
        self._do("drop", self._one(place), how=how)

    @precondition(_somebody)
    @rule(
        place=st.integers(0, 3),
        filters=st.lists(st.sampled_from(FILTERS + GROUPS), min_size=1, max_size=2, unique=True),
        qos=st.integers(0, 2),
        no_local=st.integers(0, 1),
        retain_as_published=st.integers(0, 1),
        retain_handling=st.integers(0, 2),
        identifier=st.integers(0, 3),
    )
    def subscribe(self, place: int, **options: Any) -> None:  # noqa: ANN401
        """Subscribes, or subscribes again."""
        self._do("subscribe", self._one(place), **options)

    @precondition(_somebody)
    @rule(
        place=st.integers(0, 3),
        which=st.integers(0, 3),
        qos=st.integers(0, 2),
        retain_handling=st.integers(0, 2),
    )
    def subscribe_again(self, place: int, which: int, qos: int, retain_handling: int) -> None:
        """Subscribes to what it has."""
        who = self._one(place)
        if held := sorted(self.world.reference.sessions[who].subscriptions):
            options = PLAIN | {"qos": qos, "retain_handling": retain_handling}
            self._do("subscribe", who, filters=[held[which % len(held)]], **options)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), topic=st.sampled_from(TOPICS[:3]), qos=st.integers(0, 2))
    def retain(self, place: int, topic: str, qos: int) -> None:
        """Leaves a message for later subscribers."""
        options = {"topic": topic, "qos": qos, "retain": True, "empty": False}
        self._do("publish", self._one(place), **options)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), topic_filter=st.sampled_from(FILTERS + GROUPS))
    def unsubscribe(self, place: int, topic_filter: str) -> None:
        """Unsubscribes, whether it was subscribed or not."""
        self._do("unsubscribe", self._one(place), topic_filter=topic_filter)

    @precondition(_somebody)
    @rule(
        place=st.integers(0, 3),
        topic=st.sampled_from(TOPICS),
        qos=st.integers(0, 2),
        retain=st.sampled_from([False, False, True]),
        empty=st.booleans(),
    )
    def publish(self, place: int, **options: Any) -> None:  # noqa: ANN401
        """Publishes."""
        self._do("publish", self._one(place), **options)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), topic=st.sampled_from(TOPICS[:2]), qos=st.integers(1, 2))
    def publish_more(self, place: int, topic: str, qos: int) -> None:
        """Publishes where most subscribe."""
        options = {"topic": topic, "qos": qos, "retain": False, "empty": False}
        self._do("publish", self._one(place), **options)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3))
    def publish_again(self, place: int) -> None:
        """Repeats a message."""
        self._do("publish_again", self._one(place))

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), unknown=st.sampled_from([False, False, False, True]))
    def release(self, place: int, unknown: bool) -> None:
        """Releases a message of QoS 2."""
        self._do("release", self._one(place), unknown=unknown)

    @precondition(_somebody)
    @rule(
        place=st.integers(0, 3),
        count=st.integers(1, 4),
        refuse=st.sampled_from([False, False, True]),
    )
    def acknowledge(self, place: int, count: int, refuse: bool) -> None:
        """Acknowledges some of what came."""
        self._do("acknowledge", self._one(place), count=count, refuse=refuse)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3), count=st.integers(0, 2), how=st.sampled_from(["close", "reset"]))
    def come_back(self, place: int, count: int, how: str) -> None:
        """Breaks off in the middle of something, and goes on with the session."""
        who = self._one(place)
        if count:
            self._do("acknowledge", who, count=count, refuse=False)
        self._do("drop", who, how=how)
        self._do("connect", who, clean=False, lasting=True, window=9, will=None)

    @precondition(_somebody)
    @rule(place=st.integers(0, 3))
    def catch_up(self, place: int) -> None:
        """Acknowledges everything."""
        self._do("catch_up", self._one(place))

    def teardown(self) -> None:
        """Leaves nothing behind for the next history."""
        self.run.deliveries += self.world.deliveries
        self.world.end()


def explore(
    port: int, *, steps: int, tamper: Tamper | None = None, shrinks: bool = True, seed: int = 1
) -> Run:
    """Runs histories until `steps` are done, or one differs: then the shortest is looked for.

    The histories follow from `seed`, and each batch has one of its own: without, Hypothesis draws
    the same batch again and again where it is to be deterministic, as it is under CI.
    """
    run = Run()
    machine = type(
        "Histories",
        (Histories,),
        {"port": port, "tamper": staticmethod(tamper) if tamper else None, "run": run},
    )
    chosen = settings(
        max_examples=20,
        stateful_step_count=HISTORY,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    draw = random.Random(seed)  # noqa: S311 -- histories, not secrets
    while run.steps < steps:
        try:
            run_state_machine_as_test(seeded(draw.getrandbits(64))(machine), settings=chosen)
        except Exception:
            # What comes and goes with the broker's own choices is a difference all the same.
            if not run.difference:
                raise
            return run
    return run


def replay(port: int, script: Script, *, tamper: Tamper | None = None) -> None:
    """Does the calls of a script, one a line, on a world of its own."""
    with world(port, tamper=tamper) as one:
        for line in script:
            call = ast.parse(line, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise TypeError(f"no step: {line}")
            who = ast.literal_eval(call.args[0])
            options = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
            getattr(one, call.func.id)(who, **options)


@contextlib.contextmanager
def world(port: int, *, tamper: Tamper | None = None) -> Iterator[World]:
    """A world that is cleaned up."""
    one = World(port, tamper=tamper)
    try:
        yield one
    finally:
        one.end()
