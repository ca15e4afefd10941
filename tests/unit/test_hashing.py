"""`password_matches`: what is a yes, and how many may wait."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
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
    monkeypatch.setattr(hashing, "waiting", hashing.Waiting())
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
