"""Packets with one thing wrong, by the thousand: whatever comes, the broker stays."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.conftest import RunningBroker
from tests.wire import Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
FOLDER = Path(__file__).parent.parent / "vectors"
LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}


@pytest.fixture
def broker(start_broker: Callable[..., Broker]) -> Iterator[RunningBroker]:
    """One of its own: what garbage leaves behind, a retained message say, meets nobody else."""
    running = start_broker()
    yield running
    assert running.stats()["panics"] == 0


def seeds(version: int) -> list[bytes]:
    """The packets of the vectors that hold in this version, right and wrong, but not huge ones."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        for vector in tomllib.loads(path.read_text())["vector"]:
            data = bytes.fromhex(vector["hex"])
            if version in map(LEVELS.get, vector["versions"]) and 0 < len(data) < 2_000:
                found.append(data)
    return found


def mutations(version: int, count: int) -> Iterator[bytes]:
    """The same changed packets in each run: a bit turned, a byte more, a byte less, a cut."""
    dice = random.Random(version)  # noqa: S311 -- the same each time
    packets = seeds(version)
    for _ in range(count):
        data = bytearray(dice.choice(packets))
        place = dice.randrange(len(data))
        kind = dice.randrange(4)
        if kind == 0:
            data[place] ^= 1 << dice.randrange(8)
        elif kind == 1:
            data.insert(place, dice.randrange(256))
        elif kind == 2:
            del data[place]
        else:
            del data[place:]
        yield bytes(data)


def ask(one: Wire, data: bytes) -> bool:
    """Sends `data` and a PINGREQ; whether the connection goes on.

    It does not when the broker closed it, nor when the packet announces more than came.
    """
    one.socket.settimeout(0.02)
    answer = b""
    try:
        one.socket.sendall(data + mqtt.pingreq())
        while not answer.endswith(b"\xd0\x00"):
            chunk = one.socket.recv(65_536)
            if not chunk:
                return False
            answer += chunk
    except OSError:
        return False
    return True


@pytest.mark.parametrize("count", [600])
def test_changed_packets_after_connect(client: Open, version: int, count: int) -> None:
    one = client(version=version)

    for data in mutations(version, count):
        if not ask(one, data):
            one.close()
            one = client(version=version)

    one = client(version=version)
    one.ping()


@pytest.mark.parametrize("count", [500])
def test_changed_packets_before_connect(wire: Open, version: int, count: int) -> None:
    connects = [
        mqtt.connect(unique("c"), version=version),
        mqtt.connect(unique("c"), version=version, username="me", password=b"secret"),
        mqtt.connect(
            unique("c"),
            version=version,
            will=mqtt.Will(topic="w", payload=b"x", qos=1, retain=True),
        ),
    ]
    dice = random.Random(version)  # noqa: S311 -- the same each time

    for _ in range(count):
        data = bytearray(dice.choice(connects))
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        one = wire(version=version)
        ask(one, bytes(data))
        one.close()

    one = wire(version=version)
    one.connect(unique("c"))
    one.ping()
    one.publish("w", b"", retain=True)
