"""`python -m tests.model --steps 100000`, or `--replay FILE` for what a run has printed."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.model.brokers import serving
from tests.model.machine import explore, replay
from tests.model.world import Difference

# Where the shortest history that differs is kept.
SCRIPT = Path("model-history.txt")


def main() -> int:
    """Exits with 1 when the broker differs from the reference."""
    parser = argparse.ArgumentParser(prog="tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=1, help="event loops of the broker")
    parser.add_argument("--seed", type=int, default=1, help="other histories with another one")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="one step a line")
    chosen = parser.parse_args()
    with serving(chosen.shards) as broker:
        if chosen.replay:
            return again(broker.port, chosen.replay)
        began = time.monotonic()
        run = explore(broker.port, steps=chosen.steps, seed=chosen.seed)
        seconds = time.monotonic() - began
    print(
        f"model: {run.steps} steps in {run.histories} histories, {run.deliveries} deliveries,"
        f" {seconds:.0f} s, {int(bool(run.difference))} differences"
    )
    if not run.difference:
        return 0
    SCRIPT.write_text("\n".join(run.script) + "\n")
    print(f"\n{run.difference}\n\nafter\n")
    print(*run.script, sep="\n")
    print(f"\nagain: python -m tests.model --replay {SCRIPT}")
    return 1


def again(port: int, script: Path) -> int:
    """Replays one history."""
    try:
        replay(port, script.read_text().splitlines())
    except Difference as difference:
        print(f"model: {difference}")
        return 1
    print("model: no difference")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
