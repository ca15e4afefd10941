"""`python -m tests.abuse.wrong_types`: calls all of `mqttcore._core` with values of wrong types.

Prints how many calls there were, and how many raised. Only `Exception` is caught: a panic ends the
process.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from mqttcore import _core

CHANCE = random.Random(7)  # noqa: S311 - the same calls in each run


class Liar:
    """Says one thing about itself, and another one when it is asked again."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 1_000 if self.asked % 2 else 0

    def __index__(self) -> int:
        self.asked += 1
        return -1 if self.asked % 2 else 2**63

    def __iter__(self) -> Iterator[Liar]:
        yield self
        raise KeyError("liar")

    def __getitem__(self, key: object) -> Liar:
        return self

    def __getattr__(self, name: str) -> Liar:
        if name.startswith("__"):
            raise AttributeError(name)
        return Liar()

    def __eq__(self, other: object) -> bool:
        raise ValueError("liar")

    def __hash__(self) -> int:
        return 7

    def __fspath__(self) -> str:
        return "\0"


JUNK: list[Any] = [
    *(None, object(), Liar(), [], {}, (), int, True, [Liar()], ["a", 1], {"a": Liar()}),
    *("", "\udcff", "a\0b", "x" * 70_000, b"", b"\xff" * 70_000, bytearray(3)),
    *(memoryview(b"abcd")[::2], -1, 2**70, 255, math.nan, math.inf, 1e308, lambda *_: 1),
    *(_core.TopicName("a"), _core.TopicFilter("#")),
]
NAMES = ["qos", "limit", "password", "username", "client_id", "seed", "x"]
# They start threads, or take a path to write to; methods that wait.
LEFT_OUT = {"Engine", "store_repair", "store_backup", "store_seal", "write_stream_file"}
WAITS = {"events", "notes", "take", "take_async"}


class Tally:
    """Calls, and how many of them raised."""

    def __init__(self) -> None:
        self.calls = self.refused = 0

    def call(self, function: Callable[..., Any]) -> list[Any]:
        """Calls it with several numbers of arguments; answers with what it returned."""
        returned = []
        for count in [0, 1, 2, 3, 4, 6] * 12:
            arguments = [CHANCE.choice(JUNK) for _ in range(count)]
            named = {CHANCE.choice(NAMES): CHANCE.choice(JUNK)} if CHANCE.random() < 0.3 else {}
            self.calls += 1
            try:
                returned.append(function(*arguments, **named))
            except Exception:
                self.refused += 1
        return returned

    def call_methods(self, instance: object) -> None:
        """Calls all methods of an instance, but those that wait."""
        for name in sorted(set(dir(instance)) - WAITS):
            if name.startswith("__") and name not in {"__eq__", "__lt__", "__getitem__"}:
                continue
            method = getattr(instance, name, None)
            for result in self.call(method) if callable(method) else []:
                if inspect.iscoroutine(result):
                    result.close()


def main() -> None:
    """Calls everything."""
    tally = Tally()
    for name in sorted(set(_core.__all__) - LEFT_OUT):
        thing = getattr(_core, name)
        if not callable(thing):
            continue
        made = tally.call(thing)
        if isinstance(thing, type) and not issubclass(thing, BaseException):
            for instance in made[:4]:
                tally.call_methods(instance)
    print(tally.calls, tally.refused)


if __name__ == "__main__":
    main()
