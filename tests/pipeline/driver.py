"""`python -m mqttcore.pipeline` as a process that is watched, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.spark.crash import children


@dataclass(slots=True, kw_only=True)
class Driver:
    """One process of the pipeline, with its JVM and its workers."""

    process: subprocess.Popen[str]
    batches: int = 0
    """How many it has told of."""
    rows: int = 0
    """How many those had."""
    last: dict[str, Any] = field(default_factory=dict)
    """What it said of the last one; see `mqttcore.pipeline.progress`."""

    @classmethod
    def spawn(cls, file: pathlib.Path, *options: str) -> Driver:
        """Starts one; what it says on standard error is below the file's folder."""
        command = [sys.executable, "-m", "mqttcore.pipeline", str(file), "--json", *options]
        with file.with_suffix(".log").open("a") as log:
            process = subprocess.Popen(  # noqa: S603 -- our own command
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        driver = cls(process=process)
        threading.Thread(target=driver.listen, daemon=True).start()
        return driver

    def listen(self) -> None:
        """Takes in what it tells of batches until it has ended."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.last = json.loads(line)
                self.rows += self.last["rows"]
                self.batches += 1

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    @property
    def java(self) -> int | None:
        """Its JVM; None while there is none."""
        for child in children(self.process.pid):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "java":
                    return child
        return None

    def wait_for_batch(self, limit_s: float) -> None:
        """Until it tells of one more batch, has ended, or the time is over."""
        known, deadline = self.batches, time.monotonic() + limit_s
        while self.batches == known and self.is_alive and time.monotonic() < deadline:
            threading.Event().wait(0.05)

    def kill(self) -> None:
        """Ends the driver and its JVM without a word."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
