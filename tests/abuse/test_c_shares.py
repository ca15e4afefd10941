"""Abuse tables C and H: what one address may take of the tables that all clients share.

The attackers have addresses of their own, 127.0.0.2 and on, which these brokers do not exempt.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore._core import hash_password
from mqttcore.auth.password_file import PasswordFile
from mqttcore.config import Listener

from tests import wire as mqtt
from tests.wire import PATIENCE_S, ClosedByPeerError, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Start = Callable[..., "Broker"]
From = Callable[[str, int], Wire]

ATTACKER, HONEST = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def dial() -> Iterator[From]:
    """Opens a connection from an address to a port."""
    with ExitStack() as stack:

        def dial_from(address: str, port: int) -> Wire:
            opened = socket.create_connection(
                ("127.0.0.1", port), PATIENCE_S, source_address=(address, 0)
            )
            return stack.enter_context(Wire(port, using=opened))

        yield dial_from


def is_let_in(one: Wire) -> bool:
    """Whether the broker answers CONNECT; it closes connections above a limit instead."""
    try:
        return one.connect(unique("c")).reason == 0
    except (ClosedByPeerError, ConnectionError):
        return False


def wait_for(broker: Broker, key: str, at_least: int) -> None:
    """Waits until a counter is there."""
    until = time.monotonic() + PATIENCE_S
    while broker.stats()[key] < at_least:
        assert time.monotonic() < until, broker.stats()
        time.sleep(0.01)


def test_c15_half_open_connections_of_one_address_keep_nobody_out(
    start_broker: Start, dial: From
) -> None:
    broker = start_broker(
        exempt_addresses=(), pending_connections=64, address_connects_per_second=0
    )

    half_open = [dial(ATTACKER, broker.port) for _ in range(200)]
    wait_for(broker, "connections_refused_address_pending", 200 - 48)

    # a quarter of the table is left to others
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(16))
    half_open[0].close()
    assert broker.stats()["connections_refused"] == 200 - 48


def test_c15_connected_clients_of_one_address_keep_nobody_out(
    start_broker: Start, dial: From
) -> None:
    broker = start_broker(exempt_addresses=(), connections=20, address_connections=1_000)

    clients = [dial(ATTACKER, broker.port) for _ in range(30)]

    assert [is_let_in(each) for each in clients] == [True] * 15 + [False] * 15
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(3))
    assert broker.stats()["connections_refused_address"] == 15


def test_h06_a_storm_of_one_address_is_limited_and_delays_nobody(
    start_broker: Start, dial: From
) -> None:
    broker = start_broker(exempt_addresses=(), connects_per_second=40)
    start = time.monotonic()

    storm = [dial(ATTACKER, broker.port) for _ in range(400)]
    assert all(is_let_in(dial(HONEST, broker.port)) for _ in range(20))
    let_in = [is_let_in(each) for each in storm]

    # 20 a second, of which those of five seconds come at once
    assert 100 <= sum(let_in) <= 100 + 20 * (time.monotonic() - start) + 1
    stats = broker.stats()
    assert stats["connections_refused_address_rate"] == let_in.count(False)
    assert stats["connections_refused_listener_rate"] == 0


def test_h06_a_storm_of_many_addresses_ends_at_the_rate_of_the_listener(
    start_broker: Start, dial: From
) -> None:
    broker = start_broker(exempt_addresses=("127.0.0.1", "127.0.0.3"), connects_per_second=2)
    start = time.monotonic()

    storm = [is_let_in(dial(f"127.0.1.{host}", broker.port)) for host in range(1, 101)]

    assert 10 <= sum(storm) <= 10 + 2 * (time.monotonic() - start) + 1
    assert broker.stats()["connections_refused_listener_rate"] == storm.count(False)
    assert is_let_in(dial(HONEST, broker.port))


@pytest.fixture
def start_locked(tmp_path: Path, start_broker: Start) -> Start:
    """Starts brokers whose second listener lets in joe and eve only, by their passwords."""
    path = tmp_path / "passwords"
    users = {"joe": b"right", "eve": b"evil"}
    hashes = {
        user: hash_password(password, salt=b"0123456789abcdef") for user, password in users.items()
    }
    path.write_text("".join(f"{user}:{hashed}\n" for user, hashed in hashes.items()))
    listeners = (
        Listener(address="127.0.0.1:0", anonymous=True),
        Listener(address="127.0.0.1:0", name="locked"),
    )

    def start(**changes: Any) -> Broker:  # noqa: ANN401 -- fields of two dataclasses
        plugin = PasswordFile(PasswordFile.Config(path=path, publish=("#",), subscribe=("#",)))
        changes.setdefault("exempt_addresses", ("127.0.0.1",))
        return start_broker(plugin, listeners=listeners, **changes)

    return start


def log_in(one: Wire, user: str, password: bytes) -> int:
    """Sends CONNECT; returns the reason code."""
    one.send(mqtt.connect(unique("c"), username=user, password=password, version=one.version))
    reason: int = one.expect(mqtt.CONNACK).reason
    return reason


def test_c16_guesses_of_one_address_end_after_ten_whatever_comes_then(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked()
    port = broker.addresses[1][1]

    answers = []
    for number in range(12):
        # every second login is right, with an account of the guesser's own
        assert log_in(dial(ATTACKER, port), "eve", b"evil") == 0
        answers.append(log_in(dial(ATTACKER, port), "joe", b"%d" % number))
    right = log_in(dial(ATTACKER, port), "joe", b"right")

    assert answers == [0x86] * 10 + [0x8A] * 2
    assert right == 0x8A
    assert broker.stats()["connects_refused_failed_logins"] == 3
    assert broker.stats()["logins_failed"] == 10


def test_c16_a_device_with_an_old_password_does_not_lock_out_its_site(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked()
    port = broker.addresses[1][1]
    for user, password in (("joe", b"right"), ("eve", b"evil")):
        assert log_in(dial(HONEST, port), user, password) == 0

    answers = [log_in(dial(HONEST, port), "joe", b"old") for _ in range(12)]

    assert answers == [0x86] * 10 + [0x8A] * 2
    assert log_in(dial(HONEST, port), "eve", b"evil") == 0


def test_c16_guesses_behind_an_exempt_address_end_after_ten_of_a_user_name(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked(exempt_addresses=("127.0.0.1", ATTACKER))
    port = broker.addresses[1][1]

    answers = [log_in(dial(ATTACKER, port), "joe", b"%d" % number) for number in range(12)]

    assert answers == [0x86] * 10 + [0x8A] * 2
    assert log_in(dial(ATTACKER, port), "eve", b"evil") == 0


def test_c16_guesses_of_many_addresses_say_nothing_about_the_user_and_do_not_lock_it_out(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked()
    port = broker.addresses[1][1]
    assert log_in(dial(HONEST, port), "joe", b"right") == 0

    answers = {
        user: [log_in(dial(f"127.0.{net}.{host}", port), user, b"guess") for host in range(1, 13)]
        for net, user in enumerate(("joe", "nobody"), start=1)
    }

    assert answers["joe"] == answers["nobody"] == [0x86] * 10 + [0x8A] * 2
    assert log_in(dial("127.0.3.1", port), "joe", b"right") == 0x8A
    assert log_in(dial(HONEST, port), "joe", b"right") == 0


def test_c17_guessers_at_once_delay_the_login_of_another_address_by_a_few_hashes(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked(failed_logins_per_minute=0, address_connects_per_second=0)
    port = broker.addresses[1][1]
    honest = dial(HONEST, port)
    guessers = [dial(ATTACKER, port) for _ in range(200)]
    for number, each in enumerate(guessers):
        each.send(mqtt.connect(unique("c"), username="joe", password=b"%d" % number))
    wait_for(broker, "logins_failed", 1)

    before = broker.stats()["logins_failed"]
    assert log_in(honest, "joe", b"right") == 0

    assert broker.stats()["logins_failed"] - before <= 8
    for each in guessers:
        each.close()


def test_c17_a_flood_of_guesses_ends_at_the_limit_and_is_never_an_error_of_the_plugin(
    start_locked: Start, dial: From
) -> None:
    broker = start_locked(address_connects_per_second=0)
    port = broker.addresses[1][1]
    guessers = [dial(ATTACKER, port) for _ in range(200)]

    for number, each in enumerate(guessers):
        each.send(mqtt.connect(unique("c"), username="joe", password=b"%d" % number))
    assert log_in(dial(HONEST, port), "eve", b"evil") == 0
    answers = Counter(each.expect(mqtt.CONNACK).reason for each in guessers)

    assert set(answers) <= {0x86, 0x89, 0x8A}
    assert 10 <= answers[0x86] <= 11
