"""`python -m tests.crash.damage`: damages folders of killed brokers, and prints a table.

A row says what the start says, what `store repair --accept-loss` gives up, and how many of the
acknowledged messages a subscriber still gets. Exits with 1 when a row is not as it must be.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.crash.process import NotUpError, ServerProcess
from tests.crash.test_acknowledged import arrive, leave_subscribed

CHECKPOINT = "checkpoint.redb"
HEADER = 64
PAGE = 4_096
COUNT = 600
LARGE_COUNT = 360
LARGE = bytes(200_000)
"""That many of them fill a segment of 64 MiB, and a part of the next one."""

CONFIG = """
[limits]
queue_messages = 1_000_000
queue_bytes = 1_000_000_000
[[listeners]]
anonymous = true
"""


def broker(folder: Path, *options: str) -> ServerProcess:
    """A broker on a folder, whose queues take whatever comes."""
    config = folder.with_name("queues.toml")
    config.write_text(CONFIG)
    log = folder.with_name(folder.name + ".log")
    log.unlink(missing_ok=True)
    return ServerProcess(data=folder, options=("--config", str(config), *options))


def publish(server: ServerProcess, count: int, payload: bytes = b"") -> None:
    """Publishes messages, each acknowledged."""
    with arrive(server, "writer") as wire:
        for number in range(count):
            wire.publish("hall/heat", b"%d " % number + payload, qos=1)


def young(folder: Path) -> int:
    """One segment, and a checkpoint that has nothing; returns how many messages wait."""
    server = broker(folder)
    server.start()
    leave_subscribed(server, ("hall/heat", 1))
    publish(server, COUNT)
    server.kill()
    return COUNT


def rolled(folder: Path) -> int:
    """Two segments, both with messages that wait."""
    server = broker(folder)
    server.start()
    leave_subscribed(server, ("hall/heat", 1))
    publish(server, LARGE_COUNT, LARGE)
    server.kill()
    assert len(segments(folder)) == 2
    return LARGE_COUNT


def absorbed(folder: Path) -> int:
    """The first segment is gone: what it had is in the checkpoint alone."""
    server = broker(folder)
    server.start()
    with arrive(server, "reader") as reader:
        reader.subscribe(("hall/heat", 1))
    with arrive(server, "filler") as filler:
        for _ in range(LARGE_COUNT):
            filler.publish("kept", LARGE, qos=1, retain=True)
    server.stop()
    # All of it is in the checkpoint, and nothing in it is wanted: it goes with the next one.
    segments(folder)[0].unlink()
    server.start()
    publish(server, COUNT)
    server.kill()
    return COUNT


def segments(folder: Path) -> list[Path]:
    """The files of the log."""
    return sorted(folder.glob("*.log"))


def change(path: Path, edit: Callable[[bytearray], None]) -> None:
    """Changes the content of a file."""
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def flip(path: Path, at: int, bit: int = 0x10) -> None:
    """Makes one bit another one."""

    def edit(content: bytearray) -> None:
        content[at] ^= bit

    change(path, edit)


def flip_message(folder: Path) -> None:
    """Makes one bit of a message another one."""
    content = segments(folder)[0].read_bytes()
    flip(segments(folder)[0], content.index(b"hall/heat", HEADER + 4_000) + 11)


def sessions_page(folder: Path) -> int:
    """Where the page begins that has the session of the subscriber, in the checkpoint."""
    content = (folder / CHECKPOINT).read_bytes()
    return content.rindex(b"reader") // PAGE * PAGE


def overwrite_page(folder: Path) -> None:
    """Overwrites half of the page that has the session of the subscriber."""
    start = sessions_page(folder)

    def edit(content: bytearray) -> None:
        content[start : start + PAGE // 2] = b"\xa5" * (PAGE // 2)

    change(folder / CHECKPOINT, edit)


def zero(path: Path) -> None:
    """Makes all of a file zeros."""
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path, size: int) -> None:
    """Cuts a file."""
    with path.open("r+b") as file:
        file.truncate(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of damage, and what must come of it."""

    name: str
    base: Callable[[Path], int]
    damage: Callable[[Path], None]
    says: str
    """A pattern of what the start must say; empty: it starts, and nothing was lost."""
    is_told: bool = True
    """A start that succeeds says what was damaged."""
    kept: float
    """The share of the acknowledged messages that is still there, at least."""


KINDS: Sequence[Kind] = (
    Kind(
        name="checkpoint: one bit of its first page",
        base=young,
        damage=lambda folder: flip(folder / CHECKPOINT, 3),
        says="",
        kept=1,
    ),
    Kind(
        name="checkpoint: all zeros",
        base=young,
        damage=lambda folder: zero(folder / CHECKPOINT),
        says="",
        kept=1,
    ),
    Kind(
        name="checkpoint: cut",
        base=young,
        damage=lambda folder: cut(folder / CHECKPOINT, 5_000),
        says="",
        kept=1,
    ),
    Kind(
        name="checkpoint: removed",
        base=young,
        damage=lambda folder: (folder / CHECKPOINT).unlink(),
        says="",
        is_told=False,
        kept=1,
    ),
    Kind(
        name="checkpoint with dropped segments: one bit of its first page",
        base=absorbed,
        damage=lambda folder: flip(folder / CHECKPOINT, 3),
        says=r"checkpoint\.redb is damaged .*: LSN 1 to \d+ cannot be trusted",
        kept=1,
    ),
    Kind(
        name="checkpoint with dropped segments: the bit that names its last commit",
        base=absorbed,
        damage=lambda folder: flip(folder / CHECKPOINT, 9, 1),
        says="",
        kept=1,
    ),
    Kind(
        name="checkpoint with dropped segments: one bit of a session",
        base=absorbed,
        damage=lambda folder: flip(folder / CHECKPOINT, sessions_page(folder) + 8),
        says=r"checkpoint\.redb is damaged .*: LSN 1 to \d+ cannot be trusted",
        kept=1,
    ),
    Kind(
        name="checkpoint with dropped segments: a page overwritten",
        base=absorbed,
        damage=overwrite_page,
        says=r"checkpoint\.redb is damaged .*: LSN 1 to \d+ cannot be trusted",
        kept=0,
    ),
    Kind(
        name="checkpoint with dropped segments: removed",
        base=absorbed,
        damage=lambda folder: (folder / CHECKPOINT).unlink(),
        says=r"0001\.log is damaged \(it is missing\): LSN 1 to \d+ cannot be trusted",
        kept=0,
    ),
    Kind(
        name="only segment: one bit of its header",
        base=young,
        damage=lambda folder: flip(segments(folder)[0], 20),
        says="",
        kept=1,
    ),
    Kind(
        name="only segment: one bit of a message",
        base=young,
        damage=flip_message,
        says=r"0001\.log is damaged at \d+ .*: LSN \d+ to \d+ cannot be trusted",
        kept=(COUNT - 1) / COUNT,
    ),
    Kind(
        name="only segment: emptied",
        base=young,
        damage=lambda folder: cut(segments(folder)[0], 0),
        says=r"0001\.log is damaged \(it is empty, but records were written to it\)",
        kept=0,
    ),
    Kind(
        name="only segment: all zeros",
        base=young,
        damage=lambda folder: zero(segments(folder)[0]),
        says=r"0001\.log is damaged \(it is empty, but records were written to it\)",
        kept=0,
    ),
    Kind(
        name="only segment: removed",
        base=young,
        damage=lambda folder: segments(folder)[0].unlink(),
        says=r"0001\.log is damaged \(the log is missing\)",
        kept=0,
    ),
    Kind(
        name="only segment: cut",
        base=young,
        damage=lambda folder: cut(segments(folder)[0], 20_000),
        says=r"0001\.log is damaged \(it is shorter than when it was created\): LSN \d+ and the"
        r" records after it are missing",
        kept=0.1,
    ),
    Kind(
        name="first of two segments: removed",
        base=rolled,
        damage=lambda folder: segments(folder)[0].unlink(),
        says=r"0001\.log is damaged \(it is missing\): LSN 1 to \d+ cannot be trusted",
        kept=0,
    ),
    Kind(
        name="last of two segments: removed",
        base=rolled,
        damage=lambda folder: segments(folder)[1].unlink(),
        says=r"0002\.log is damaged \(it is missing\): LSN \d+ and the records after it are"
        r" missing",
        kept=0.9,
    ),
    Kind(
        name="last of two segments: emptied",
        base=rolled,
        damage=lambda folder: cut(segments(folder)[1], 0),
        says=r"0002\.log is damaged \(it is empty, but records were written to it\)",
        kept=0.9,
    ),
    Kind(
        name="last of two segments: cut",
        base=rolled,
        damage=lambda folder: cut(segments(folder)[1], 2_000_000),
        says=r"0002\.log is damaged \(it is shorter than when it was created\): LSN \d+ and the"
        r" records after it are missing",
        kept=0.9,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one kind of damage."""

    kind: Kind
    start: str
    repair: str
    kept: int
    acknowledged: int
    faults: tuple[str, ...]


def examine(kind: Kind, base: Path, acknowledged: int, place: Path) -> Row:
    """Damages a copy of a folder, starts a broker on it, mends another copy."""
    started, mended = place / "started", place / "mended"
    for copy in (started, mended):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy, ignore=shutil.ignore_patterns("control"))
        kind.damage(copy)
    faults = []
    start, has_started = start_of(started)
    if has_started != (not kind.says) or not re.search(kind.says, start):
        faults.append(f"the start says {start}")
    says_mended = re.search("rebuilt from the log|was rewritten|was corrected", start)
    if has_started and kind.is_told != bool(says_mended):
        faults.append(f"told or not: {start}")
    if "Traceback" in start or "panicked" in start:
        faults.append("a traceback")
    repair = tool("repair", mended, "--accept-loss")
    kept = received(mended)
    if kept < kind.kept * acknowledged:
        faults.append(f"{kept} of {acknowledged} messages are there")
    return Row(
        kind=kind,
        start=start,
        repair=repair,
        kept=kept,
        acknowledged=acknowledged,
        faults=tuple(faults),
    )


def start_of(folder: Path) -> tuple[str, bool]:
    """What a broker says that is started on a folder, and whether it comes up."""
    server = broker(folder)
    try:
        server.start()
    except NotUpError as error:
        last = str(error).strip().splitlines()[-1]
        return last.partition("mqttcore: ")[2] or str(error), False
    try:
        with arrive(server, "somebody"):
            pass
        lines = server.log.read_text().splitlines()
        told = [line.partition(": ")[2] for line in lines if " ERROR " in line]
        return "starts" + "".join(f"; {line}" for line in told), True
    finally:
        server.kill()


def tool(command: str, folder: Path, *options: str) -> str:
    """What `mqttcore store` says of a folder, in short."""
    arguments = [sys.executable, "-m", "mqttcore.store", command, str(folder), *options]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 -- our own command
    if not done.stdout:
        return done.stderr.strip()
    report = json.loads(done.stdout)
    if report["damage"] is None:
        return "nothing to mend"
    keys = ("lost", "sessions", "topics", "unknown", "mended_pages", "lost_pages")
    given_up = [f"{key} {json.dumps(report[key])}" for key in keys if report[key]]
    rest = re.search(r"LSN \d+ and the records after it are missing", report["damage"])
    given_up += [rest.group()] if rest else []
    return "gives up: " + ", ".join(given_up) if given_up else "gives up nothing"


def received(folder: Path) -> int:
    """How many messages the subscriber gets from a broker that is started on a folder."""
    server = broker(folder)
    server.start()
    try:
        with arrive(server, "reader") as reader:
            reader.subscribe(("end", 1))
            with arrive(server, "last") as last:
                last.publish("end", b"end", qos=1)
            return sum(1 for _ in iter(lambda: reader.receive_publish().payload, b"end"))
    finally:
        server.kill()


def table(rows: Sequence[Row]) -> str:
    """The rows, as Markdown."""
    lines = ["| damage | the start says | `repair --accept-loss` | kept |", "|---|---|---|---|"]
    for row in rows:
        kept = f"{row.kept} of {row.acknowledged}"
        start = row.start.partition("; restore the missing")[0]
        lines.append(f"| {row.kind.name} | {start} | {row.repair} | {kept} |")
    return "\n".join(lines)


def run(place: Path, kinds: Sequence[Kind] = KINDS) -> list[Row]:
    """Examines all kinds of damage in a folder."""
    bases: dict[Callable[[Path], int], tuple[Path, int]] = {}
    rows = []
    for kind in kinds:
        if kind.base not in bases:
            folder = place / kind.base.__name__ / "data"
            folder.parent.mkdir()
            bases[kind.base] = (folder, kind.base(folder))
        base, acknowledged = bases[kind.base]
        rows.append(examine(kind, base, acknowledged, place))
    return rows


def main() -> int:
    """Prints the table."""
    with tempfile.TemporaryDirectory(prefix="mqttcore-damage-") as folder:
        rows = run(Path(folder))
    print(table(rows))
    for row in rows:
        for fault in row.faults:
            print(f"{row.kind.name}: {fault}", file=sys.stderr)
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
