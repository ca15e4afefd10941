"""A pipeline whose processes are killed goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import NIGHTLY
from tests.pipeline.test_batches import NOISY, WATERMARK, check
from tests.pipeline.test_run import Make
from tests.stream_folder import rows

FILE = """\
name = "factory"
tables = "tables"

[source]
path = "."
stream = "plant"
rows_per_batch = 3

[silver]
schema = "machine STRING, temperature DOUBLE, at TIMESTAMP"
event_time = "at"
watermark = "10 seconds"
valid = ["temperature < 100"]
dedupe = ["machine", "at"]

[[gold]]
name = "by_minute"
window = "1 minute"
group_by = ["machine"]
columns = ["count(*) AS measured", "max(temperature) AS highest"]

[[gold]]
name = "sliding"
window = "2 minutes"
slide = "30 seconds"
columns = ["count(*) AS measured", "percentile(temperature, 0.5) AS middle"]

[[gold]]
name = "rare"
window = "1 hour"
columns = ["count(*) AS measured"]
"""


def start(file: Path) -> subprocess.Popen[str]:
    """A pipeline that reads all rows, and then ends."""
    command = [sys.executable, "-m", "mqttcore.pipeline", str(file), "--once", "--json"]
    return subprocess.Popen(  # noqa: S603 -- our own command
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.timeout(600)  # two JVMs start, one after another
@NIGHTLY
@pytest.mark.parametrize("batch", [0, 2])
def test_rule_9_rows_are_in_each_table_once_after_a_kill(
    tmp_path: Path, make_stream: Make, batch: int
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE)
    make_stream().seal(rows(NOISY))
    first = start(file)
    assert first.stdout is not None
    told = next(line for line in first.stdout if json.loads(line)["batch"] == batch)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(60)
    first.stdout.close()

    with start(file) as second:
        assert second.stdout is not None
        lines = [json.loads(line) for line in second.stdout]

    assert told
    assert second.returncode == 0
    assert all(line["batch"] > batch for line in lines)
    check(tmp_path, WATERMARK)
