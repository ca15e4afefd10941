"""Keys of one test in Redis."""

from __future__ import annotations

from collections.abc import Mapping

from mqttcore.auth.redis import RedisUsers
from redis import Redis

from tests.services.logins import RED
from tests.services.state import HOST, PASSWORD
from tests.wire import unique

WORDS = {"readwrite": "all", "write": "publish", "read": "subscribe"}
"""Words of an access list as Redis has them."""


class RedisKeys:
    """Keys of one test."""

    plugin = RedisUsers
    acl_key = "acl_key"

    def __init__(self, port: int) -> None:
        self._redis = Redis(HOST, port, password=PASSWORD)
        self._prefix = unique("redis")
        self.config: Mapping[str, object] = {
            "url": f"redis://{HOST}:{port}",
            "password": PASSWORD,
            "user_key": f"{self._prefix}:user:%u",
            "acl_key": f"{self._prefix}:acl:%u",
        }

    def add_user(self, name: str, password_hash: str = RED, *, superuser: bool = False) -> None:
        """A user with the password ``red``."""
        self.add_fields(name, password_hash=password_hash, is_superuser=str(int(superuser)))

    def add_fields(self, name: str, **fields: str | bytes) -> None:
        """Fields of a user."""
        for field, value in fields.items():
            self._redis.hset(f"{self._prefix}:user:{name}", field, value)

    def add_rules(self, name: str, *rules: tuple[str, str]) -> None:
        """Rules of a user, with the words of an access list, or others that are nobody's."""
        for access, topic in rules:
            self._redis.hset(f"{self._prefix}:acl:{name}", topic, WORDS.get(access, access))

    def add_text(self, name: str) -> None:
        """A user whose key is no hash."""
        self._redis.set(f"{self._prefix}:user:{name}", "red")

    def close_others(self) -> int:
        """Closes all other connections; how many there were."""
        return self._redis.client_kill_filter(_type="normal", skipme=True)

    def close(self) -> None:
        """Removes its keys."""
        for key in self._redis.scan_iter(f"{self._prefix}:*"):
            self._redis.delete(key)
        self._redis.close()
