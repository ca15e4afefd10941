"""Users and password hashes in a file, as `mosquitto_passwd` and `python -m mqttcore.passwd` write.

One ``user:hash`` a line; ``#`` begins a comment line. Known hashes: Argon2id, ``$7$`` and ``$6$``.

    [[plugins]]
    use = "mqttcore.auth.password_file"
    [plugins.config]
    path = "passwords"
    publish = ["device/%u/#"]
    subscribe = ["device/%u/#", "news/#"]

``%u`` stands for the user name, ``%c`` for the client identifier. If such a name is empty or
contains ``+``, ``#`` or ``/``, rules that would contain it do not apply to that client; its other
rules do. A rule of ``deny`` then denies all topics from the level of that name on.
"""

import pathlib
from collections.abc import Callable, Collection

from mqttcore._core import Login, check_password_hash
from mqttcore.auth.hashing import password_matches
from mqttcore.auth.rules import RulesPlugin, UserRules
from mqttcore.errors import PasswordFileError, PasswordHashError
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.hooks import hook


class PasswordFile(RulesPlugin):
    """Admits the users of a file, all with the same rules."""

    class Config(UserRules):
        """Keys of ``[plugins.config]``, including those of rules."""

        path: pathlib.Path
        """The file; relative to the configuration file."""

    config: Config

    async def reload(self) -> None:
        """Reads the files; if one cannot be used, neither changes.

        Raises:
            PasswordFileError: it cannot be used; the text names the line.
            AclFileError: as above.
        """
        hashes = read_password_file(self.config.path)
        await super().reload()
        self._hashes = hashes
        self._stand_in = next(iter(hashes.values()))

    @hook.authenticate(timeout=10.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Allows a known user with the right password; for others, the next plugin is asked."""
        if login.username is None:
            return None
        known = self._hashes.get(login.username)
        matches = await password_matches(login, known, stand_in=self._stand_in, peer=login.peer[0])
        if known is None:
            return None
        if not matches:
            return Deny("bad_credentials")
        return Allow(self.grant_for(user=login.username, client_id=login.client_id))

    def changed_users(self, before: Plugin, /) -> Collection[str] | None:
        """The users whose rules or password changed, or who were removed, in a reload."""
        users = super().changed_users(before)
        if users is None or not isinstance(before, PasswordFile):
            return None
        names = self._hashes.keys() | before._hashes.keys()
        changed = {name for name in names if self._hashes.get(name) != before._hashes.get(name)}
        return changed.union(users)


def read_password_file(
    path: pathlib.Path, *, check: Callable[[str], object] = check_password_hash
) -> dict[str, str]:
    """User names and hashes, each of which ``check`` accepts.

    Raises:
        PasswordFileError: the file cannot be read, it has no users, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PasswordFileError(f"{path}: cannot be read: {error}") from error
    hashes: dict[str, str] = {}
    faults = []
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#") and (fault := add_line(hashes, line, check)):
            faults.append(f"{path}:{number}: {fault}")
    if not hashes and not faults:
        faults.append(f"{path}: it has no users")
    if faults:
        raise PasswordFileError("\n".join(faults))
    return hashes


def add_line(hashes: dict[str, str], line: str, check: Callable[[str], object]) -> str | None:
    """Adds one line; returns the fault in it, without secrets."""
    user, colon, hashed = line.partition(":")
    if not colon or not user:
        return "expected user:hash"
    if user in hashes:
        return f"duplicate user {user!r}"
    try:
        check(hashed)
    except PasswordHashError as error:
        return str(error)
    hashes[user] = hashed
    return None
