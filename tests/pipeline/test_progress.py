"""What a pipeline tells of its batches."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from mqttcore.pipeline.progress import Progress, Told, behind
from mqttcore.pipeline.progress_bars import Bars
from mqttcore.streams.client import StreamClient
from rich.console import Console

END = '{"0": 10, "1": 4, "epoch": "x:1"}'
FIRST = '{"epoch": "x:1", "from": {"0": 3, "1": 0}, "to": {"0": 12, "1": 9}}'


def progress(**changes: object) -> Progress:
    values = {"query": "p.silver", "batch": 3, "rows": 10, "rows_per_s": 100.0}
    lag = {"lag_messages": 30, "lag_s": 1.5, "batch_ms": 100}
    return Progress(**values | lag | changes)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        (END, FIRST, 7),
        (END, END, 0),
        (FIRST, END, 0),
        (None, END, 0),
        (END, "null", 0),
        (END, "None", 0),
        ('{"unresolved": true}', END, 0),
    ],
)
def test_the_lag_is_what_lies_between_two_offsets(
    end: str | None, latest: str | None, lag: int
) -> None:
    assert behind(end, latest) == lag


def test_a_bar_says_how_much_of_the_stream_is_read() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160)

    with Bars(console) as bars:
        bars.report(progress(rows=10, lag_messages=30))
        bars.report(progress(rows=20, lag_messages=10, watermark="12:00"))
        bars.report(progress(query="p.gold", rows=5, lag_messages=0))

    drawn = console.file.getvalue()  # type: ignore[attr-defined]  # what it was given
    last = [line for line in drawn.splitlines() if "p.silver" in line or "p.gold" in line][-2:]
    assert "75%" in last[0]
    assert "settled up to 12:00" in last[0]
    assert "100%" in last[1]


class Kept:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Progress] = []

    def report(self, progress: Progress) -> None:
        """One more."""
        self.told.append(progress)


def test_a_broker_that_is_not_there_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, one = Kept(), progress()
    told = Told(StreamClient(f"unix:{tmp_path}/nobody.sock"), kept)

    told.report(one)
    told.report(one)

    assert kept.told == [one, one]
    (said,) = caplog.messages
    assert "nobody.sock" in said
