"""The brokers that are measured, each as its own process, and the load that drives them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from benches.broker.rows import BOUNDS, CEILING

ROOT: Final = Path(__file__).resolve().parents[2]
START_S = 10.0
STOP_S = 10.0
ROW_S = 60.0
RT_RUNTIME: Final = Path("/proc/sys/kernel/sched_rt_runtime_us")
CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05ready"
CONNACK = b"\x20\x02\x00\x00"
MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
log_dest none
"""
MOSQUITTO_KEEPS = """\
persistence true
persistence_location {data}/
max_inflight_messages 64"""
MOSQUITTO_TLS = """\
user root
certfile {certificates}/server.pem
keyfile {certificates}/server.key
"""
OURS_TLS = """\
[[listeners]]
address = "127.0.0.1:{port}"
anonymous = true
[listeners.tls]
certificate = "{certificates}/server.pem"
key = "{certificates}/server.key"
"""
OURS_KEEPS = """\
[limits]
queue_messages = 10_000_000
queue_bytes = 1_000_000_000
[[listeners]]
anonymous = true
"""


class ReportError(Exception):
    """The report cannot be made; the text says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that answers."""

    process: subprocess.Popen[bytes]
    port: int
    data: Path
    ca: Path | None
    """The CA of its certificate; `None`: it speaks no TLS."""
    started_s: float
    """From its spawn to the first CONNECT that it accepted."""

    @property
    def words(self) -> tuple[str, ...]:
        """Where it is, for the load generator."""
        tls = () if self.ca is None else ("--tls", str(self.ca))
        return ("--address", f"127.0.0.1:{self.port}", "--pid", str(self.process.pid), *tls)

    def kill(self) -> None:
        """Ends it without a word: what it has in files stays as it is."""
        self.process.kill()
        self.process.wait(STOP_S)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another broker; `$port`, `$data` and `$config` of its texts are replaced."""

    name: str
    command: tuple[str, ...]
    config: str = ""
    """Text of the file `$config`."""
    tls: str = ""
    """More text of that file, in rows of TLS; without it, the broker is left out of these rows."""


def read_peers(path: Path | None) -> dict[str, Peer]:
    """The brokers that a TOML file names: a table for each (`read_peer`).

    Raises:
        ReportError: the file cannot be read, or has something else.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text())
        peers = {name: read_peer(name, table) for name, table in tables.items()}
    except (OSError, ValueError, TypeError) as error:
        raise ReportError(f"{path}: {error}") from None
    return peers


def read_peer(name: str, table: dict[str, Any]) -> Peer:
    """One broker: ``command``, and the texts ``config`` and ``tls``."""
    command = table.pop("command", None)
    config, tls = table.pop("config", ""), table.pop("tls", "")
    if name in {"ours", "mosquitto", "beside", *BOUNDS}:
        raise ValueError(f"[{name}]: this name is taken; choose another one")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise TypeError(f"[{name}]: command is a list of strings")
    if table or not isinstance(config, str) or not isinstance(tls, str):
        raise TypeError(f"[{name}]: has command, and config and tls, two strings, only")
    return Peer(name, tuple(command), config, tls)


class Brokers:
    """Starts and ends the brokers, one at a time."""

    def __init__(self, options: argparse.Namespace, folder: Path, *, durable: bool) -> None:
        self.pythons: dict[str, str] = {"ours": options.python, "beside": options.beside}
        self.folder = folder
        self.durable = durable
        is_alone = options.ours_only or options.beside
        self.mosquitto = None if is_alone else find_mosquitto()
        self.peers = {} if is_alone else read_peers(options.peers)
        self.binary = (options.load or build_load()).resolve()
        self.ceiling = self.binary.with_name("mqttcore-ceiling")
        cores = sorted(os.sched_getaffinity(0))
        self.broker_core, self.load_core = (cores[0], cores[-1])
        if len(cores) < 2:
            print("bench-broker: only one core: broker and load share it", file=sys.stderr)
        obstacle = real_time_obstacle(cores)
        self.is_real_time = obstacle is None
        if obstacle:
            print(f"bench-broker: no real-time priority for the load: {obstacle}", file=sys.stderr)

    def names(self, *, tls: bool = False, ceiling: bool = False) -> tuple[str, ...]:
        """What is measured, in turn; with `ceiling`, the bare forwarder, too."""
        if self.pythons["beside"]:
            return ("ours", "beside")
        peers = [name for name, peer in self.peers.items() if peer.tls or not tls]
        if ceiling:
            peers.append(CEILING)
        return ("ours", "mosquitto", *peers) if self.mosquitto else ("ours",)

    @functools.cached_property
    def certificates(self) -> Path:
        """A folder with a CA, and a certificate for localhost."""
        made = self.folder / "certificates"
        command = [self.pythons["ours"], "-m", "mqttcore.certs", "dev", str(made)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own
        return made

    def command(
        self,
        name: str,
        port: int,
        data: Path,
        *,
        tls: bool = False,
        settings: str = "",
        keeps: bool = True,
    ) -> list[str]:
        """The command line of one broker on one port of the loopback.

        Unless it `keeps`, ours has no data folder, and the same limits.
        """
        config = self.folder / f"{name}-{port}.conf"
        if name in self.pythons:
            if tls:
                config.write_text(OURS_TLS.format(port=port, certificates=self.certificates))
                return [self.pythons[name], "-m", "mqttcore.serve", "--config", str(config)]
            ours = [self.pythons[name], "-m", "mqttcore.serve", "--listen", f"127.0.0.1:{port}"]
            if settings:
                config.write_text(f"{settings}[[listeners]]\nanonymous = true\n")
                return [*ours, "--config", str(config)]
            if not self.durable:
                return ours
            config.write_text(OURS_KEEPS)
            folder = ["--data", str(data)] if keeps else []
            return [*ours, "--config", str(config), *folder]
        if name == CEILING:
            return [str(self.ceiling), f"127.0.0.1:{port}"]
        if name in self.peers:
            return self.peer_command(
                self.peers[name], port, data, config, self.certificates if tls else None
            )
        return self.mosquitto_command(port, data, config, tls=tls)

    def mosquitto_command(self, port: int, data: Path, config: Path, *, tls: bool) -> list[str]:
        """The command line of Mosquitto, whose configuration is written."""
        text = MOSQUITTO_CONFIG.format(port=port)
        if self.durable:
            data.mkdir(mode=0o777)
            data.chmod(0o777)
            text = text.replace("persistence false", MOSQUITTO_KEEPS.format(data=data))
        if tls:
            text += MOSQUITTO_TLS.format(certificates=self.certificates)
        config.write_text(text)
        return [str(self.mosquitto), "-c", str(config)]

    @staticmethod
    def peer_command(
        peer: Peer, port: int, data: Path, config: Path, certificates: Path | None = None
    ) -> list[str]:
        """The command line of another broker, whose configuration is written."""
        data.mkdir()
        places = {"port": port, "data": data, "config": config, "certificates": certificates}
        text = peer.config + (peer.tls if certificates else "")
        config.write_text(Template(text).safe_substitute(places))
        return [Template(word).safe_substitute(places) for word in peer.command]

    @contextlib.contextmanager
    def running(
        self,
        name: str,
        *,
        tls: bool = False,
        settings: str = "",
        both_cores: bool = False,
        keeps: bool = True,
    ) -> Iterator[Running]:
        """A broker that answers; `settings` are a configuration of ours, in TOML."""
        cores = {self.broker_core, self.load_core} if both_cores else {self.broker_core}
        port = free_port()
        data = self.folder / f"{name}-{port}"
        log = self.folder / f"{name}-{port}.log"
        with log.open("wb") as sink:
            began = time.monotonic()
            process = subprocess.Popen(  # noqa: S603 -- our own command line
                self.command(name, port, data, tls=tls, settings=settings, keeps=keeps),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=lambda: settle(cores),
            )
            try:
                ca = self.certificates / "ca.pem" if tls else None
                ready = wait_until_ready(process, port, log, ca)
                started_s = ready - began
                yield Running(process=process, port=port, data=data, ca=ca, started_s=started_s)
            finally:
                end(process)
                shutil.rmtree(data, ignore_errors=True)

    def program(self, python: str, text: str) -> str:
        """Runs a program of Python on the core of the brokers; what it prints."""
        return self._output([python, "-c", text], self.broker_core, "the program")

    def load(self, words: Sequence[str], *, is_alone: bool = True) -> dict[str, Any]:
        """Runs one row of the load generator on its core, which it may share with the broker."""
        command = [str(self.binary), *words]
        first = self.is_real_time and is_alone
        text = self._output(command, self.load_core, " ".join(words), is_real_time=first)
        line: dict[str, Any] = json.loads(text)
        return line

    def _output(
        self, command: Sequence[str], core: int, what: str, *, is_real_time: bool = False
    ) -> str:
        """Runs a command on one core; what it prints.

        Raises:
            ReportError: It failed, or took longer than `ROW_S`.
        """
        try:
            done = subprocess.run(  # noqa: S603 -- our own command
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ROW_S,
                check=False,
                preexec_fn=lambda: settle({core}, is_real_time=is_real_time),
            )
        except subprocess.TimeoutExpired:
            raise ReportError(f"{what}: took more than {ROW_S:.0f} s") from None
        if done.returncode != 0:
            raise ReportError(f"{what}: {done.stderr.strip()}")
        return done.stdout


def find_mosquitto() -> str:
    """The broker's path; Debian keeps it where only root looks.

    Raises:
        ReportError: It is not installed.
    """
    path = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        raise ReportError(
            "mosquitto is not installed (Debian: apt-get install mosquitto);"
            " --ours-only measures without it"
        )
    return path


def real_time_obstacle(cores: Sequence[int], throttle: Path = RT_RUNTIME) -> str | None:
    """Why the load generator may have no real-time priority; `None`: it may (ADR 0146).

    A generator that is never idle would starve what else runs on its core, and the kernel would
    stop it for a part of each second.
    """
    if len(cores) < 3:
        return "kernel threads need a third core"
    try:
        if throttle.read_text().strip() != "-1":
            return "kernel.sched_rt_runtime_us is not -1"
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError as error:
        return error.strerror
    return None


def settle(cores: set[int], *, is_real_time: bool = False) -> None:
    """Keeps this process on these cores, ahead of what else runs there if that is allowed.

    Linux weighs sessions against each other before it looks at the processes in them.
    """
    os.sched_setaffinity(0, cores)
    os.setsid()
    if is_real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        Path("/proc/self/autogroup").write_text("-15")


def free_port() -> int:
    """A port that was free a moment ago; brokers are told where to listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(
    process: subprocess.Popen[bytes], port: int, log: Path, ca: Path | None = None
) -> float:
    """Asks until a CONNECT is accepted, and answers when that was.

    Raises:
        ReportError: The broker ended, or took longer than `START_S`.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), dial(port, ca) as peer:
            peer.sendall(CONNECT)
            # one packet, one TLS record
            if peer.recv(4) == CONNACK:
                return time.monotonic()
        time.sleep(0.001)
    tail = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    raise ReportError(f"{process.args[0]!r} does not accept a CONNECT: {tail[0]}")  # type: ignore[index] # a list


def dial(port: int, ca: Path | None) -> socket.socket:
    """A connection, with TLS if there is a CA."""
    plain = socket.create_connection(("127.0.0.1", port), 1)
    if ca is None:
        return plain
    return ssl.create_default_context(cafile=str(ca)).wrap_socket(
        plain, server_hostname="localhost"
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to stop, then insists."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)


def build_load() -> Path:
    """Builds the load generator, and the bare forwarder beside it; answers where it is.

    Raises:
        ReportError: cargo is missing or refuses.
    """
    command = ["cargo", "build", "--release", "--quiet", "--package", "mqttcore-benches"]
    command += ["--bin", "mqttcore-load", "--bin", "mqttcore-ceiling"]
    command += ["--message-format", "json-render-diagnostics"]
    try:
        done = subprocess.run(  # noqa: S603 -- our own command line
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReportError(f"the load generator does not build: {error}") from error
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "mqttcore-load":
            return Path(message["executable"])
    raise ReportError("cargo built no mqttcore-load")
