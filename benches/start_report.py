"""Measures how a broker starts with many sessions and a long queue, and says which goals are met.

`cargo bench --bench store` makes the store (its step `folder`): sessions that are away, each with a
subscription, and messages that wait for them, all in a checkpoint. `python -m mqttcore.serve` is
started over it as users start it, and one of the clients connects at once. Times count from the
start of the process, Python's own among it. The goals are those of a million sessions and ten
million messages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 600.0
STOP_S = 120.0
ACCEPTS_GOAL_S = 1.0
COMPLETE_GOAL_S = 6.0
MEMORY_GOAL_MB = 600.0
SESSION_PRESENT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the store, starts a broker over it some times; 0 if all goals are met."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--sessions", type=int, default=100_000)
    made.add_argument("--queued", type=int, default=1_000_000)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--folder", type=Path, help="an own place; what is in it is used again")
    options = made.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mqttcore-start-") as temporary:
        folder = options.folder or Path(temporary) / "store"
        if not (folder / "checkpoint.redb").exists():
            fill(folder, options.sessions, options.queued)
        rounds = [measure(folder, options.sessions, place) for place in range(options.rounds)]
    accepts, complete, held = zip(*rounds, strict=True)
    print(f"best of {len(rounds)}, {options.sessions} sessions, {options.queued} queued:")
    is_met = [
        judge("a kept client gets its CONNACK", min(accepts), ACCEPTS_GOAL_S, "s"),
        judge("every session is there", min(complete), COMPLETE_GOAL_S, "s"),
        judge("memory of the broker then, at most", max(held), MEMORY_GOAL_MB, "MB"),
    ]
    return 0 if all(is_met) else 1


def judge(what: str, figure: float, goal: float, unit: str) -> bool:
    """Prints a figure beside its goal."""
    is_met = figure <= goal
    print(f"  {what}: {figure:.2f} {unit} (goal {goal:.2f}: {'met' if is_met else 'not met'})")
    return is_met


def fill(folder: Path, sessions: int, queued: int) -> None:
    """Has the store's bench make a store in ``folder``."""
    print(f"making a store of {sessions} sessions and {queued} queued messages", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "MQTTCORE_STORE_STEP": "folder",
        "FOLDER": str(folder.resolve()),
        "SESSIONS": str(sessions),
        "QUEUED": str(queued),
    }
    cargo = shutil.which("cargo") or "cargo"
    command = [cargo, "bench", "--quiet", "-p", "mqttcore-benches", "--bench", "store"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)  # noqa: S603 -- our own command


def measure(folder: Path, sessions: int, place: int) -> tuple[float, float, float]:
    """Starts a broker; returns the seconds to a CONNACK and to all sessions, and its MB then."""
    began = time.monotonic()
    command = [sys.executable, "-m", "mqttcore.serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [*command, "--data", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 -- a pipe was asked for
    assert process.stderr is not None  # noqa: S101 -- as above
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    try:
        banner = process.stdout.readline()
        up = time.monotonic() - began
        port = int(banner.split(";")[0].rpartition(":")[2])
        # One that is read late: sessions come back in their order.
        with connect(port, f"client-{sessions - place:07}") as client:
            accepts, accepts_cpu = time.monotonic() - began, cpu_s(process.pid)
            first = client.recv(1)
            page = time.monotonic() - began
        if not first:
            raise SystemExit("nothing waits for the client")
        while "sessions are loaded" not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit(f"the broker ended: {process.wait(STOP_S)}")
            print(f"    {line.strip()}", flush=True)
        complete = time.monotonic() - began
        now, most = memory_mb(process.pid)
        cpu = cpu_s(process.pid)
    finally:
        patience.cancel()
        process.terminate()
        process.wait(STOP_S)
    print(
        f"  listens {up:.2f} s, CONNACK {accepts:.2f} s ({accepts_cpu:.2f} s of a processor), first"
        f" message {page:.2f} s, complete {complete:.2f} s ({cpu:.2f} s of a processor);"
        f" memory {now:.0f} MB, at most {most:.0f} MB",
        flush=True,
    )
    return accepts, complete, now


def connect(port: int, client_id: str) -> socket.socket:
    """A client that comes back to its session (MQTT 5.0, expiry one hour)."""
    name = client_id.encode()
    properties = b"\x05\x11" + struct.pack(">I", 3_600)
    body = b"\x00\x04MQTT\x05\x00\x00\x3c" + properties + struct.pack(">H", len(name)) + name
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    client.sendall(bytes([0x10, len(body)]) + body)
    head = client.recv(2, socket.MSG_WAITALL)
    rest = client.recv(head[1], socket.MSG_WAITALL)
    if head[0] != 0x20 or rest[0] != SESSION_PRESENT or rest[1] != 0:
        raise SystemExit(f"no session for {client_id}: {(head + rest).hex()}")
    return client


def memory_mb(pid: int) -> tuple[float, float]:
    """Memory of a process: now, and at the most."""
    figures = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in {"VmRSS", "VmHWM"}:
            figures[name] = int(rest.split()[0]) / 1024
    return figures["VmRSS"], figures["VmHWM"]


def cpu_s(pid: int) -> float:
    """Processor time of a process so far: what counts on a machine where others work, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
