"""Password hashing outside of event loops: a bounded pool, at most cores - 1 at once.

Addresses take turns: many connections of one address delay the login of another address by one
hash. Every second turn is for addresses from which somebody has logged in before: guessers at many
addresses delay these by one hash, too.
"""

import asyncio
import ipaddress
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from mqttcore._core import Login, verify_password
from mqttcore.errors import OverloadedError
from mqttcore.plugin import clock

WAITING_MAX = 256
KNOWN_MAX = 65_536
DUMMY_HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGtub3dzIGl0$"
    "8qPpaWig0H31wvibKAgpght2Ry2M8rtRQYtZ93ooMus"
)
"""A hash that costs as much as ours, of an unknown password."""


@cache
def pool() -> ThreadPoolExecutor:
    """The threads for hashing, created on first use."""
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="mqttcore-hashing")


class FairQueue:
    """Passwords that wait for hashing; their addresses take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._known: dict[str, None] = {}
        """Addresses from which somebody has logged in, the last one at the end."""
        self._waiting: tuple[Waiting, Waiting] = ({}, {})
        """Those of other addresses, and those of known ones; the first address has its turn."""
        self._turn = False
        """Whether known addresses had the last turn."""

    def remember(self, address: str) -> None:
        """Marks an address as one from which somebody has logged in."""
        with self._lock:
            self._known.pop(address, None)
            self._known[address] = None
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def put(self, address: str, work: Callable[[], bool]) -> Future[bool]:
        """Adds ``work`` after that of its address, and returns the future of its result.

        If the queue is full, the address with the most passwords loses its last one, which gets
        `OverloadedError`; for the first one of a known address, any other address does.

        Raises:
            OverloadedError: it is full, and no other address has more passwords in it.
        """
        task = Task(work)
        with self._lock:
            waiting = self._waiting[address in self._known]
            dropped = self._make_room(address, waiting)
            waiting.setdefault(address, deque()).append(task)
            self._count += 1
        if dropped is not None:
            dropped.refuse()
        return task.future

    def run_next(self) -> None:
        """Runs the next work, if there is any."""
        with self._lock:
            task = self._take()
        if task is not None:
            task.run()

    def _take(self) -> "Task | None":
        if not self._count:
            return None
        self._turn = not self._turn
        waiting = self._waiting[self._turn] or self._waiting[not self._turn]
        address = next(iter(waiting))
        tasks = waiting.pop(address)
        task = tasks.popleft()
        if tasks:
            waiting[address] = tasks
        self._count -= 1
        return task

    def _make_room(self, address: str, waiting: "Waiting") -> "Task | None":
        if self._count < WAITING_MAX:
            return None
        others, known = self._waiting
        is_first = waiting is known and address not in known and bool(others)
        every = others if is_first else {**others, **known}
        longest = max(every, key=lambda each: len(every[each]))
        if not is_first and len(every[longest]) <= len(waiting.get(address, ())) + 1:
            raise OverloadedError("too many passwords wait to be hashed")
        self._count -= 1
        task = every[longest].pop()
        if not every[longest]:
            del others[longest]
        return task


class Task:
    """One waiting password."""

    def __init__(self, work: Callable[[], bool]) -> None:
        self.future: Future[bool] = Future()
        self._work = work

    def run(self) -> None:
        """Hashes it, unless the answer is no longer needed."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except BaseException as error:
            self.future.set_exception(error)

    def refuse(self) -> None:
        """Refuses it: the queue is full."""
        if self.future.set_running_or_notify_cancel():
            error = OverloadedError("too many passwords of this address wait to be hashed")
            self.future.set_exception(error)


Waiting = dict[str, deque[Task]]
queue = FairQueue()


def address_of(peer: str) -> str:
    """The unit of addresses: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed[:8] + bytes(8), 64)))


async def password_matches(
    password: bytes | Login | None,
    hash: str | None,  # noqa: A002 - the word of the contract
    *,
    stand_in: str = DUMMY_HASH,
    peer: str = "",
) -> bool:
    """Whether ``password`` belongs to ``hash``.

    Without a hash, ``stand_in`` is computed and the answer is no, so that an unknown user costs as
    much as a known one. No password is a wrong password, and costs as much. That of a `Login` is
    not copied. ``peer`` is the IP address that the password came from: addresses take turns.

    Raises:
        OverloadedError: too many wait already.
        PasswordHashError: ``hash`` has no known format.
    """
    hook = clock.current.get()

    def work() -> bool:
        return verify(hook, password or b"", hash or stand_in)

    address = address_of(peer)
    future = queue.put(address, work)
    if hook is not None:
        hook.pause()
    pool().submit(queue.run_next)
    with clock.without_place():
        matches = await asyncio.wrap_future(future)
    is_right = matches and hash is not None and bool(password)
    if is_right:
        queue.remember(address)
    return is_right


def verify(hook: clock.HookClock | None, password: bytes | Login, hashed: str) -> bool:
    """Computes the hash, unless the hook has been cancelled."""
    if hook is not None and not hook.restart():
        return False
    return verify_password(hashed, password)
