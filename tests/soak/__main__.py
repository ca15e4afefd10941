"""`python -m tests.soak --seconds 120 --clients 2000`: exits with 1 when anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.soak.run import Outcome, Plan, Soak, resident_bytes

STOP_S = 10.0
SLACK_S = 240.0


@contextlib.contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """`mqttcore.serve` as a process of its own: its port and its process id."""
    command = [sys.executable, "-m", "mqttcore.serve", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(  # noqa: S603 -- our own command
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            banner = process.stdout.readline()
            if "listening on " not in banner:
                log.seek(0)
                raise SystemExit(f"soak: the broker does not start: {banner}{log.read().strip()}")
            place = banner.split("listening on ")[1].split(";")[0]
            yield int(place.rpartition(":")[2]), process.pid
            if process.poll() is not None:
                raise SystemExit(f"soak: the broker ended with {process.returncode}")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


async def soak(plan: Plan, port: int, pid: int) -> Outcome:
    """One run under an overall deadline."""
    async with asyncio.timeout(plan.seconds + SLACK_S):
        return await Soak(plan, port, lambda: resident_bytes(pid)).run()


def main() -> int:
    """Runs a soak against a broker of its own, and reports."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--rate", type=float, default=usual.messages_per_s, help="messages/s")
    parser.add_argument("--churn", type=float, default=usual.leaves_per_s, help="reconnects/s")
    parser.add_argument("--seed", type=int, default=usual.seed)
    options = parser.parse_args()
    plan = Plan(
        seconds=options.seconds,
        clients=options.clients,
        messages_per_s=options.rate,
        leaves_per_s=options.churn,
        seed=options.seed,
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with serving() as (port, pid):
        outcome = asyncio.run(soak(plan, port, pid))
    print("\n".join(outcome.lines()))
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
