"""`[http]` takes little memory until somebody asks for something."""

from __future__ import annotations

from tests.operations.http_cost_bench import added, costs

MOST_KB = 1_000
"""About 100. The routes and their descriptions, made for the first request, would take 3,200."""


def test_an_endpoint_that_nobody_uses_takes_less_than_a_megabyte() -> None:
    assert added(costs(1, settled_s=0.0), "with").anonymous_kb < MOST_KB
