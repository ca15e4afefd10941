"""How long a reload takes: from SIGHUP until a client that connects meets the new rules."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benches.broker.brokers import START_S, ReportError, end, free_port, settle

RELOADS: Final = 20
PLUGIN: Final = """\
from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, PluginConfig, hook

class Gate(Plugin):
    class Config(PluginConfig):
        word: str

    config: Config

    @hook.authenticate(timeout=5.0)
    def login(self, login: Login) -> Allow | Deny:
        is_right = login.username == self.config.word
        return Allow(Grant()) if is_right else Deny("bad_credentials")
"""
# Until the new rules are in force, each login fails, and the client identifier is always the same.
CONFIG: Final = """\
[limits]
failed_logins_per_minute = 0
flapping_connects_per_minute = 0
[[listeners]]
address = "127.0.0.1:{port}"
[[plugins]]
use = "bench_reload_gate:Gate"
[plugins.config]
word = "{word}"
"""


def reload_times(python: str, folder: Path, core: int) -> Iterator[float]:
    """Seconds of each of `RELOADS` reloads, each of which changes the one user name that is let in.

    Raises:
        ReportError: The broker ended, or new rules are not in force within `START_S`.
    """
    port = free_port()
    config, log = folder / "reload.toml", folder / "reload.log"
    (folder / "bench_reload_gate.py").write_text(PLUGIN)
    config.write_text(CONFIG.format(port=port, word="rules-0"))
    command = [python, "-m", "mqttcore.serve", "--config", str(config)]
    with log.open("wb") as sink:
        process = subprocess.Popen(  # noqa: S603 -- our own command line
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            preexec_fn=lambda: settle({core}),
        )
        try:
            wait_until_let_in(port, "rules-0", log)
            for number in range(1, RELOADS + 1):
                config.write_text(CONFIG.format(port=port, word=f"rules-{number}"))
                began = time.monotonic()
                process.send_signal(signal.SIGHUP)
                wait_until_let_in(port, f"rules-{number}", log)
                yield time.monotonic() - began
        finally:
            end(process)


def wait_until_let_in(port: int, username: str, log: Path) -> None:
    """Connects again and again until this user name is let in."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
            peer.sendall(connect(username))
            if peer.recv(4, socket.MSG_WAITALL) == b"\x20\x02\x00\x00":
                return
    tail = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    raise ReportError(f"a reload is not in force within {START_S:.0f} s: {tail[0]}")


def connect(username: str) -> bytes:
    """A CONNECT of MQTT 3.1.1 with a user name."""
    name = username.encode()
    body = b"\x00\x04MQTT\x04\x82\x00\x3c\x00\x05ready" + len(name).to_bytes(2) + name
    return bytes([0x10, len(body)]) + body
