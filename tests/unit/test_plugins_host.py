"""`PluginHost`: plugins that are started, supervised and stopped, without a broker."""

import logging
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mqttcore import logs
from mqttcore._core import Question
from mqttcore.errors import PluginError
from mqttcore.plugin import Event, Login, Plugin, hook, host
from mqttcore.plugin.base import Stored
from mqttcore.plugin.engine_log import LOG_JOIN_S, each
from mqttcore.plugin.host import DRAIN_S, PluginHost
from mqttcore.plugin.plugin_workers import PluginWorkers

from tests.clock import Clock


class Queues:
    """Hands these notifications out, and then the end."""

    def __init__(
        self,
        lines: Sequence[object] = (),
        expired: Sequence[object] = (),
        stored: Sequence[object] = (),
    ) -> None:
        self.batches = [SimpleNamespace(lines=lines, expired=expired, stored=stored)]
        self.closed = 0

    def notifications(self) -> object:
        """The next batch."""
        return self.batches.pop(0) if self.batches else None

    def take(self, _worker: int, _limit: int) -> None:
        """No question comes."""

    def events(self, _observer: int, _limit: int, _wait: float) -> None:
        """No event comes."""

    def close(self) -> None:
        """Counts."""
        self.closed += 1


class Deciding(Plugin):
    """Two `def` hooks."""

    @hook.authenticate()
    def first(self, _login: Login) -> None:
        """Passes."""

    @hook.authenticate()
    def second(self, _login: Login) -> None:
        """Passes."""


class Told(Plugin):
    """Is told events, and stops where it says so."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    async def start(self) -> None:
        """Raises where it has to."""
        if self.error is not None:
            raise self.error

    @hook.events("connected")
    def tell(self, _events: Sequence[Event]) -> None:
        """Is told."""


class Asked:
    """A question to the second hook of logins."""

    point, method, position = "authenticate", None, 1
    client = Login(client_id="c")


QUESTION = cast("Question", Asked())


def hosting(
    monkeypatch: pytest.MonkeyPatch,
    *plugins: Plugin,
    queues: Queues | None = None,
    observers: Sequence[Plugin] = (),
) -> PluginHost:
    """A host whose supervisor has come to the end of the notifications."""
    monkeypatch.setattr(host, "HookQueues", lambda **_: queues or Queues())
    made = PluginHost(plugins, {}, observers=observers)
    made._log._thread.join(20)
    assert not made._log._thread.is_alive()
    return made


def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plugin, object, int | None]]:
    """What `PluginWorkers.serve` is called with; no thread starts."""
    calls: list[tuple[Plugin, object, int | None]] = []

    def serve(workers: PluginWorkers, queues: object, *, observer: int | None) -> None:
        calls.append((workers.plugin, queues, observer))

    monkeypatch.setattr(PluginWorkers, "serve", serve)
    return calls


# --- start and stop


def test_observers_are_numbered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, queues = served(monkeypatch), Queues()
    plugins = [Told(), Deciding(), Told()]

    hosting(monkeypatch, *plugins, queues=queues)

    assert calls == [(plugins[0], queues, 0), (plugins[1], queues, None), (plugins[2], queues, 1)]


def test_an_observer_that_does_not_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = served(monkeypatch)
    bad, good = Told(OSError("no disk")), Told()

    made = hosting(monkeypatch, bad, good, observers=[bad])

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    why = f"plugin {bad.name} did not start: no disk; the broker continues without it"
    assert record.getMessage() == why
    assert [plugin for plugin, *_ in calls] == [good]
    assert [stats.hook for stats in made.hook_stats()] == [f"{good.name}#2.tell"]


def test_a_plugin_that_does_not_start_stops_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served(monkeypatch)
    stopped: list[Plugin] = []
    monkeypatch.setattr(PluginWorkers, "stop", lambda workers: stopped.append(workers.plugin))
    first, second, bad = Told(), Told(), Told(OSError("no disk"))

    with pytest.raises(PluginError, match="did not start: no disk"):
        hosting(monkeypatch, first, second, bad, observers=[first])

    assert stopped == [second, first]


def test_a_stop_ends_the_last_plugin_first_and_waits_for_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served(monkeypatch)
    stopped: list[Plugin] = []
    monkeypatch.setattr(PluginWorkers, "stop", lambda workers: stopped.append(workers.plugin))
    first, second, queues = Told(), Told(), Queues()
    made = hosting(monkeypatch, first, second, queues=queues)
    waits: list[tuple[float, int]] = []
    join = SimpleNamespace(join=lambda seconds: waits.append((seconds, len(stopped))))
    made._log._thread = cast("Any", join)

    made.stop()

    assert (stopped, queues.closed) == ([second, first], 1)
    assert waits == [(LOG_JOIN_S, 0)], "plugins get the last times of the store before they stop"


def test_times_of_the_store_go_to_all_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch)
    plugins = [Told(), Told()]
    told: list[tuple[Plugin, Stored]] = []
    monkeypatch.setattr(Told, "_note_stored", lambda plugin, times: told.append((plugin, times)))
    times: Stored = (7, 1, 2, None)

    hosting(monkeypatch, *plugins, queues=Queues(stored=[times]))

    assert told == [(plugin, times) for plugin in plugins]


# --- drain


class Running:
    """Hooks that run until the clock says so."""

    def __init__(self, clock: Clock, until: float) -> None:
        self.clock = clock
        self.until = until

    @property
    def is_deciding(self) -> bool:
        """Whether it is earlier."""
        return self.clock.now < self.until


@pytest.mark.parametrize(("takes", "waited"), [(0.0, 0), (3.0, 3), (99.0, 5)])
def test_hooks_that_run_are_waited_for_up_to_a_deadline(
    monkeypatch: pytest.MonkeyPatch, takes: float, waited: int
) -> None:
    made, clock = hosting(monkeypatch), Clock()
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        assert cast("Queues", made.queues).closed == 1, "nothing new is asked meanwhile"
        sleeps.append(seconds)
        clock.now += 1

    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=clock, sleep=sleep))
    made._chain = cast("Any", Running(clock, clock.now + takes))

    made.drain()

    assert sleeps == [0.01] * waited
    assert DRAIN_S == 5.0
    assert cast("Queues", made.queues).closed == 2


# --- supervision


def test_the_supervisor_has_a_name_and_ends_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    class Ending(Queues):
        def notifications(self) -> None:
            threads.append(threading.current_thread())

    hosting(monkeypatch, queues=Ending())

    assert [(one.name, one.daemon) for one in threads] == [("mqttcore-log", True)]


def test_lines_of_the_engine_go_to_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = [("class", "store"), ("text", "%d")]
    lines = [(logging.WARNING, "100 %s full", []), (logging.ERROR, "%d", known)]

    hosting(monkeypatch, queues=Queues(lines))

    assert [(one.name, one.levelno, one.getMessage()) for one in caplog.records] == [
        ("mqttcore.engine", level, text) for level, text, _ in lines
    ]
    assert getattr(caplog.records[1], logs.FIELDS) == known


@pytest.mark.parametrize(("title", "late"), [("{}.first", "first"), ("", "second")])
def test_a_question_that_is_late_is_counted_where_its_workers_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, title: str, late: str
) -> None:
    plugin = Deciding()
    title = title.format(plugin.name)
    judged: list[tuple[Plugin, object, str]] = []

    def is_fault(workers: PluginWorkers, question: object, hook: Any) -> bool:  # noqa: ANN401
        judged.append((workers.plugin, question, hook.title))
        return False

    monkeypatch.setattr(PluginWorkers, "is_fault", is_fault)

    made = hosting(monkeypatch, Told(), plugin, queues=Queues(expired=[(QUESTION, title, 3.0)]))

    assert judged == [(plugin, QUESTION, f"{plugin.name}.{late}")]
    (record,) = caplog.records
    told = f"plugin {title or 'queue'}: client 'c': no answer within 3 s, refused"
    assert record.getMessage() == f"{told}: its event loop was blocked"
    assert [stats.timed_out for stats in made.hook_stats()] == [int(title != ""), 0, 0]


def test_a_question_without_a_hook_is_late_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosting(monkeypatch, queues=Queues(expired=[(QUESTION, "", 3.0)]))

    (record,) = caplog.records
    assert record.getMessage() == "plugin queue: client 'c': no answer within 3 s, refused"


def test_an_item_that_raises_does_not_keep_the_next_one_from_being_told() -> None:
    told: list[int] = []

    def tell(item: int) -> None:
        told.append(item)
        if item == 1:
            raise OSError("the disk of the log is full")

    each([1, 2], tell)

    assert told == [1, 2]
