"""Password hashing off every event loop: a bounded pool, at most cores - 1 at once."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from mqttcore._core import verify_password
from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock

WAITING_MAX = 256
DUMMY_HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGtub3dzIGl0$"
    "8qPpaWig0H31wvibKAgpght2Ry2M8rtRQYtZ93ooMus"
)
"""Costs as much as a hash that we write, and belongs to no password that anybody knows."""


@cache
def pool() -> ThreadPoolExecutor:
    """The threads that hash, made on first use."""
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="mqttcore-hashing")


class Waiting:
    """How many passwords wait or are hashed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def enter(self) -> None:
        """Takes a place.

        Raises:
            OverloadedError: all are taken.
        """
        with self._lock:
            if self._count >= WAITING_MAX:
                raise OverloadedError("too many passwords wait to be hashed")
            self._count += 1

    def leave(self) -> None:
        """Gives the place back."""
        with self._lock:
            self._count -= 1


waiting = Waiting()


async def password_matches(
    password: bytes | None,
    hash: str | None,  # noqa: A002 - the word of the contract
    *,
    stand_in: str = DUMMY_HASH,
) -> bool:
    """Whether ``password`` belongs to ``hash``.

    Without a hash, ``stand_in`` is computed and the answer is no, so that an unknown user costs as
    much as a known one. No password is a wrong password, and costs as much.

    Raises:
        OverloadedError: too many wait already.
        PasswordHashError: ``hash`` has no known format.
    """
    waiting.enter()
    hook = clock.current.get()
    if hook is not None:
        hook.pause()
    future = pool().submit(verify, hook, password or b"", hash or stand_in)
    future.add_done_callback(lambda _: waiting.leave())
    matches = await asyncio.wrap_future(future)
    return matches and hash is not None and bool(password)


def verify(hook: clock.HookClock | None, password: bytes, hashed: str) -> bool:
    """Computes the hash, unless the hook has been cancelled."""
    if hook is not None and not hook.restart():
        return False
    return verify_password(hashed, password)
