"""What something costs: wall time, and CPU seconds and memory of a tree of processes."""

from __future__ import annotations

import os
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one turn."""

    wall_s: float
    cpu_s: float


def tree(root: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, from the state on; empty if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(root: int) -> float:
    """CPU seconds of a tree so far, with those of children that ended."""
    return sum(sum(map(int, stat(pid)[11:15])) for pid in tree(root)) / TICKS


def resident_bytes(root: int) -> int:
    """Memory of a tree; of what processes share, each has its part."""
    return sum(map(proportional_bytes, tree(root)))


def proportional_bytes(pid: int) -> int:
    """What the kernel calls the proportional set size."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def cost(action: Callable[[], object], root: int) -> Cost:
    """Runs something once."""
    cpu, began = cpu_s(root), time.perf_counter()
    action()
    return Cost(wall_s=time.perf_counter() - began, cpu_s=cpu_s(root) - cpu)


def in_turn(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, root: int, warming: int = 1
) -> dict[str, list[Cost]]:
    """Lets contenders take turns; the first ones of each, ``warming``, do not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    for turn in range(warming + rounds):
        for name, action in contenders.items():
            spent = cost(action, root)
            if turn >= warming:
                costs[name].append(spent)
    return costs


def median(costs: Sequence[Cost]) -> Cost:
    """The middle of each."""
    return Cost(
        wall_s=statistics.median(one.wall_s for one in costs),
        cpu_s=statistics.median(one.cpu_s for one in costs),
    )
