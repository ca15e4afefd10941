"""`python -m tests.crash --cycles 1000 --seed 1`: exits with 1 when anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.crash.process import Life
from tests.crash.run import Crash, Plan


def main() -> int:
    """Kills a broker again and again, and reports."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="tests.crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=usual.cycles)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--pairs", type=int, default=usual.pairs)
    parser.add_argument("--rate", type=float, default=usual.messages_per_s, help="messages/s")
    parser.add_argument("--data", type=Path, help="a new folder; kept for a look afterwards")
    options = parser.parse_args()
    plan = Plan(
        cycles=options.cycles, seed=options.seed, pairs=options.pairs, messages_per_s=options.rate
    )
    with tempfile.TemporaryDirectory(prefix="mqttcore-crash-") as folder:
        data = options.data or Path(folder) / "data"
        crash = Crash(plan, Life(data=data))
        outcome = asyncio.run(crash.run(lambda line: print(line, file=sys.stderr)))
    print("\n".join(outcome.lines()))
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
