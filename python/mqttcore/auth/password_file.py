"""Users and password hashes in a file, as `mosquitto_passwd` and `python -m mqttcore.passwd` write.

One ``user:hash`` a line; ``#`` begins a comment line. Known hashes: Argon2id, ``$7$`` and ``$6$``.

    [[plugins]]
    use = "mqttcore.auth.password_file"
    [plugins.config]
    path = "passwords"
    publish = ["device/%u/#"]
    subscribe = ["device/%u/#", "news/#"]

``%u`` stands for the user name, ``%c`` for the client identifier. A rule into which a name with
``+``, ``#`` or ``/`` would go, or an empty one, does not hold for that client.
"""

import logging
import pathlib

from mqttcore._core import Login, check_password_hash
from mqttcore.auth.hashing import DUMMY_HASH, password_matches
from mqttcore.config import Filter
from mqttcore.errors import PasswordFileError, PasswordHashError
from mqttcore.plugin.answers import Allow, Deny, Grant
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import PluginConfig

log = logging.getLogger(__name__)


class PasswordFile(Plugin):
    """Lets in the users of a file, all with the same rules."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``."""

        path: pathlib.Path
        """The file; relative to the configuration file."""
        publish: tuple[Filter, ...] = ()
        """Topic filters that every user may publish to."""
        subscribe: tuple[Filter, ...] = ()
        """Topic filters that every user may subscribe to."""
        deny: tuple[Filter, ...] = ()
        """Topic filters that no user may touch."""

    config: Config

    async def start(self) -> None:
        """Reads the file.

        Raises:
            PasswordFileError: it cannot be used; the text names the line.
        """
        self._hashes = read_password_file(self.config.path)
        self._stand_in = next(iter(self._hashes.values()), DUMMY_HASH)

    @hook.authenticate(timeout=10.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Allows a known user with the right password; an unknown one is the next plugin's."""
        if login.username is None:
            return None
        known = self._hashes.get(login.username)
        matches = await password_matches(login.password, known, stand_in=self._stand_in)
        if known is None:
            return None
        return Allow(self._grant(login)) if matches else Deny("bad_credentials")

    def _grant(self, login: Login) -> Grant:
        names = {"%u": login.username or "", "%c": login.client_id}
        return Grant(
            publish=filled(self.config.publish, names),
            subscribe=filled(self.config.subscribe, names),
            deny=self._denials(names),
        )

    def _denials(self, names: dict[str, str]) -> list[str]:
        rules = filled(self.config.deny, names)
        # a denial that cannot be filled in denies everything, or rights would grow (abuse G16)
        return rules if len(rules) == len(self.config.deny) else ["#"]


def filled(rules: tuple[str, ...], names: dict[str, str]) -> list[str]:
    """The rules with names in them; one with a name that would change its shape is left out."""
    done = []
    for rule in rules:
        used = {mark: name for mark, name in names.items() if mark in rule}
        if any(not name or set(name) & set("+#/") for name in used.values()):
            log.warning("rule %r does not hold for %a: the name has +, # or /", rule, used)
            continue
        done.append(substituted(rule, used))
    return done


def substituted(rule: str, names: dict[str, str]) -> str:
    """Puts names in at once, so that a name with ``%c`` in it stays what it is."""
    parts = rule.split("%u") if "%u" in names else [rule]
    inner = [part.replace("%c", names["%c"]) if "%c" in names else part for part in parts]
    return names.get("%u", "").join(inner)


def read_password_file(path: pathlib.Path) -> dict[str, str]:
    """User names and hashes.

    Raises:
        PasswordFileError: the file cannot be read, has no users, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PasswordFileError(f"{path}: cannot be read: {error}") from error
    hashes: dict[str, str] = {}
    faults = []
    for number, line in enumerate(lines, start=1):
        if not line.startswith("#") and (fault := add_line(hashes, line)):
            faults.append(f"{path}:{number}: {fault}")
    if not hashes and not faults:
        faults.append(f"{path}: has no users")
    if faults:
        raise PasswordFileError("\n".join(faults))
    return hashes


def add_line(hashes: dict[str, str], line: str) -> str | None:
    """Takes one line; what is wrong with it, without its secrets."""
    user, colon, hashed = line.partition(":")
    if not colon or not user:
        return "expected user:hash"
    if user in hashes:
        return f"user {user!r} is there already"
    try:
        check_password_hash(hashed)
    except PasswordHashError as error:
        return str(error)
    hashes[user] = hashed
    return None
