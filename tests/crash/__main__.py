"""`python -m tests.crash --cycles 1000 --seed 1`: exits with 1 when anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.crash.power import PoweredLife
from tests.crash.process import ServerProcess
from tests.crash.run import Crash, Plan

EARLY_SHARE = 0.2
SYNC_US = 2_000
SHORT_ONE_IN = 50


def main() -> int:
    """Kills a broker again and again, and reports."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="tests.crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=usual.cycles)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--pairs", type=int, default=usual.pairs)
    parser.add_argument("--rate", type=float, default=usual.messages_per_s, help="messages/s")
    parser.add_argument("--power", action="store_true", help="the power goes with the process")
    parser.add_argument("--place", type=Path, help="a new folder; kept for a look afterwards")
    options = parser.parse_args()
    plan = Plan(
        cycles=options.cycles, seed=options.seed, pairs=options.pairs, messages_per_s=options.rate
    )
    with tempfile.TemporaryDirectory(prefix="mqttcore-crash-") as folder:
        place = options.place or Path(folder)
        crash = Crash(plan, server(place, plan, has_power=options.power))
        outcome = asyncio.run(crash.run(lambda line: print(line, file=sys.stderr)))
    print("\n".join(outcome.lines()))
    return int(bool(outcome.faults))


def server(place: Path, plan: Plan, *, has_power: bool) -> ServerProcess:
    """The broker that is ended again and again."""
    if not has_power:
        return ServerProcess(data=place / "data")
    powered = PoweredLife(place, seed=plan.seed, early_share=EARLY_SHARE)
    powered.control["sync_us"] = SYNC_US
    powered.control["short_one_in"] = SHORT_ONE_IN
    return powered


if __name__ == "__main__":
    sys.exit(main())
