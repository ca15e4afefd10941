"""`every` hooks: they are called again and again, and nothing else suffers from them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import Allow, HookStats, Login, Plugin, hook

from tests.eventually import eventually
from tests.wire import Wire

CLOSED = Listener(address="127.0.0.1:0", name="closed")


def running(plugin: Plugin) -> Broker:
    return Broker(Settings(listeners=(CLOSED,)), plugins=[plugin])


def stats(broker: Broker, name: str) -> HookStats:
    (found,) = [one for one in broker.hook_stats() if one.hook.endswith(f".{name}")]
    return found


def test_hooks_are_called_again_and_again_until_the_broker_stops() -> None:
    class Ticking(Plugin):
        fast = slow = 0
        loops: set[object]

        async def start(self) -> None:
            self.loops = {asyncio.get_running_loop()}

        @hook.every(0.01)
        def tick(self) -> None:
            self.fast += 1

        @hook.every(0.05)
        async def tock(self) -> None:
            self.loops.add(asyncio.get_running_loop())
            self.slow += 1

    plugin = Ticking()
    with running(plugin) as broker:
        eventually(lambda: plugin.fast >= 5 and plugin.slow >= 3)
        assert stats(broker, "tick").point == "every"
        assert stats(broker, "tick").passed >= 4

    before = plugin.fast
    assert len(plugin.loops) == 1, "the loop of `start`"
    threading.Event().wait(0.1)
    assert plugin.fast == before


def raises() -> None:
    raise RuntimeError("no network")


def exits() -> None:
    raise SystemExit


@pytest.mark.parametrize("fault", [raises, exits])
def test_a_hook_that_fails_is_called_again_and_others_go_on(fault: Callable[[], None]) -> None:
    class Failing(Plugin):
        calls = others = 0

        @hook.every(0.01)
        def fail(self) -> None:
            self.calls += 1
            fault()

        @hook.every(0.01)
        def tick(self) -> None:
            self.others += 1

    plugin = Failing()
    with running(plugin) as broker:
        eventually(lambda: plugin.calls >= 3 and plugin.others >= 3)
        assert stats(broker, "fail").failed >= 2


@pytest.mark.parametrize("point", [hook.every(0.01), hook.health(every=0.01)])
def test_an_exit_in_a_coroutine_does_not_end_the_event_loop_of_logins(
    point: Callable[[Any], Any],
) -> None:
    class Exiting(Plugin):
        calls = 0

        @point
        async def fail(self) -> None:
            self.calls += 1
            raise SystemExit

        @hook.authenticate
        async def login(self, login: Login) -> Allow:
            return Allow()

    plugin = Exiting()
    with running(plugin) as broker:
        eventually(lambda: plugin.calls >= 3)
        with Wire(broker.port) as wire:
            assert wire.connect("c", username="joe", password=b"").reason == 0


def test_a_hook_that_blocks_its_thread_is_left_alone_on_it() -> None:
    release = threading.Event()

    class Blocking(Plugin):
        calls = others = 0

        @hook.every(0.01, timeout=0.05)
        def block(self) -> None:
            self.calls += 1
            release.wait()

        @hook.every(0.01)
        def tick(self) -> None:
            self.others += 1

    plugin = Blocking()
    with running(plugin) as broker:
        eventually(lambda: stats(broker, "block").timed_out >= 2)
        before = plugin.others
        eventually(lambda: plugin.others > before)
        eventually(lambda: stats(broker, "block").breaker == "open")
        assert plugin.calls <= 4
        release.set()


@pytest.mark.parametrize("seconds", [0, -1, 100_000])
def test_seconds_have_bounds(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        hook.every(seconds)


def test_the_seconds_are_named() -> None:
    with pytest.raises(TypeError, match="seconds"):
        hook.every(raises)  # type: ignore[arg-type]
