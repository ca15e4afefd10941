"""`health` hooks: a degraded plugin is named, and a hook that fails counts as degraded."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from mqttcore.plugin import Degraded, Plugin, hook
from mqttcore.plugin.host import PluginHost

from tests.eventually import eventually


class Checked(Plugin):
    """Says what the test handed in, or calls it."""

    answer: Any = None

    @hook.health(every=0.01, timeout=0.1)
    def check(self) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answer() if callable(self.answer) else self.answer


class AsyncChecked(Plugin):
    """The same on the event loop."""

    answer: Any = None

    @hook.health(every=0.01, timeout=0.1)
    async def check(self) -> Any:  # noqa: ANN401 - good and bad answers
        """Answers."""
        return self.answer() if callable(self.answer) else self.answer


def raises() -> None:
    raise RuntimeError("no network")


def exits() -> None:
    raise SystemExit


def told_by(plugin: Plugin, wanted: Callable[[Sequence[str]], bool]) -> None:
    """Waits until the host of the plugin tells what is wanted, and then that all is well."""
    told: list[Sequence[str]] = [["nothing yet"]]
    host = PluginHost([plugin], {})
    host.tell_health_to(told.append)
    try:
        eventually(lambda: wanted(told[-1]), told=lambda: told[-3:])
        plugin.answer = None  # type: ignore[attr-defined]  # of both classes
        eventually(lambda: not told[-1])
    finally:
        host.stop()
    count = len(told)
    assert threading.Event().wait(0.05) is False
    assert len(told) == count


@pytest.mark.parametrize("kind", [Checked, AsyncChecked])
def test_a_degraded_plugin_says_why_until_it_works_again(kind: type[Checked]) -> None:
    plugin = kind()
    plugin.answer = Degraded("no database")

    told_by(plugin, lambda told: [line.partition(": ")[2] for line in told] == ["no database"])


def test_any_text_is_reported_and_the_timer_goes_on() -> None:
    plugin = Checked()
    plugin.answer = Degraded("no file a\udcff")

    told_by(plugin, lambda told: any(line.endswith("no file a\\udcff") for line in told))


def test_what_takes_the_text_may_fail_and_the_timer_goes_on() -> None:
    told: list[Sequence[str]] = []

    def tell(reasons: Sequence[str]) -> None:
        told.append(reasons)
        if len(told) > 1:
            raise RuntimeError("nobody listens")

    host = PluginHost([Checked()], {})
    host.tell_health_to(tell)
    try:
        eventually(lambda: len(told) >= 3)
    finally:
        host.stop()


def test_plugins_that_are_not_in_force_yet_say_nothing_and_then_what_they_know() -> None:
    asked = threading.Event()
    plugin = Checked()
    told: list[Sequence[str]] = []

    def answer() -> Degraded:
        asked.set()
        return Degraded("no database")

    plugin.answer = answer
    host = PluginHost([plugin], {})
    try:
        assert asked.wait(10)
        eventually(lambda: bool(host._degraded))
        host.tell_health_to(told.append)
        assert [line.partition(": ")[2] for line in told[0]] == ["no database"]
    finally:
        host.stop()


@pytest.mark.parametrize("answer", [raises, exits, "fine", True, {"ok": True}])
def test_a_hook_that_fails_counts_as_degraded(answer: object) -> None:
    plugin = Checked()
    plugin.answer = answer

    told_by(plugin, lambda told: any("the hook failed" in line for line in told))


def test_a_hook_that_is_late_counts_as_degraded() -> None:
    release = threading.Event()
    plugin = Checked()
    plugin.answer = release.wait

    def is_late(told: Sequence[str]) -> bool:
        late = any("does not answer" in line for line in told)
        if late:
            release.set()
        return late

    told_by(plugin, is_late)


@pytest.mark.parametrize("every", [0, 100_000])
def test_the_time_between_two_calls_has_bounds(every: float) -> None:
    with pytest.raises(ValueError, match="every"):
        hook.health(every=every)
