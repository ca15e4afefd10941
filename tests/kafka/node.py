"""One Kafka node (KRaft) in a folder of its own: started, killed, started again."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.kafka.jars import NODE, fetch, java

CLUSTER: Final = "bXF0dGNvcmUtdGVzdHMtMQ"
"""The identifier of the cluster: 16 bytes in base64. A fixed one saves a start of Java."""
START_S: Final = 180.0
STOP_S: Final = 30.0
SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
auto.create.topics.enable=false
"""


MEMBER: Final = """\
node.id={number}
controller.quorum.voters={voters}
num.partitions=12
default.replication.factor={nodes}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={nodes}
auto.create.topics.enable=true
"""


class NodeError(Exception):
    """The node did not come up; the text is the end of what it said."""


SECURE: Final = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{secure}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
listener.name.secure.scram-sha-256.sasl.jaas.config={jaas}.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config={jaas}.scram.ScramLoginModule required;
listener.name.secure.plain.sasl.jaas.config={jaas}.plain.PlainLoginModule required \\
  user_{user}="{password}";
listener.name.secure.oauthbearer.sasl.jaas.config= \\
  {jaas}.oauthbearer.OAuthBearerLoginModule required \\
  unsecuredLoginStringClaim_sub="{user}";
listener.name.secure.oauthbearer.connections.max.reauth.ms=3600000
"""
JAAS: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a second listener of a node demands: TLS, and this user by SCRAM, PLAIN or a token.

    Tokens have no signature. A connection is closed when its token expires and no other follows.
    """

    certificate: pathlib.Path
    """Of the node: a PEM file, as `key` is."""
    key: pathlib.Path
    user: str = "mqttcore"
    password: str = "correct-horse"  # noqa: S105 -- of a test


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Which of several nodes one is; a topic of theirs has a copy on each, and 12 partitions."""

    number: int
    """From 1 on."""
    ports: Sequence[int]
    """Where the controllers of all nodes are reached, in the order of their numbers."""

    def settings(self) -> str:
        """What is different from a node that is alone."""
        ports = enumerate(self.ports, 1)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in ports)
        nodes = len(self.ports)
        in_sync = nodes // 2 + 1
        return MEMBER.format(number=self.number, voters=voters, nodes=nodes, in_sync=in_sync)


@dataclass(slots=True)
class Node:
    """A folder, and the node that uses it now."""

    folder: pathlib.Path
    port: int = 0
    """Where clients connect; 0 until it was started first, then always the same."""
    heap: str = "512m"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    security: Security | None = None
    secure_port: int = 0
    """Where clients with TLS connect."""
    member: Member | None = None
    """None: it is alone."""

    @property
    def secure_servers(self) -> str:
        """What clients with TLS are told."""
        return f"127.0.0.1:{self.secure_port}"

    @property
    def servers(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> pathlib.Path:
        """What all its processes wrote."""
        return self.folder / "node.log"

    def start(self) -> Node:
        """Starts it, and returns when clients can connect.

        Raises:
            MissingToolError: Java, Maven or a jar is missing.
            NodeError: it ended instead, or takes too long.
        """
        settings = self.folder / "server.properties"
        if not is_formatted(self.folder):
            self._format(settings)
        self.port = self.port or known_port(settings)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- our own command
                self._command("kafka.Kafka", str(settings), heap=self.heap),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_up()
        return self

    def stop(self) -> None:
        """Ends it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without a word."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Ends it, and removes all that it kept."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _format(self, settings: pathlib.Path) -> None:
        """Makes an empty node; the settings get their name when that is done."""
        logs = self.folder.absolute() / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, controller, self.secure_port = free_ports(3)
        if (member := self.member) is not None:
            controller = member.ports[member.number - 1]
        text = SETTINGS.format(port=self.port, controller=controller, logs=logs)
        users: list[str] = []
        if (security := self.security) is not None:
            keystore = self.folder.absolute() / "node.pem"
            keystore.write_text(security.key.read_text() + security.certificate.read_text())
            # the last value of a key counts
            text += SECURE.format(
                port=self.port,
                controller=controller,
                secure=self.secure_port,
                keystore=keystore,
                jaas=JAAS,
                user=security.user,
                password=security.password,
            )
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                known = f"{mechanism}=[name={security.user},password={security.password}]"
                users += ["--add-scram", known]
        quorum = ["--standalone"]
        if member is not None:
            text, quorum = text + member.settings(), []
        draft = settings.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        arguments = ["format", *quorum, "-t", CLUSTER, "-c", str(draft), *users]
        try:
            done = subprocess.run(  # noqa: S603 -- our own command
                self._command("kafka.tools.StorageTool", *arguments, heap="128m"),
                capture_output=True,
                text=True,
                timeout=START_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NodeError(
                f"formatting {logs} took more than {START_S:.0f} s: start it again when the"
                f" machine is less busy"
            ) from error
        if done.returncode:
            raise NodeError(f"{done.stdout}{done.stderr}"[-2000:])
        draft.rename(settings)

    def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [java(), *options, "-cp", fetch(NODE).classpath, main, *arguments]

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        is_slow = self.process is not None and self.process.poll() is None
        self.kill()
        said = self.log.read_text(errors="replace")[-2000:]
        raise NodeError(f"{said}\nno answer within {START_S:.0f} s" if is_slow else said)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_formatted(folder: pathlib.Path) -> bool:
    """Whether a node can start there; a format that was interrupted left one of these or none."""
    parts = (folder / "server.properties", folder / "logs" / "meta.properties")
    return all(part.exists() for part in parts)


def known_port(settings: pathlib.Path) -> int:
    """The port of a node that was started in this folder before; 0 without one."""
    text = settings.read_text(encoding="utf-8") if settings.exists() else ""
    found = re.search(r"^listeners=PLAINTEXT://127\.0\.0\.1:(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
