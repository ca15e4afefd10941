"""Filter pushdown: offsets, times, partitions, topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import datasource as spark

from mqttcore._core import TopicFilter
from mqttcore.spark.positions import microseconds

__all__ = ["Narrowing", "is_planned_with_filters"]

SURE: Final = frozenset(
    ("partition", "offset", "timestamp", "topic", "payload", "qos", "retain", "dup", "client_id")
)
"""Columns that are never null."""
PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def is_planned_with_filters() -> bool:
    """Whether the caller was called from the module of Spark that pushes filters down.

    Spark refuses a reader with ``pushFilters`` if its setting for that is off, and tells the source
    about that setting in no other way.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        specification = frame.f_globals.get("__spec__")
        if specification is not None and specification.name == PLANNER:
            return True
    return False


@dataclass(slots=True, kw_only=True)
class Narrowing:
    """The part of a stream that remains after the filters; all of them apply."""

    topic: str | None
    """The topic filter: that of the options, or a narrower one; None is every row."""
    nothing: bool = False
    """No row can pass."""
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    first_us: int | None = None
    end_us: int | None = None

    def push(self, filters: Iterable[spark.Filter]) -> list[spark.Filter]:
        """Applies filters; returns those that Spark must still apply to each row."""
        return [one for one in filters if not self.takes(one)]

    def takes(self, one: spark.Filter) -> bool:
        """Applies one filter; returns whether it is completely applied."""
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1 or column[0] not in SURE:
            return False
        if isinstance(one, spark.IsNotNull):
            return True
        handler: Callable[[spark.Filter, Any], bool] | None = {
            "offset": self.takes_offset,
            "timestamp": self.takes_time,
            "partition": self.takes_partition,
            "topic": self.takes_topic,
        }.get(column[0])
        value = getattr(one, "value", None)
        return handler is not None and value is not None and handler(one, value)

    def takes_offset(self, one: spark.Filter, value: Any) -> bool:  # noqa: ANN401 -- Spark's literal
        """Applies bounds of offsets, equal in each partition."""
        bounds = span_of(one, int(value))
        if bounds is None:
            return False
        first, end = bounds
        self.first_offset = max(self.first_offset, first or 0)
        self.end_offset = least(self.end_offset, end)
        return True

    def takes_time(self, one: spark.Filter, value: Any) -> bool:  # noqa: ANN401 -- Spark's literal
        """Applies bounds of times as offsets: times never decrease within a partition."""
        if not isinstance(value, datetime):
            return False
        bounds = span_of(one, microseconds(value))
        if bounds is None:
            return False
        first, end = bounds
        if first is not None:
            self.first_us = first if self.first_us is None else max(self.first_us, first)
        self.end_us = least(self.end_us, end)
        return True

    def takes_partition(self, one: spark.Filter, value: Any) -> bool:  # noqa: ANN401 -- Spark's literal
        """Applies a choice of partitions."""
        if isinstance(one, spark.EqualTo):
            wanted = frozenset([int(value)])
        elif isinstance(one, spark.In):
            wanted = frozenset(int(number) for number in value if number is not None)
        else:
            return False
        self.partitions = wanted if self.partitions is None else self.partitions & wanted
        return True

    def takes_topic(self, one: spark.Filter, value: Any) -> bool:  # noqa: ANN401 -- Spark's literal
        """Applies a topic, or the whole levels of a prefix; Spark then checks each row again."""
        if isinstance(one, spark.EqualTo):
            if is_literal(value) and (self.topic is None or TopicFilter(self.topic).matches(value)):
                self.topic = value
            else:
                self.nothing = True
            return True
        if isinstance(one, spark.StringStartsWith) and self.topic is None:
            levels, slash, _ = value.rpartition("/")
            if slash and is_literal(levels):
                self.topic = f"{levels}/#"
        return False


def is_literal(text: str) -> bool:
    """Whether a text can be a topic, or its beginning, without wildcards."""
    return bool(text) and not {"+", "#", "\0"} & set(text)


def span_of(one: spark.Filter, value: int) -> tuple[int | None, int | None] | None:
    """A comparison with a whole number as ``[first, end)``; None if it is not a comparison."""
    match one:
        case spark.EqualTo():
            return value, value + 1
        case spark.GreaterThan():
            return value + 1, None
        case spark.GreaterThanOrEqual():
            return value, None
        case spark.LessThan():
            return None, value
        case spark.LessThanOrEqual():
            return None, value + 1
        case _:
            return None


def least(known: int | None, new: int | None) -> int | None:
    """The smaller of two values; None stands for no value."""
    return min((one for one in (known, new) if one is not None), default=None)
