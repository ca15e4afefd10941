"""What a worker is spared after a task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from mqttcore.spark import workers


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_process_that_runs_no_task_is_left_alone() -> None:
    workers.spare_collector()

    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_a_worker_is_frozen_once_so_that_its_later_garbage_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "TaskContext", Task)

    workers.spare_collector()
    frozen = gc.get_freeze_count()
    later: list[list[object]] = [[] for _ in range(1000)]
    workers.spare_collector()

    assert frozen > 1000
    assert gc.get_freeze_count() <= frozen
    assert len(later) == 1000


class Task:
    """What stands for a task that runs."""

    @staticmethod
    def get() -> object:
        """The running one."""
        return object()
