"""The process that keeps Delta tables of streams up to date, and its supervision.

Delta's library takes a hundred megabytes, and minutes of CPU for a large backlog, so it is not
loaded into the broker: ``mqttcore pipeline delta --follow`` is a separate process. It ends when its
standard input ends, hence with the broker.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from mqttcore._log import logger

__all__ = ["DeltaTables"]

log = logger("mqttcore")

BACKOFF_S: Final = (1.0, 60.0)
"""Seconds before the process is restarted: at first, and at most."""
LAST_S: Final = 10.0
"""Seconds at the end for the last sealed files."""


def command(data: pathlib.Path, streams: Sequence[str]) -> list[str]:
    """The command that keeps tables of streams in a data folder up to date."""
    module = "mqttcore.pipeline"
    return [sys.executable, "-m", module, "delta", str(data), *streams, "--follow"]


class DeltaTables:
    """A process for the tables of some streams, started again when it ends."""

    def __init__(self, data: pathlib.Path, streams: Sequence[str]) -> None:
        self._command = command(data, streams)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._watch, name="mqttcore-delta", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Adds the files that are sealed by now to the tables, and ends the process."""
        self._is_over.set()
        with self._lock:
            process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(LAST_S)
            except subprocess.TimeoutExpired:
                log.warning("delta: not up to date within %g s; the next start continues", LAST_S)
                process.kill()
        self._thread.join()

    def _watch(self) -> None:
        pause, most = BACKOFF_S
        while not self._is_over.is_set():
            try:
                if not self._run():
                    return
                reason = "the process has ended"
            except OSError as error:
                reason = f"the process does not start: {error}"
            log.warning("delta: %s; it is started again in %g s", reason, pause)
            self._is_over.wait(pause)
            pause = min(2 * pause, most)

    def _run(self) -> bool:
        """Runs one process to its end; false if it was asked to end."""
        with self._lock:
            if self._is_over.is_set():
                return False
            process = self._process = subprocess.Popen(  # noqa: S603 -- our own command
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # a signal of the terminal is for the broker, which ends this one
                start_new_session=True,
            )
        with process:
            for line in process.stdout or ():
                log.info("delta: %s", line.rstrip())
        return not self._is_over.is_set()
