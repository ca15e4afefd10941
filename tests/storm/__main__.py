"""`make storm`: what a client notices while others attack a broker with default limits.

Each attack meets a broker of its own with one shard. Beside it a client publishes to itself at QoS
0 and 1 and pings, a hundred times a second, first alone and then under attack. Then others connect,
the attackers leave, and SIGTERM comes in the middle of another attack. Times are in ms; the count
is that of the publishes, or of the connections, of the attacker. RSS is the memory that the broker
has for itself, in MB: at the start, after a first attack, at the end of the second one and when its
attackers and their sessions are gone. The last is compared with that after the first attack, since
tables keep the capacity that they needed (ADR 0111). An attack that leaves more than 5 % is
repeated twice, and the least counts. The exit status is 0 when with every attack p99 <= 20 ms, the
slowest connect <= 50 ms, the p99 of logins beside guessers <= 1 s, none of both refused, SIGTERM
<= 2 s and the memory comes back but for 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from tests.storm import attacks, crowd
from tests.storm.attacks import Attack
from tests.storm.crowd import Crowd
from tests.storm.run import Outcome, run

LAYOUT = "{:<30} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>8} {:>23}  {:<8} {}"
HEAD = (
    *("attack", "calm p50", "p99", "storm p50", "p99", "connect", "SIGTERM", "count", "CPU us"),
    "RSS",
)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make storm", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of each attack (6)")
    parser.add_argument("--calm", type=float, default=2.0, help="seconds without it (2)")
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args()


def line(outcome: Outcome) -> str:
    """One row of the table."""
    figures = outcome.figures
    login_ms = figures.pop("login_p99_ms", None)
    times = (f"{value:,.1f}" for value in figures.values())
    sent, cpu = f"{outcome.count:,}", f"{outcome.cpu_us:,.1f}"
    counted = {**outcome.counters, **outcome.sent, "newcomers refused": outcome.refused}
    told = sorted((name, value) for name, value in counted.items() if value and name != "publishes")
    said = ", ".join(f"{name} {value:,}" for name, value in told if name != "bytes")
    if login_ms is not None:
        said = f"logins p99 {login_ms:,.0f} ms of {len(outcome.login_ms)}, {said}"
    memory = (outcome.start_bytes, outcome.before_bytes, outcome.most_bytes, outcome.after_bytes)
    resident = " ".join(f"{each / 1e6:.1f}" for each in memory)
    verdict = "held" if outcome.is_held else "NOT HELD"
    return LAYOUT.format(
        outcome.attack, *times, f"{outcome.stop_s:.2f} s", sent, cpu, resident, verdict, said
    )


def main() -> int:
    """Runs the attacks in turn; 0 when both goals held beside each of them."""
    options = parse()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    outcomes: list[Outcome] = []
    if not options.json:
        print(LAYOUT.format(*HEAD, "", "broker's counters").rstrip())
    storms: list[Attack | Crowd] = [*attacks.FULL, *crowd.FULL]
    for attack in storms:
        if options.only not in attack.name:
            continue
        outcomes.append(run(attack, calm_s=options.calm, storm_s=options.seconds, core=cores[0]))
        if not options.json:
            print(line(outcomes[-1]).rstrip(), flush=True)
    if options.json:
        print(json.dumps([each.as_json() for each in outcomes], indent=1))
    return int(not all(each.is_held for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
