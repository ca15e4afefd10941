"""`[http]` takes little memory at the start, and after requests."""

from __future__ import annotations

from tests.operations.http_cost_bench import GOAL_KB, added, costs

UNUSED_KB = 1_000
"""About 100. The routes and their descriptions, made for the first request, would take 3,200."""


def test_an_endpoint_takes_less_than_a_megabyte_at_the_start_and_two_after_requests() -> None:
    found = costs(1, settled_s=0.0)

    assert added(found, "with").anonymous_kb < UNUSED_KB
    assert added(found, "used").anonymous_kb < GOAL_KB
