"""A broker whose disk loses power when it dies."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.crash import shim
from tests.crash.platter import Platter
from tests.crash.process import ServerProcess


class PoweredLife(ServerProcess):
    """One folder on a disk that keeps, when its broker ends, what was synced and some of the rest.

    A part of the brokers is killed again while they recover, and cut off once more.
    """

    def __init__(
        self,
        place: Path,
        *,
        seed: int = 1,
        options: tuple[str, ...] = (),
        early_share: float = 0.0,
    ) -> None:
        data = place / "data"
        data.mkdir(parents=True)
        self.control = shim.Control(place / "control")
        self.platter = Platter(folder=data, journal=place / "journal", safe=place / "safe")
        self.platter.begin()
        self.dice = random.Random(seed)  # noqa: S311 -- a seed that can be repeated
        self.early_share = early_share
        self.is_cut = True
        """Whether the power goes with the broker."""
        self.forgets_all = False
        """Whether nothing survives that was not synced, where usually some does."""
        super().__init__(
            data=data,
            options=options,
            environment=shim.environment(
                shim.build(place),
                folder=data,
                journal=self.platter.journal,
                control=place / "control",
            ),
        )

    def start(self) -> None:
        """Starts a broker, maybe after some that got nowhere."""
        while self.dice.random() < self.early_share:
            self.spawn()
            time.sleep(self.dice.uniform(0.0, 0.4))
            self.kill()
        super().start()

    def wait(self) -> int:
        """Waits until it has ended, and lets the power go with it; returns its exit status."""
        if self.process is None:
            return 0
        status = super().wait()
        self.platter.mend()
        if self.is_cut:
            self.platter.cut(self.dice, forgets_all=self.forgets_all)
        return status
