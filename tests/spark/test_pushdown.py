"""Spark's filters as narrower ranges and topics, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from mqttcore.spark.pushdown import Narrowing, is_planned_with_filters
from pyspark.sql import datasource as spark

if not hasattr(spark, "Filter"):
    pytest.skip("Spark 4.0 pushes no filter down", allow_module_level=True)

MOMENT = datetime(2023, 11, 14, 22, 13, 20, 1, UTC)
MOMENT_US = 1_700_000_000_000_001


def filters(*each: tuple[type[spark.Filter], str, Any]) -> list[spark.Filter]:
    """Filters of one column each."""
    made: Any = [(kind, ((column,), value)) for kind, column, value in each]
    return [kind(*given) for kind, given in made]


@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [
        (spark.EqualTo, 7, 8),
        (spark.GreaterThan, 8, None),
        (spark.GreaterThanOrEqual, 7, None),
        (spark.LessThan, 0, 7),
        (spark.LessThanOrEqual, 0, 8),
    ],
)
def test_comparisons_of_offsets_are_bounds(
    kind: type[spark.Filter], first: int, end: int | None
) -> None:
    narrowing = Narrowing(topic=None)

    assert narrowing.push(filters((kind, "offset", 7))) == []
    assert (narrowing.first_offset, narrowing.end_offset) == (first, end)


def test_all_bounds_hold_together() -> None:
    narrowing = Narrowing(topic=None)

    left = narrowing.push(
        filters(
            (spark.GreaterThan, "offset", 2),
            (spark.GreaterThan, "offset", 5),
            (spark.LessThan, "offset", 20),
            (spark.LessThan, "offset", 10),
            (spark.In, "partition", (0, 1, None)),
            (spark.In, "partition", (1, 2)),
        )
    )

    assert left == []
    assert (narrowing.first_offset, narrowing.end_offset) == (6, 10)
    assert narrowing.partitions == frozenset({1})


@pytest.mark.parametrize(
    "moment",
    [MOMENT, MOMENT.replace(tzinfo=None), MOMENT.astimezone(timezone(timedelta(hours=2)))],
)
def test_times_are_exact_in_every_zone(moment: datetime) -> None:
    narrowing = Narrowing(topic=None)

    left = narrowing.push(
        filters((spark.GreaterThan, "timestamp", moment), (spark.LessThan, "timestamp", moment))
    )

    assert left == []
    assert (narrowing.first_us, narrowing.end_us) == (MOMENT_US + 1, MOMENT_US)


@pytest.mark.parametrize(
    ("option", "value", "topic", "nothing"),
    [
        (None, "plant/1", "plant/1", False),
        (None, "$SYS/x", "$SYS/x", False),
        ("plant/+", "plant/1", "plant/1", False),
        ("plant/+", "other", "plant/+", True),
        ("#", "$SYS/x", "#", True),
        (None, "plant/#", None, True),
        (None, "", None, True),
    ],
)
def test_one_topic_is_a_filter_or_no_row_at_all(
    option: str | None, value: str, topic: str | None, *, nothing: bool
) -> None:
    narrowing = Narrowing(topic=option)

    assert narrowing.push(filters((spark.EqualTo, "topic", value))) == []
    assert (narrowing.topic, narrowing.nothing) == (topic, nothing)


@pytest.mark.parametrize(
    ("option", "prefix", "topic"),
    [
        (None, "plant/line/m", "plant/line/#"),
        (None, "plant", None),
        (None, "a+/b", None),
        ("plant/+", "plant/1/", "plant/+"),
    ],
)
def test_of_a_prefix_whole_levels_are_used_and_spark_looks_again(
    option: str | None, prefix: str, topic: str | None
) -> None:
    narrowing = Narrowing(topic=option)
    given = filters((spark.StringStartsWith, "topic", prefix))

    assert narrowing.push(given) == given
    assert narrowing.topic == topic


def test_what_it_does_not_know_is_sparks() -> None:
    narrowing = Narrowing(topic=None)
    given = [
        *filters((spark.EqualTo, "qos", 1), (spark.EqualTo, "payload", b"x")),
        spark.IsNotNull(("content_type",)),
        spark.Not(spark.EqualTo(("offset",), 1)),
        spark.EqualTo(("user", "key"), 1),
    ]

    assert narrowing.push([*given, spark.IsNotNull(("topic",))]) == given
    assert narrowing == Narrowing(topic=None)


def test_only_sparks_planner_of_filters_counts() -> None:
    assert not is_planned_with_filters()
