"""The data that decorators store on functions, for the workers."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from mqttcore._record import Record, field

Point = Literal[
    "authenticate",
    "grant",
    "enhanced_auth",
    "connect",
    "authorize",
    "subscribe",
    "publish",
    "deliver",
    "will",
    "control",
    "events",
    "every",
    "health",
]
Action = Literal["publish", "subscribe"]

MARK = "__mqttcore_hook__"

F = TypeVar("F", bound=Callable[..., Any])  # Any: each hook point has its own arguments and answer


class Mark(Record):
    """The data that a decorator stores on its function."""

    point: Point
    is_async: bool
    timeout: float = 5.0
    cache: float = 0.0
    method: str = ""
    action: Action = "publish"
    filter: str = "#"
    kinds: frozenset[str] = field(default_factory=frozenset)
    batch: int = 256
    every: float = 0.05
    may_be_tried: bool = False
    """Whether an `authorize` hook may be called for an explanation, without a request."""
    is_alone: bool = False
    """Whether a `grant` hook knows only clients of its own plugin. If several plugins admit
    clients, it is left out: it could give a client the rights of another one of the same name."""


def check_times(timeout: float, cache: float) -> None:
    """Refuses invalid times."""
    if not 0 < timeout <= 60 or not 0 <= cache <= 86_400:
        raise ValueError("timeout must be 0 to 60 s, cache 0 to 86400 s")


def note(function: F, point: Point, *, timeout: float, filter: str = "#") -> F:  # noqa: A002 - the word of the contract
    """Marks a function as the hook of ``point``."""
    is_async = inspect.iscoroutinefunction(function)
    setattr(function, MARK, Mark(point=point, is_async=is_async, timeout=timeout, filter=filter))
    return function
