"""An attacker who can write the store's files: `python -m tests.abuse.malicious_store DIR CYCLES`.

Each cycle writes a store with wrong bytes, half of them below checksums that are right, then looks
at it and repairs it. Prints how often that was refused, and the most memory that it took, in KiB.
Only errors of the store are caught: a panic ends the process.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from mqttcore._core import store_dump, store_info, store_repair, store_verify
from mqttcore.errors import StoreError

from tests.unit.test_store import MESSAGE, OPENED, SEGMENT, STREAM, SUBSCRIBED, group, header, row

WRONG = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff", b"\0" * 8, b"\xff" * 8, b"\x80" * 10)


def spoiled(chance: random.Random, data: bytes) -> bytes:
    """`data` with wrong bytes at one to four places, and perhaps another end."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        place = chance.randrange(len(changed) + 1)
        what = chance.choice([*WRONG, chance.randbytes(1), chance.randbytes(8)])
        changed[place : place + chance.choice([0, len(what)])] = what
    if chance.random() < 0.2:
        del changed[chance.randrange(len(changed) + 1) :]
    return bytes(changed)


def log(chance: random.Random) -> bytes:
    """A log that is wrong in one record, whose checksum is right, or anywhere."""
    records = [OPENED, SUBSCRIBED, STREAM, MESSAGE, row(0), row(1)]
    if is_sealed := chance.random() < 0.5:
        place = chance.randrange(len(records))
        kind, flags, body = records[place]
        kind = chance.choice([kind, kind, chance.randrange(256)])
        records[place] = (
            kind,
            chance.choice([flags, chance.randrange(256)]),
            spoiled(chance, body),
        )
    whole = header(1, 1) + group(1, records[:3], 0) + group(4, records[3:], 3)
    return (whole if is_sealed else spoiled(chance, whole)).ljust(8_192, b"\0")


def look(folder: Path) -> int:
    """Tells of a store and reads it; answers how many of the tools refused."""
    return sum(
        is_refused(tool, folder)
        for tool in (store_info, store_verify, lambda path: store_dump(path, lambda _: None))
    )


def is_refused(tool: Callable[[Path], object], folder: Path) -> bool:
    """Whether a tool says that the store is damaged."""
    try:
        tool(folder)
    except StoreError:
        return True
    return False


def attack(folder: Path, chance: random.Random, *, repairs: bool) -> int:
    """One cycle; answers how many of the tools refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / SEGMENT).write_bytes(log(chance))
    refused = look(folder)
    if repairs:
        refused += is_refused(store_repair, folder) + look(folder)
        checkpoint = folder / "checkpoint.redb"
        if checkpoint.exists():
            checkpoint.write_bytes(spoiled(chance, checkpoint.read_bytes()))
            refused += look(folder) + is_refused(store_repair, folder)
    return refused


def main() -> None:
    """Attacks as often as it is told; repairing takes long, and is tried in every tenth cycle."""
    folder, cycles, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(7)  # noqa: S311
    refused = sum(attack(folder, chance, repairs=n % 10 == 0) for n in range(cycles))
    print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
