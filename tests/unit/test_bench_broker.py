"""What `make bench-broker` makes of its measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.broker.brokers import ReportError
from benches.broker.log import extra_bytes
from benches.broker.rows import OURS, Goal, Measured, mosquitto

LOAD = {"topic_bytes": 11.5, "payload_bytes": 64, "sent": 2}


def segment(*bodies: int) -> bytes:
    """A segment with frames of so many bytes, and zeros behind them."""
    frames = [(size - 8).to_bytes(4, "little") + b"x" * (size - 4) for size in bodies]
    return b"h" * 64 + b"".join(frames) + bytes(4_096)


def test_the_log_is_as_large_as_what_is_written_to_it(tmp_path: Path) -> None:
    (tmp_path / f"{1:020}.log").write_bytes(segment(100, 50))
    (tmp_path / f"{2:020}.log").write_bytes(segment(86))

    assert extra_bytes(tmp_path, LOAD) == (64 + 150 + 64 + 86) / 2 - 75.5


def test_a_log_that_lost_a_segment_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / f"{2:020}.log").write_bytes(segment(100))

    with pytest.raises(ReportError, match="first segment"):
        extra_bytes(tmp_path, LOAD)


def test_goals_are_bounds_of_medians() -> None:
    measured = Measured()
    for disk_us in (1_000, 9_000, 2_000):
        measured.add(OURS, {"disk_p50_us": disk_us})
    goal = Goal(times=1.5, of=(OURS, "disk_p50_us"), plus=1_000)

    assert goal.bound(measured) == 4_000
    assert goal.is_met(4_000, 4_000)
    assert goal.is_met(4_001, 4_000) is False
    assert mosquitto(5).bound(measured) is None
    assert Goal(plus=60_000, is_floor=True).is_met(59_999, 60_000) is False
