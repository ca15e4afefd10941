"""Abuse table K: secrets in what the broker says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqttcore._core import Login, hash_password
from mqttcore.packets import decode_packet

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.eventually import eventually
from tests.wire import Wire, unique

CANARY = "canary-7f3a"
LEAKY = """
from mqttcore.plugin import Allow, Deny, Login, Plugin, PluginConfig, Secret, hook

class Leaky(Plugin):
    class Config(PluginConfig):
        token: Secret[str]

    @hook.authenticate()
    def login(self, login: Login) -> Allow | Deny | None:
        if login.username == "raises":
            password, token = login.password, self.config.token.reveal()
            raise ValueError(f"{login!r} {self.config!r}")
        return login if login.username == "junk" else None

    @hook.events("connected")
    def told(self, event) -> None:
        raise ValueError(repr(event))
"""
CONFIGURATION = f"""
log_level = "debug"
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "leaky:Leaky"
config = {{ token = "{CANARY}" }}
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
publish = ["#"]
subscribe = ["#", "$SYS/#"]
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker that knows secrets, and logs all that it says."""
    (tmp_path / "leaky.py").write_text(LEAKY)
    (tmp_path / "mqttcore.toml").write_text(CONFIGURATION)
    hashed = hash_password(CANARY.encode(), salt=b"0123456789abcdef")
    (tmp_path / "passwords").write_text(f"joe:{hashed}\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MQTTCORE__SYS_INTERVAL_S": "0.05"}
    config = tmp_path / "mqttcore.toml"
    server = ServerProcess(data=tmp_path / "data", config=config, environment=environment)
    server.start()
    yield server
    server.stop()


def attempts(port: int) -> Iterator[tuple[int, int]]:
    """Logins with the secret in every way that fails or succeeds; versions and reason codes."""
    for version in mqtt.VERSIONS:
        for user in ("joe", "raises", "junk", "nobody", CANARY[:0]):
            with Wire(port, version=version) as one:
                login: dict[str, Any] = {"username": user, "password": CANARY.encode()}
                one.send(mqtt.connect(unique("c"), version=version, **login))
                yield version, one.expect(mqtt.CONNACK).reason
        whole = mqtt.connect("c", version=version, username="joe", password=CANARY.encode())
        for broken in (whole[:-1] + b"\xff", whole + whole, b"\x10\xff\xff\xff\xff" + whole):
            with Wire(port, version=version) as one:
                one.send(broken)
                one.receive_until_close()


def test_k03_a_secret_is_in_nothing_that_the_broker_says(guarded: ServerProcess) -> None:
    assert guarded.process is not None
    assert guarded.config is not None
    reasons = list(attempts(guarded.port))
    with Wire(guarded.port) as one:
        expiry = {"session_expiry_interval": 60}
        one.connect("k03", username="joe", password=CANARY.encode(), props=expiry)
        one.subscribe("$SYS/#")
        figures = [one.receive_publish() for _ in range(40)]
    guarded.config.write_text(CONFIGURATION + '\nunknown = "x"\n[http]\ntoken_file = "none"\n')
    guarded.process.send_signal(signal.SIGHUP)
    eventually(lambda: "reload failed" in guarded.log.read_text())
    stopped = guarded.stop()

    log = guarded.log.read_text()
    assert stopped == 0
    assert (5, 0) in reasons
    assert "ValueError" in log
    assert "reload failed" in log
    assert CANARY not in log
    assert all(CANARY.encode() not in each.raw for each in figures)
    kept = b"".join(path.read_bytes() for path in guarded.data.iterdir() if path.is_file())
    assert b"k03" in kept
    assert CANARY.encode() not in kept


def test_k03_a_broker_writes_no_core_file(guarded: ServerProcess) -> None:
    assert guarded.process is not None
    limits = Path(f"/proc/{guarded.process.pid}/limits").read_text().splitlines()

    [core] = [line.split() for line in limits if line.startswith("Max core file size")]
    assert core[4] == "0"


def test_k03_a_secret_is_in_no_repr() -> None:
    login = Login(client_id="c", username="joe", password=CANARY.encode())
    data = mqtt.connect("c", username="joe", password=CANARY.encode())
    found = decode_packet(data, first=True)

    assert CANARY not in repr(login) + str(login) + format(login)
    assert CANARY not in repr(found)
    assert CANARY in str(login.password)


def memory_of(pid: int) -> Iterator[bytes]:
    """The memory of a process that it may write, one mapping after the other."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                memory.seek(start)
                yield memory.read(end - start)


def test_k03_a_password_is_not_in_memory_after_its_login(guarded: ServerProcess) -> None:
    right, wrong, client_id = CANARY.encode(), b"canary-wrong-5e91", "client-5c2e"
    assert guarded.process is not None
    assert guarded.config is not None
    guarded.stop()
    without_token = CONFIGURATION.replace(CANARY, "another")
    guarded.config.write_text(without_token)
    guarded.start()
    for version in mqtt.VERSIONS:
        for user, password in (("joe", right), ("joe", wrong), ("nobody", wrong)):
            with Wire(guarded.port, version=version) as one:
                one.send(mqtt.connect("c", version=version, username=user, password=password))
                one.expect(mqtt.CONNACK)
    with Wire(guarded.port) as one:
        one.connect(client_id, username="joe", password=right)
        one.ping()
        try:
            memory = b"".join(memory_of(guarded.process.pid))
        except OSError as error:
            pytest.skip(
                f"the memory of another process cannot be read, which takes ptrace: {error}"
            )
        assert client_id.encode() in memory, "the search finds what is there"

        def is_gone() -> bool:
            assert guarded.process is not None
            memory = b"".join(memory_of(guarded.process.pid))
            return right not in memory and wrong not in memory

        eventually(is_gone)  # threads of plugins, and connections of broken packets, may end later
