"""`password_matches`: what is a yes, how many may wait, and in which order they are hashed."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

import pytest
from mqttcore.auth import hashing
from mqttcore.auth.hashing import password_matches
from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock


@pytest.mark.parametrize(
    ("password", "known", "is_yes"),
    [(b"pw", "hash", True), (b"pw", None, False), (b"", "hash", False), (None, "hash", False)],
)
def test_only_a_password_beside_a_hash_can_match(
    monkeypatch: pytest.MonkeyPatch, password: bytes | None, known: str | None, is_yes: bool
) -> None:
    """An unknown user costs a hash that somebody's password may fit: that is no yes."""
    hashed: list[tuple[str, bytes]] = []

    def verified(text: str, password: bytes) -> bool:
        hashed.append((text, password))
        return True

    monkeypatch.setattr(hashing, "verify_password", verified)

    found = asyncio.run(password_matches(password, known, stand_in="stand-in"))

    assert found is is_yes
    assert hashed == [(known or "stand-in", password or b"")]


def test_a_password_is_not_hashed_for_a_hook_whose_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[str] = []

    def verified(text: str, _: bytes) -> bool:
        hashed.append(text)
        return True

    monkeypatch.setattr(hashing, "verify_password", verified)

    class Over:
        """The clock of a hook that nobody waits for."""

        without_place = staticmethod(contextlib.nullcontext)

        def pause(self) -> None:
            """Waits for a place."""

        def restart(self) -> bool:
            """Nobody waits for the answer."""
            return False

    async def asked() -> bool:
        clock.current.set(cast("clock.HookClock", Over()))
        return await password_matches(b"pw", "hash")

    assert asyncio.run(asked()) is False
    assert not hashed


def test_so_many_wait_and_no_more_and_each_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashing, "WAITING_MAX", 2)
    monkeypatch.setattr(hashing, "queue", hashing.FairQueue())
    monkeypatch.setattr(hashing, "verify_password", lambda *_: True)
    release = threading.Event()

    async def crowd() -> list[bool | BaseException]:
        pool.submit(release.wait)
        waiting = [asyncio.create_task(password_matches(b"pw", "hash")) for _ in range(3)]
        await asyncio.wait([waiting[2]])
        release.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(hashing, "pool", lambda: pool)
        for _ in range(2):
            release.clear()
            *answers, refused = asyncio.run(crowd())
            assert answers == [True, True]
            assert isinstance(refused, OverloadedError)
            assert str(refused) == "too many passwords wait to be hashed"


def noted(order: list[str], name: str) -> bool:
    """Work that notes when it is done."""
    order.append(name)
    return True


def test_addresses_take_turns() -> None:
    queue, order = hashing.FairQueue(), list[str]()
    for number in range(200):
        queue.put("192.0.2.1", partial(noted, order, f"guess {number}"))
    honest = queue.put("192.0.2.2", partial(noted, order, "honest"))

    while not honest.done():
        queue.run_next()

    assert order == ["guess 0", "honest"]


def test_an_address_of_an_earlier_login_waits_for_one_guess_whatever_the_number_of_addresses() -> (
    None
):
    queue, order = hashing.FairQueue(), list[str]()
    queue.remember("192.0.2.2")
    for number in range(200):
        queue.put(f"198.51.100.{number}", partial(noted, order, f"guess {number}"))
    honest = [queue.put("192.0.2.2", partial(noted, order, "honest")) for _ in range(2)]

    while not honest[-1].done():
        queue.run_next()

    assert order in (
        ["honest", "guess 0", "honest"],
        ["guess 0", "honest", "guess 1", "honest"],
    )


def test_a_full_queue_has_a_place_for_each_address_of_an_earlier_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashing, "WAITING_MAX", 4)
    queue = hashing.FairQueue()
    guesses = [queue.put(f"198.51.100.{number}", bool) for number in range(4)]
    with pytest.raises(OverloadedError):
        queue.put("192.0.2.2", bool)
    queue.remember("192.0.2.2")

    honest = queue.put("192.0.2.2", bool)
    with pytest.raises(OverloadedError):
        queue.put("192.0.2.2", bool)

    assert sum(each.done() for each in guesses) == 1
    for _ in range(5):
        queue.run_next()
    assert honest.result() is False
    assert all(each.done() for each in guesses)


def test_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "KNOWN_MAX", 2)
    queue = hashing.FairQueue()

    for address in ("a", "b", "a", "c"):
        queue.remember(address)

    assert list(queue._known) == ["a", "c"]


def test_a_full_queue_drops_the_last_password_of_the_address_with_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashing, "WAITING_MAX", 4)
    queue = hashing.FairQueue()
    guesses = [queue.put("192.0.2.1", bool) for _ in range(4)]

    with pytest.raises(OverloadedError):
        queue.put("192.0.2.1", bool)
    honest = queue.put("192.0.2.2", lambda: True)

    with pytest.raises(OverloadedError, match="of this address"):
        guesses[3].result(timeout=0)
    for _ in range(5):
        queue.run_next()
    assert honest.result(timeout=0)
    assert [guess.done() for guess in guesses] == [True] * 4


def test_an_address_that_has_as_many_as_any_other_gets_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashing, "WAITING_MAX", 3)
    queue = hashing.FairQueue()
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        queue.put(address, bool)

    with pytest.raises(OverloadedError):
        queue.put("192.0.2.2", bool)


def test_a_password_whose_client_is_gone_is_not_hashed() -> None:
    queue, order = hashing.FairQueue(), list[str]()
    queue.put("192.0.2.1", lambda: noted(order, "gone")).cancel()

    queue.run_next()

    assert order == []


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("", ""),
    ],
)
def test_an_address_is_an_ipv4_address_or_64_bits(peer: str, address: str) -> None:
    assert hashing.address_of(peer) == address


def test_memory_of_hashes_is_used_again() -> None:
    """A hash takes 19 MiB; twenty-four of them, two at once, leave the memory of two."""
    code = """
import pathlib
from concurrent.futures import ThreadPoolExecutor
from mqttcore._core import hash_password, verify_password

def resident():
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096

hashed = hash_password(b"pw", salt=b"0123456789abcdef")
before = resident()
with ThreadPoolExecutor(2) as pool:
    assert all(pool.map(lambda _: verify_password(hashed, b"pw"), range(24)))
print(resident() - before)
"""
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 3 * 19 * 2**20
