"""Users in the configuration file, each with a password hash and rules of its own.

    [[plugins]]
    use = "mqttcore.auth.users"
    [[plugins.config.users]]
    name = "ann"
    password_hash = "$argon2id$v=19$m=19456,t=2,p=1$..."
    subscribe = ["#"]
    [[plugins.config.users]]
    name = "door"
    password_hash = "$7$1000$..."
    publish = ["door/%c/#"]

``python -m mqttcore.passwd FILE NAME`` writes ``NAME:HASH`` into a file; formats and ``%c`` are
those of `mqttcore.auth.password_file`. Reload the configuration to change a user.
"""

from collections.abc import Collection

from mqttcore._core import Login, check_password_hash
from mqttcore.auth.hashing import password_matches
from mqttcore.auth.rules import Rules, grant_of
from mqttcore.errors import PasswordHashError
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import PluginConfig, Secret


class User(Rules):
    """One user."""

    name: str
    """The user name."""
    password_hash: Secret[str]
    """Hash of the password: ``$argon2id$``, ``$7$`` or ``$6$``."""


class Users(Plugin):
    """Admits the users of its configuration."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``."""

        users: tuple[User, ...]
        """The users; at least one."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        self._users = {user.name: user for user in config.users}
        if not config.users or "" in self._users:
            raise ValueError("users must have at least one user, and each a name")
        if len(self._users) < len(config.users):
            raise ValueError("two users have the same name")
        for user in config.users:
            try:
                check_password_hash(user.password_hash.reveal())
            except PasswordHashError as error:
                raise ValueError(f"password_hash of {user.name!r}: {error}") from None
        self._stand_in = config.users[0].password_hash.reveal()

    @hook.authenticate(timeout=10.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Allows a known user with the right password; for others, the next plugin is asked."""
        if login.username is None:
            return None
        user = self._users.get(login.username)
        known = None if user is None else user.password_hash.reveal()
        matches = await password_matches(login, known, stand_in=self._stand_in, peer=login.peer[0])
        if user is None:
            return None
        if not matches:
            return Deny("bad_credentials")
        return Allow(grant_of(user, user=user.name, client_id=login.client_id))

    def changed_users(self, before: Plugin, /) -> Collection[str] | None:
        """The users whose entries changed in a reload."""
        if not isinstance(before, Users):
            return None
        names = self._users.keys() | before._users.keys()
        return {name for name in names if self._users.get(name) != before._users.get(name)}
