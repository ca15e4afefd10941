"""`python -m tests.crash.full --cycles 10 --seed 1`: a broker whose disk is full again and again.

In each cycle a writer publishes until it is refused. Then nothing new is taken on, while what
leaves nothing behind goes on; whatever happens to the broker meanwhile, what was acknowledged
arrives; and when that has made room, the next message is taken.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.crash.run import Outcome
from tests.crash.small_disk import SmallDisk
from tests.crash.test_acknowledged import arrive
from tests.operations.api import Api
from tests.soak.ledger import Ledger, Message
from tests.wire import Wire

SIZE_BYTES = 200 << 20
PAYLOAD_BYTES = 200_000
MARGIN_BYTES = 1 << 20
NO_ROOM = 0x97
ROOM_S = 60.0
CONFIG = """
[limits]
queue_messages = 1_000_000
queue_bytes = 4_000_000_000
queues_disk_bytes = 4_000_000_000
[http]
[[listeners]]
anonymous = true
"""


class FaultError(AssertionError):
    """The broker did what it must not do."""


@dataclass(slots=True)
class Full:
    """The run, its clients and its books."""

    disk: SmallDisk
    server: ServerProcess
    dice: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    refused: int = 0
    has_retained: bool = False

    def run(self, cycles: int, progress: Callable[[str], None] = lambda _: None) -> None:
        """All of it."""
        self.server.start()
        with arrive(self.server, "reader") as reader:
            reader.subscribe(("t", 2))
        ordeals = [self.nothing, self.kill, self.stop, self.others]
        for cycle in range(cycles):
            ordeal = ordeals[cycle % len(ordeals)]
            # Every other time the room is somebody else's before it is ours: the reserve goes.
            is_crowded = (cycle + cycle // len(ordeals)) % 2 == 1
            if is_crowded:
                self.disk.fill(leave_bytes=MARGIN_BYTES)
            self.retain()
            self.fill_up()
            self.check(
                self.has_reserve() != is_crowded, "the reserve is kept, or given up too soon"
            )
            crowd = " beside others" if is_crowded else ""
            progress(f"cycle {cycle + 1}: {self.waiting()} messages{crowd}; {ordeal.__name__}")
            ordeal()
            self.read_all()
            self.disk.empty()
            self.wait_for_room()
            self.check(self.has_reserve(), "the reserve is not taken again")
            self.read_all()

    def has_reserve(self) -> bool:
        """Whether the broker has room set aside."""
        return (self.disk.data / "ballast").exists()

    def waiting(self) -> int:
        """Messages that were acknowledged and did not arrive yet."""
        return len(self.ledger.lost())

    def publish(self, wire: Wire) -> int:
        """Publishes one message; returns the reason code of its acknowledgement."""
        message = self.ledger.send(0, self.dice.choice((1, 2)))
        payload = message.stamp() + bytes(PAYLOAD_BYTES)
        reason = wire.publish("t", payload, qos=message.qos).reason
        if reason < 0x80:
            self.ledger.acknowledge(message)
        return reason

    def fill_up(self) -> None:
        """Publishes until there is no room; what is refused then, and what is not."""
        with Wire(self.server.port) as near, Wire(self.server.port) as writer:
            near.connect("bystander")
            near.subscribe(("near", 0))
            writer.connect("writer")
            while (reason := self.publish(writer)) < 0x80:
                self.bystand(near)
            self.check(reason == NO_ROOM, f"refused with 0x{reason:02X}")
            self.refused += 1
            self.bystand(near)
        self.explain()
        self.refuse_new()
        self.change_retained()

    def explain(self) -> None:
        """An operator who asks why is told of the disk."""
        question = {"topic": "t", "qos": 1, "bytes": PAYLOAD_BYTES}
        status, explained = Api(self.disk.data).ask("POST", "/explain/delivery", question)
        verdict = explained.get("verdict")
        self.check(verdict == "refused:disk", f"explained with {status}: {explained}")

    def bystand(self, near: Wire) -> None:
        """Somebody for whom nothing is kept publishes to itself."""
        for qos in (0, 1, 2):
            payload = b"still here, %d" % qos
            reason = near.publish("near", payload, qos=qos).reason
            self.check(reason == 0, f"a bystander is refused with 0x{reason:02X}")
            found = near.receive_publish().payload
            self.check(found == payload, "a bystander got something else")

    def retain(self) -> None:
        """There is a retained message, if the disk has room for one."""
        with Wire(self.server.port) as writer:
            writer.connect("retainer")
            self.has_retained |= writer.publish("old", b"old", qos=1, retain=True).reason < 0x80

    def change_retained(self) -> None:
        """It is not replaced, at no QoS; but who clears it makes room."""
        with Wire(self.server.port) as writer:
            writer.connect("retainer")
            reason = writer.publish("old", b"new", qos=1, retain=True).reason
            self.check(reason == NO_ROOM, f"retained with 0x{reason:02X}")
            writer.publish("old", b"new", qos=0, retain=True)
            self.expect_retained(self.has_retained)
            reason = writer.publish("old", b"", qos=1, retain=True).reason
            self.check(reason < 0x80, f"not cleared, with 0x{reason:02X}")
            self.expect_retained(False)
            self.has_retained = False

    def expect_retained(self, is_there: bool) -> None:
        """A new subscriber gets the retained message, or nothing."""
        with Wire(self.server.port) as late:
            late.connect("late")
            late.subscribe(("old", 0))
            if is_there:
                found = late.receive_publish().payload
                self.check(found == b"old", "what could not be kept is retained")
            late.ping()

    def refuse_new(self) -> None:
        """A new session that would be kept is refused, one for a connection alone is not."""
        with Wire(self.server.port) as kept:
            kept.connect("new", clean=False, props={"session_expiry_interval": 60}, reason=NO_ROOM)
        with Wire(self.server.port) as passing:
            passing.connect("passing")
        with Wire(self.server.port, version=4) as old:
            old.connect("old")
            reason = old.publish("nobody", b"x", qos=1).reason
            self.check(reason == 0, "what leaves nothing behind is refused")
            old.send(mqtt.publish("t", b"x", qos=1, packet_id=1, version=4))
            old.expect_close()

    def nothing(self) -> None:
        """Nothing more goes wrong."""

    def kill(self) -> None:
        """The broker dies while its disk is full, and comes back."""
        self.server.crash()

    def stop(self) -> None:
        """The broker is stopped while its disk is full, and started again."""
        status = self.server.stop()
        self.check(status == 0, f"a full disk made stopping end with {status}")
        self.server.start()

    def others(self) -> None:
        """Somebody else takes all that is left, until the messages are read."""
        self.disk.fill(leave_bytes=MARGIN_BYTES)
        self.read_all()

    def read_all(self) -> None:
        """The reader takes everything that was acknowledged."""
        with arrive(self.server, "reader", present=True) as reader:
            deadline = time.monotonic() + ROOM_S
            while self.waiting() and time.monotonic() < deadline:
                self.ledger.arrive(Message.of(reader.receive_publish().payload))
            # The broker has its acknowledgements.
            reader.ping()

    def wait_for_room(self) -> None:
        """The next message is taken soon."""
        with Wire(self.server.port) as writer:
            writer.connect("writer")
            deadline = time.monotonic() + ROOM_S
            while (reason := self.publish(writer)) == NO_ROOM:
                self.check(time.monotonic() < deadline, "there is room, and it is not used")
                time.sleep(0.2)
            self.check(reason == 0, f"refused with 0x{reason:02X}")

    def check(self, is_so: bool, fault: str) -> None:
        """Records a fault, and ends the run."""
        if not is_so:
            raise FaultError(fault)


def run(
    place: Path,
    cycles: int,
    seed: int,
    *,
    progress: Callable[[str], None] = lambda _: None,
    may_mount: bool = True,
) -> Outcome:
    """A run on a new disk in `place`."""
    config = place / "full.toml"
    config.write_text(CONFIG)
    outcome = Outcome(ledger=Ledger(), seed=seed, cycles=cycles)
    with SmallDisk(place, SIZE_BYTES, may_mount=may_mount) as disk:
        progress(f"{SIZE_BYTES >> 20} MiB: {disk.kind}")
        server = disk.server("--config", str(config))
        full = Full(disk, server, random.Random(seed), outcome.ledger)  # noqa: S311 -- repeatable
        try:
            full.run(cycles, progress)
        except (AssertionError, OSError) as error:
            outcome.faults.append(f"{type(error).__name__}: {error}")
        finally:
            server.kill()
    # What was refused was never acknowledged, and nobody expects it.
    ignored = f"{outcome.ledger.unacknowledged()} messages never acknowledged"
    outcome.faults += [fault for fault in outcome.ledger.faults() if fault != ignored]
    return outcome


def main() -> int:
    """Runs and reports; exits with 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="tests.crash.full", description=__doc__)
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shim", action="store_true", help="mount nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqttcore-full-") as folder:
        outcome = run(
            Path(folder),
            options.cycles,
            options.seed,
            progress=lambda line: print(line, file=sys.stderr),
            may_mount=not options.shim,
        )
    print("\n".join(outcome.lines()))
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
