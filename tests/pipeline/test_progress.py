"""What a pipeline tells of its batches."""

from __future__ import annotations

import pytest
from mqttcore.pipeline.progress import behind

END = '{"0": 10, "1": 4, "epoch": "x:1"}'
FIRST = '{"epoch": "x:1", "from": {"0": 3, "1": 0}, "to": {"0": 12, "1": 9}}'


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
