"""`make start-busy`: seconds until a pipeline has read rows while 30 processes use the cores.

The processes have the lowest priority and share a session. With `--equal`, each has a session of
its own and the priority of the pipeline, so that the kernel gives the pipeline one share of 31, or
less. On two cores the pipeline has to tell of its first batch within five minutes, and may not end
by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from tests.crash.process import ServerProcess
from tests.pipeline.driver import Driver
from tests.pipeline.machines import Machines
from tests.pipeline.soak import BROKER, PIPELINE
from tests.spark.crash import children

GOAL_S: Final = 300.0
PAUSE_S: Final = 0.5
"""Between two windows of messages."""
BUSY: Final = """\
import os, sys
os.nice(int(sys.argv[2]))
for _ in range(1, int(sys.argv[1])):
    if not os.fork():
        break
while True:
    pass
"""


class NoStartError(Exception):
    """The pipeline ended, or told of no batch in time; the text is the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a pipeline."""

    processes: int
    """Other processes that computed meanwhile."""
    cores: int
    load: float
    """Average of the last minute, at the end."""
    cpu_s: float
    """Seconds of one core that the pipeline's processes took."""
    seconds: float
    """From the start of the pipeline's process to its report of a batch with rows."""
    restarts: int
    """Restarts of the query after failures that may pass."""


@contextlib.contextmanager
def busy(count: int, is_equal: bool) -> Iterator[None]:
    """Has so many processes compute. The kernel may share the cores by session, not by process."""
    command = [sys.executable, "-c", BUSY]
    arguments = [("1", "0")] * count if is_equal else [(str(count), "19")]
    running = [
        subprocess.Popen([*command, *each], start_new_session=True)  # noqa: S603 -- our own command
        for each in arguments
    ]
    try:
        yield
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def cpu_seconds(pid: int) -> float:
    """The time that a process and those below it have computed; 0 for one that has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, children(pid)))


def start(folder: pathlib.Path, options: argparse.Namespace) -> Start:
    """Starts a broker, machines, the other processes and then the pipeline.

    Raises:
        NoStartError: the pipeline ended, or told of no rows within `--limit`.
    """
    limit_s: float = options.limit
    (folder / "mqttcore.toml").write_text(BROKER.format(keep=1 << 20))
    file = folder / "pipeline.toml"
    file.write_text(PIPELINE)
    server = ServerProcess(data=folder / "data", config=folder / "mqttcore.toml")
    server.start()
    machines = Machines(server, pause_s=PAUSE_S)
    machines.start()
    try:
        with busy(options.processes, options.equal):
            began = time.monotonic()
            driver = Driver.spawn(file)
            try:
                while not driver.rows and driver.is_alive and time.monotonic() < began + limit_s:
                    driver.wait_for_batch(began + limit_s - time.monotonic())
                seconds, load = time.monotonic() - began, os.getloadavg()[0]
                cpu_s = cpu_seconds(driver.process.pid)
            finally:
                driver.kill()
    finally:
        machines.stopping.set()
        server.stop()
    log = file.with_suffix(".log").read_text(errors="replace")
    if not driver.rows:
        raise NoStartError(f"{log[-3000:]}\nno rows after {seconds:.0f} s ({cpu_s:.0f} s of CPU)")
    return Start(
        processes=options.processes,
        cores=len(os.sched_getaffinity(0)),
        load=round(load, 1),
        cpu_s=round(cpu_s, 1),
        seconds=round(seconds, 1),
        restarts=sum(", restart " in line for line in log.splitlines()),
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make start-busy", description=__doc__)
    made.add_argument("--processes", type=int, default=30, help="that compute meanwhile")
    made.add_argument("--equal", action="store_true", help="with the pipeline's priority")
    made.add_argument("--limit", type=float, default=GOAL_S, help="seconds that it may take")
    return made


def main() -> int:
    """Prints the seconds; exits with an error when the pipeline does not start in time."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="mqttcore-busy-") as folder:
        try:
            found = start(pathlib.Path(folder), options)
        except NoStartError as error:
            sys.exit(str(error))
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
