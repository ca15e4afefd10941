"""Queries that fail for a reason that may pass start again; without Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.errors import EndpointUnreachableError, PipelineError
from mqttcore.pipeline import runner as runner_module
from mqttcore.pipeline import supervisor
from mqttcore.pipeline.locations import Location
from mqttcore.pipeline.run import session_for
from mqttcore.pipeline.runner import Runner
from mqttcore.pipeline.supervisor import Restarts, may_pass, retried
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from mqttcore.pipeline.config import Pipeline

BUSY = "Job aborted: SparkException: Python worker failed to connect back."
DEATH = "Job aborted: Python worker exited unexpectedly (crashed)"
WRONG = "stream plant: partition 0, offsets 3 to 7 (exclusive) are deleted"


class Clock:
    """The module `time` of supervisor and runner: waits take none."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Notes the wait."""
        self.now += seconds
        self.waits.append(seconds)
        self.meanwhile()

    def monotonic(self) -> float:
        """The sum of all waits."""
        return self.now


class ClockEvent(threading.Event):
    """An event that is waited for by the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Waits the whole time at once, unless it is set."""
        if timeout and not self.is_set():
            self.clock.sleep(timeout)
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(supervisor, "time", made)
    monkeypatch.setattr(runner_module, "time", made)
    return made


@dataclasses.dataclass
class Query:
    """A query as Spark has it: how it ends."""

    failure: str | None = None
    isActive: bool = True  # noqa: N815 -- Spark's name

    @property
    def status(self) -> dict[str, Any]:
        """No batch is running."""
        return {"message": "Waiting for data to arrive", "isTriggerActive": False}

    def awaitTermination(self, _limit: float) -> bool:  # noqa: N802 -- Spark's name
        """Ends at once, as it should or not."""
        self.isActive = False
        if self.failure is not None:
            raise StreamingQueryException(self.failure)
        return True

    def stop(self) -> None:
        """Ends it."""
        self.isActive = False


class PretendedRunner(Runner):
    """A runner whose query fails as the test says."""

    def __init__(self, clock: Clock, failures: list[str]) -> None:
        self.clock = clock
        self.refusals: list[str] = []
        self.pipeline = named("p")
        self.queries = []
        self.failures = failures
        self.started: list[float] = []
        self._restarts = Restarts()
        self._is_over = ClockEvent(clock)
        self._open = contextlib.ExitStack()

    def _started(self) -> Any:  # noqa: ANN401 -- a pretended query
        self.started.append(self.clock.now)
        if self.refusals:
            raise RuntimeError(self.refusals.pop(0))
        return Query(self.failures.pop(0) if self.failures else None)

    def begin(self) -> None:
        """Starts the query, without locks and holds."""
        self._start()


def named(name: str) -> Pipeline:
    """A pipeline of which nothing but the name is asked for."""

    @dataclasses.dataclass
    class Named:
        name: str

    return Named(name)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (BUSY, True),
        ("java.net.SocketTimeoutException: Accept timed out", True),
        ("mqttcore.errors.EndpointUnreachableError: http://b:1", True),
        (DEATH, True),
        (WRONG, False),
        ("[UNRESOLVED_COLUMN] a column cannot be resolved", False),
    ],
)
def test_which_failures_may_pass(text: str, passes: bool) -> None:
    assert may_pass(RuntimeError(text)) is passes


def test_a_query_that_a_busy_machine_ended_starts_again(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="mqttcore")
    runner = PretendedRunner(clock, [BUSY, BUSY])

    runner.begin()
    runner.wait()

    assert runner.started == [0.0, 2.0, 6.0]
    assert caplog.messages[0] == f"query p failed, restart 1 in 2 s: {BUSY}"


def test_a_query_that_fails_for_good_ends_the_pipeline(clock: Clock) -> None:
    runner = PretendedRunner(clock, [WRONG])
    runner.begin()

    with pytest.raises(PipelineError, match=r"query p: stream plant"):
        runner.wait()

    assert runner.started == [0.0]
    assert not any(query.isActive for query in runner.queries)
    assert clock.waits == []


def test_an_end_while_the_query_waits_for_its_restart_is_heard(clock: Clock) -> None:
    runner = PretendedRunner(clock, [BUSY] * 6)
    runner.begin()
    clock.meanwhile = runner.end

    runner.wait()

    assert runner.started == [0.0]


def test_a_restart_that_fails_is_put_off_as_well(clock: Clock) -> None:
    runner = PretendedRunner(clock, [BUSY])
    runner.begin()
    runner.refusals = [BUSY]

    runner.wait()

    assert runner.started == [0.0, 2.0, 6.0]


def test_an_end_while_the_query_does_not_start_is_heard(clock: Clock) -> None:
    runner = PretendedRunner(clock, [])
    runner.refusals = [BUSY] * 6
    clock.meanwhile = runner.end

    runner.begin()
    runner.wait()

    assert runner.queries == []
    assert runner.started == [0.0]


def test_a_busy_machine_or_a_broker_that_is_away_never_ends_a_pipeline(clock: Clock) -> None:
    restarts = Restarts()
    waits = []
    for _ in range(50):
        waits.append(restarts.take("q", RuntimeError(BUSY)))
        clock.sleep(waits[-1])

    assert waits[:9] == [2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert min(waits[9:]) > 60
    assert max(waits) == supervisor.LONGEST_WAIT_S


def test_processes_that_die_again_and_again_end_the_pipeline(clock: Clock) -> None:
    restarts = Restarts()
    for _ in range(supervisor.RESTARTS):
        restarts.take("busy", RuntimeError(BUSY))
    restarts.take("busy", RuntimeError(DEATH))
    waits = [restarts.take("q", RuntimeError(DEATH)) for _ in range(supervisor.RESTARTS)]
    assert waits == [2, 4, 8, 16, 32, 64]
    with pytest.raises(PipelineError, match="after 6 restarts within 30 minutes: Job aborted"):
        restarts.take("q", RuntimeError(DEATH))
    restarts.take("other", RuntimeError(DEATH))

    clock.now += supervisor.WITHIN_S + 1
    assert restarts.take("q", RuntimeError(DEATH)) == supervisor.FIRST_WAIT_S


def test_what_is_made_before_a_query_starts_is_tried_again(clock: Clock) -> None:
    def make() -> Iterator[str]:
        yield from (BUSY, BUSY, WRONG)

    failures = make()

    def fail() -> None:
        raise RuntimeError(next(failures))

    with pytest.raises(RuntimeError, match="are deleted"):
        retried(fail, "p", Restarts(), ClockEvent(clock))
    assert len(clock.waits) == 2


def test_a_broker_that_is_away_at_the_start_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ClockEvent(clock)
    away = [EndpointUnreachableError("unix:var/http: no such file")] * 3

    def check_source(_pipeline: object) -> None:
        if away:
            raise away.pop()

    module = importlib.import_module("mqttcore.pipeline.run")
    monkeypatch.setattr(module, "check_source", check_source)
    monkeypatch.setattr(threading, "Event", lambda: made)
    session: Any = object()

    with pytest.raises(EndpointUnreachableError), session_for(named("p"), session):
        pass
    with session_for(named("p"), session, is_patient=True) as given:
        assert given is session
    assert clock.waits == [2, 4]


class AwayTables:
    """Tables of a store that is away at first."""

    def __init__(self, failures: list[str]) -> None:
        self.failures = failures
        self.adopted = 0

    def adopt(self, _made: object) -> None:
        """Looks at the tables."""
        if self.failures:
            raise PipelineError(self.failures.pop(0))
        self.adopted += 1


def test_a_store_that_is_away_at_start_is_tried_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = PretendedRunner(clock, [])
    tables = AwayTables(["Error performing GET http://s3 in 3s, after 10 retries"] * 2)
    monkeypatch.setattr(Runner, "_tell_hold", lambda _: None)
    for name, value in (
        ("_folder", Location("s3a://lake/state")),
        ("_writer", tables),
        ("_made", {}),
        ("_reporter", None),
    ):
        setattr(runner, name, value)

    runner.start(once=True)
    runner.wait()

    assert (len(clock.waits), tables.adopted, len(runner.started)) == (2, 1, 1)
