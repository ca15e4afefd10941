"""Which servers run, and where: what `make services-up` leaves for the tests."""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).parents[2] / ".make" / "services"
FILE = ROOT / "running.json"
USER = "mqttcore"
PASSWORD = "of-these-tests"  # noqa: S105 - it listens on the loopback, while tests run
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    name: str
    pid: int
    port: int
    folder: str

    def is_alive(self) -> bool:
        """Whether its process is still there, and still this one."""
        try:
            command = pathlib.Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False
        return self.folder.encode() in command


def running() -> dict[str, Running]:
    """The servers that run, by name."""
    if not FILE.exists():
        return {}
    found = [Running(**one) for one in json.loads(FILE.read_text())]
    return {one.name: one for one in found if one.is_alive()}


def keep(servers: dict[str, Running]) -> None:
    """Writes down which servers run."""
    ROOT.mkdir(parents=True, exist_ok=True)
    draft = FILE.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps([asdict(server) for server in servers.values()]))
    draft.replace(FILE)
