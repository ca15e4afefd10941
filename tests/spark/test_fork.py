"""What a forked worker may rely on: no thread, socket or runtime that a fork would break."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tests.spark.conftest import numbered
from tests.stream_folder import StreamFolder

SCRIPT = """
import os, sys

import mqttcore._core
import mqttcore.spark.options

assert os.listdir("/proc/self/task") == [str(os.getpid())], "an import started a thread"
sockets = [os.readlink(f"/proc/self/fd/{fd}") for fd in ("3", "4", "5", "6")
           if os.path.exists(f"/proc/self/fd/{fd}")]
assert not [one for one in sockets if one.startswith(("socket", "anon_inode"))], sockets

from mqttcore._core import StreamReader

def rows():
    reader = StreamReader([(sys.argv[1], 0, 99)], partition=0, start=10, end=90)
    return sum(len(batch) for batch in reader)

assert rows() == 80
assert os.listdir("/proc/self/task") == [str(os.getpid())], "reading started a thread"
child = os.fork()
if child == 0:
    os._exit(0 if rows() == 80 else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_worker_reads_what_its_parent_reads(
    make_stream: Callable[..., StreamFolder],
) -> None:
    path = make_stream().seal(numbered(100))

    done = subprocess.run(  # noqa: S603 -- our own interpreter
        [sys.executable, "-c", SCRIPT, path],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
