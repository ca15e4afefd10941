"""`[http]` takes little memory at the start, and after requests; what its readers cost."""

from __future__ import annotations

import json

import pytest

from tests.operations import page_bench
from tests.operations.http_cost_bench import GOAL_KB, added, costs

UNUSED_KB = 1_000
"""About 100. The routes and their descriptions, made for the first request, would take 3,200."""


def test_an_endpoint_takes_less_than_a_megabyte_at_the_start_and_two_after_requests() -> None:
    found = costs(1, settled_s=0.0)

    assert added(found, "with").anonymous_kb < UNUSED_KB
    assert added(found, "used").anonymous_kb < GOAL_KB


def test_the_cost_of_a_page_is_that_of_brokers_with_and_without_readers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--clients", "20", "--rate", "100", "--seconds", "2", "--rounds", "1", "--json"]

    assert page_bench.main(few) == 0

    figures = json.loads(capsys.readouterr().out)
    (only,) = figures["rounds"]
    assert only["added_percent"] == only["with_percent"] - only["without_percent"]
    assert figures["added_percent"] == only["added_percent"]
    assert figures["is_met"] == (figures["added_percent"] <= figures["goal_percent"])
    assert only["opening_ms"] > 0 < only["without_percent"]
    assert only["read"]["events"] >= 1 <= only["read"]["scrapes"]


@pytest.mark.parametrize(("added_percent", "status"), [(0.9, 0), (1.1, 1)])
def test_a_page_that_costs_more_than_the_goal_fails_strictly(
    monkeypatch: pytest.MonkeyPatch, added_percent: float, status: int
) -> None:
    read = page_bench.Read(events=60, scrapes=60)
    found = [page_bench.Round(1.0, 1.0 + added_percent, 30.0, read)]
    monkeypatch.setattr(page_bench, "run", lambda _: found)
    monkeypatch.setattr(page_bench, "allow_files", lambda _: None)

    assert page_bench.main(["--strict"]) == status
    assert page_bench.main([]) == 0
