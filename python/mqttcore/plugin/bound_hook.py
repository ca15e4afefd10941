"""A hook of a plugin instance, with its breaker, its counters and its queue."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mqttcore.plugin.base import Plugin
from mqttcore.plugin.breaker import CircuitBreaker
from mqttcore.plugin.marks import Mark
from mqttcore.plugin.stats import HookStats, Meter

TIMED = {"every", "health"}
"""Hook points of the timer."""
FLOWING = {"publish", "deliver"}
"""Hook points that may be asked about every message."""
UNASKED = {"events", *TIMED}
"""Hook points that are not asked questions."""
NO_WORKER = -1
"""The worker number of hooks without a question queue."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundHook:
    """A hook of one plugin instance."""

    plugin: Plugin
    title: str
    mark: Mark
    function: Callable[..., Any]  # Any: each hook point has its own arguments and answer
    breaker: CircuitBreaker
    meter: Meter
    worker: int
    """Number of the queue of its questions, which `def` hooks of a plugin share, and `async def`
    hooks; but those of messages have queues of their own, so that messages do not delay logins."""

    @property
    def place(self) -> str | None:
        """File and line of its function."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def stats(self) -> HookStats:
        """Counters of its calls."""
        return self.meter.read(self.title, point=self.mark.point, breaker=self.breaker.state)


def bind(plugins: Sequence[Plugin]) -> list[list[BoundHook]]:
    """Binds the hooks of each instance; plugins of the same name get numbered titles."""
    count: Counter[str] = Counter()
    workers: dict[tuple[int, bool, bool], int] = {}
    bound: list[list[BoundHook]] = []
    for index, plugin in enumerate(plugins):
        count[plugin.name] += 1
        number = count[plugin.name]
        owner = plugin.name if number == 1 else f"{plugin.name}#{number}"
        bound.append([])
        for name, mark in plugin.hooks.items():
            worker = NO_WORKER
            if mark.point not in UNASKED:
                shared = (index, mark.is_async, mark.point in FLOWING)
                worker = workers.setdefault(shared, len(workers))
            title, function = f"{owner}.{name}", getattr(plugin, name)
            for other in plugins:
                if other is not plugin:
                    function = other._observe(title, mark, function)
            meter = Meter(owner, name, worker=None if worker == NO_WORKER else worker)
            breaker = CircuitBreaker()
            breaker.tell = meter.counters.set_paused
            bound[-1].append(BoundHook(plugin, title, mark, function, breaker, meter, worker))
    return bound
