"""The cache of allowed logins, for hooks with ``cache=``."""

import hashlib
import math
import os
import random
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

from mqttcore._core import Login
from mqttcore.plugin.answers import Allow

ENTRIES_MAX = 4_096
JITTER = 0.1

asked_in: ContextVar[object | None] = ContextVar("mqttcore_login_cache_generation", default=None)
"""The generation of the cache in which this thread or task last looked for an answer."""


class LoginCache:
    """Cached answers by a keyed hash of all data of the login; passwords are not stored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._answers: dict[bytes, tuple[float, Allow]] = {}
        self._forgot_at = -math.inf
        self._generation: object | None = None
        """A new object after each `forget`."""

    def recall(self, hook: str, login: Login) -> Allow | None:
        """The cached answer for the same login, if it is still valid.

        Otherwise the thread or task that called this may `remember` the next answer.
        """
        with self._lock:
            asked_in.set(self._generation)
            until, answer = self._answers.get(self._name(hook, login), (0.0, None))
        return answer if self._clock() < until else None

    def forget(self) -> None:
        """Removes all answers, including those that hooks are about to return."""
        with self._lock:
            self._answers.clear()
            self._generation = object()
            self._forgot_at = self._clock()

    def remember(
        self, hook: str, login: Login, answer: Allow, seconds: float, *, age: float = 0.0
    ) -> None:
        """Caches an answer for ``seconds``, plus or minus a tenth; the oldest one is removed.

        ``age``: seconds since the question. Answers to questions from before `forget` are not
        cached, independent of the time at which a thread reads the clock.
        """
        lasting = seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - only spreads load
        name = self._name(hook, login)
        with self._lock:
            is_outdated = asked_in.get() is not self._generation
            if is_outdated or self._clock() - age <= self._forgot_at:
                return
            self._answers.pop(name, None)
            if len(self._answers) >= ENTRIES_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[name] = (self._clock() + lasting, answer)

    def _name(self, hook: str, login: Login) -> bytes:
        known_by = (
            hook,
            login.client_id,
            login.username,
            login.password,
            login.peer[0],
            login.listener,
            login.version,
        )
        return hashlib.blake2b(repr(known_by).encode(), key=self._key, digest_size=32).digest()
