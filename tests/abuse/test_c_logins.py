"""Abuse table C, where the broker runs as a process or hashes passwords."""

from __future__ import annotations

import base64
import hashlib
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from mqttcore import Broker
from mqttcore._core import hash_password, verify_password
from mqttcore.auth import hashing
from mqttcore.auth.password_file import PasswordFile
from mqttcore.config import Listener

from tests import wire as mqtt
from tests.abuse.beside import Beside
from tests.conftest import RunningBroker
from tests.crash.process import ServerProcess
from tests.eventually import eventually
from tests.wire import PATIENCE_S, Wire, unique

Open = Callable[..., Wire]

CONFIGURATION = """\
[[listeners]]
address = "127.0.0.1:0"
anonymous = true
[limits]
maximum_packet_size = {size}
"""


def test_c18_a_verifier_hashes_no_more_than_1_024_bytes() -> None:
    longest = b"x" * 1_024

    def hashed(password: bytes) -> str:
        digest = hashlib.sha512(password + b"salt").digest()
        salt = base64.b64encode(b"salt").decode()
        return f"$6${salt}${base64.b64encode(digest).decode()}"

    assert verify_password(hashed(longest), longest)
    assert not verify_password(hashed(longest + b"x"), longest + b"x")


def test_c18_a_password_of_65_535_bytes_ends_at_the_header(wire: Open, version: int) -> None:
    one = wire(version=version)
    data = mqtt.connect(unique("c"), username="u", password=b"x" * 65_535, version=version)

    one.send(data[:24])

    one.expect_no_entry(0x95)


def keep_alive_timers(port: int, peers: Collection[int]) -> set[str]:
    """How the kernel calls the timers of the broker's sockets: 2 is that of keep alive."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]

    def port_of(end: str) -> int:
        return int(end.rpartition(":")[2], 16)

    ours = [each for each in fields if port_of(each[1]) == port and port_of(each[2]) in peers]
    return {each[5].partition(":")[0] for each in ours if each[3] == "01"}


def test_c28_a_peer_that_vanished_is_found_by_tcp(client: Open, broker: RunningBroker) -> None:
    silent = [client(version=4, keep_alive=0) for _ in range(3)]
    peers = [each.socket.getsockname()[1] for each in silent]
    for each in silent:
        each.ping()

    until = time.monotonic() + PATIENCE_S
    # a timer of an acknowledgement that is on its way stands before it, for milliseconds
    while keep_alive_timers(broker.port, peers) != {"02"} and time.monotonic() < until:
        silent[0].ping()

    assert keep_alive_timers(broker.port, peers) == {"02"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker of its own process, with a configuration file."""
    config = tmp_path / "mqttcore.toml"
    config.write_text(CONFIGURATION.format(size=1_000))
    one = ServerProcess(data=tmp_path / "data", config=config)
    one.start()
    with Beside(one.port):
        yield one
    one.stop()


def reload(server: ServerProcess, answer: str) -> None:
    """Sends SIGHUP and waits until the log has `answer` in a new line."""
    assert server.process is not None
    before = len(server.log.read_text())
    server.process.send_signal(signal.SIGHUP)
    eventually(
        lambda: answer in server.log.read_text()[before:],
        told=lambda: server.log.read_text()[before:],
    )


def test_c30_a_reload_without_descriptors_keeps_the_configuration(
    server: ServerProcess, wire: Open
) -> None:
    assert server.process is not None
    assert server.config is not None
    pid = server.process.pid
    one = wire(port=server.port)
    assert one.connect(unique("c")).property("maximum_packet_size") == 1_000
    server.config.write_text(CONFIGURATION.format(size=2_000))

    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))
    reload(server, "Too many open files")
    one.ping()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))

    assert wire(port=server.port).connect(unique("c")).property("maximum_packet_size") == 1_000
    reload(server, "reloaded; changed")
    assert wire(port=server.port).connect(unique("c")).property("maximum_packet_size") == 2_000
    one.ping()


@pytest.fixture
def locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_broker: Callable[..., Broker]
) -> Broker:
    """A broker that hashes passwords, of which 16 may wait."""
    monkeypatch.setattr(hashing, "WAITING_MAX", 16)
    path = tmp_path / "passwords"
    path.write_text(f"joe:{hash_password(b'right', salt=b'0123456789abcdef')}\n")
    plugin = PasswordFile(PasswordFile.Config(path=path, publish=("#",), subscribe=("#",)))
    listener = Listener(address="127.0.0.1:0", name="locked")
    return start_broker(plugin, listeners=(listener,))


def test_c17_a_flood_of_logins_is_refused_as_busy_and_delays_no_message(
    locked: Broker, client: Open, wire: Open, topic: str
) -> None:
    honest = {"username": "joe", "password": b"right", "port": locked.port}
    one = client(**honest)
    one.subscribe(topic)

    guessers = [wire(port=locked.port) for _ in range(80)]
    for number, each in enumerate(guessers):
        # one user name is tried less often than the back-off of failed logins allows
        user = "joe" if number % 10 == 0 else f"nobody-{number}"
        each.send(mqtt.connect(unique("c"), username=user, password=b"wrong"))
    for number in range(50):
        one.publish(topic, b"%d" % number)
        assert one.receive_publish().payload == b"%d" % number

    reasons = Counter(each.expect(mqtt.CONNACK).reason for each in guessers)
    assert set(reasons) == {0x86, 0x89}
    assert reasons[0x86] >= 16
    client(**honest).ping()
    # the memory of one hash, 19 MiB, is kept for the next one, and the budget has an eighth for all
    eventually(lambda: locked.stats()["memory_passwords_bytes"] >= 19 << 20)
    stats = locked.stats()
    assert stats["memory_passwords_bytes"] <= stats["memory_budget_bytes"] // 8
