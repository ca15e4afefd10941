"""`python -m mqttcore.serve --data DIR` as a process that dies and comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STOP_S = 20.0


class NotUpError(Exception):
    """The broker did not come up; the text is what it said."""


@dataclass(slots=True, kw_only=True)
class ServerProcess:
    """One folder, and the broker that holds it now."""

    data: Path
    options: tuple[str, ...] = ()
    config: Path | None = None
    """With its own listeners; without one there is a listener on a free port."""
    is_kept: bool = True
    """Without it there is no data folder: `data` names the log only."""
    environment: Mapping[str, str] | None = None
    log_path: Path | None = None
    ports: list[int] = field(default_factory=list)
    durability: str = ""
    """That of the banner of this run."""
    starts: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        """Where its first listener is."""
        return self.ports[0]

    @property
    def log(self) -> Path:
        """What all processes wrote on standard error."""
        return self.log_path or self.data.with_name(self.data.name + ".log")

    def spawn(self) -> None:
        """Starts a process, and does not wait until it is there."""
        listen = ["-c", str(self.config)] if self.config else ["--listen", "127.0.0.1:0"]
        folder = ["--data", str(self.data)] if self.is_kept else []
        command = [sys.executable, "-m", "mqttcore.serve", *listen]
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(  # noqa: S603 -- our own command
                [*command, *folder, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
            )

    def start(self) -> None:
        """Starts a broker over the folder; clients can connect when this returns.

        Raises:
            NotUpError: it ended instead.
        """
        self.spawn()
        assert self.process is not None
        assert self.process.stdout is not None
        banner = self.process.stdout.readline()
        if "listening on " not in banner:
            status = self.stop()
            raise NotUpError(f"exit status {status}: {banner}{self.log.read_text()[-2000:]}")
        places, self.durability = banner.strip().split("listening on ")[1].split("; durability: ")
        ports = (place.rpartition(":")[2] for place in places.split(", "))
        self.ports = [int(port.partition("/")[0]) for port in ports]  # of WebSocket: with a path
        self.starts += 1

    def kill(self) -> int:
        """Ends it without a word (SIGKILL); returns its exit status."""
        if self.process is not None:
            self.process.kill()
        return self.wait()

    def stop(self) -> int:
        """Ends it in order (SIGTERM); returns its exit status."""
        if self.process is not None:
            self.process.terminate()
        return self.wait()

    def crash(self) -> None:
        """Kills it, and starts the next one."""
        self.kill()
        self.start()

    def wait(self) -> int:
        """Waits until it has ended; returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode
