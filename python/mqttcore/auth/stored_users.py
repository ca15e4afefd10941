"""Base of plugins whose server keeps users with password hashes: SQL databases, Redis."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttcore._core import Login, check_password_hash
from mqttcore.auth.backend import BackendPlugin, BadAnswerError, ServerConfig
from mqttcore.auth.hashing import DUMMY_HASH, password_matches
from mqttcore.errors import PasswordHashError
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.hooks import hook


@dataclass(frozen=True, slots=True)
class User:
    """Data of a user on the server."""

    password_hash: str | None = field(repr=False)
    """None: no password is right."""
    is_superuser: bool = False

    def __post_init__(self) -> None:
        if self.password_hash is None:
            return
        try:
            check_password_hash(self.password_hash)
        except PasswordHashError:
            raise BadAnswerError("password_hash has an unknown format") from None


class StoredUsers(BackendPlugin):
    """Admits users with the right password, with rules of the server or of the configuration."""

    def __init__(self, config: ServerConfig, /) -> None:
        super().__init__(config)
        self._stand_in = DUMMY_HASH

    async def find(self, login: Login, name: str) -> User | None:
        """Asks the server for a user; None: there is no user of that name.

        Raises:
            BadAnswerError: the answer makes no sense.
        """
        raise NotImplementedError

    async def rules(self, login: Login, name: str) -> Sequence[tuple[str, str]] | None:
        """Asks the server for the access list of a user; None: the configuration has the rules.

        Raises:
            BadAnswerError: the answer makes no sense.
        """
        raise NotImplementedError

    @hook.authenticate
    async def login(self, login: Login) -> Allow | Deny | None:
        """Admits a user with the right password; None for an unknown user."""
        name = login.username
        if name is None:
            return None
        try:
            user = await self.request(lambda: self.find(login, name))
            known = None if user is None else user.password_hash
            # an unknown user costs as much as a known one
            self._stand_in = known or self._stand_in
            matches = await password_matches(
                login, known, stand_in=self._stand_in, peer=login.peer[0]
            )
            if user is None:
                return None
            return await self._allow(login, name, user) if matches else Deny("bad_credentials")
        except BadAnswerError as error:
            return self.refused(login, error)

    @hook.grant
    async def grant(self, login: Login) -> Allow | Deny | None:
        """The present rights of a connected user; one without a password is disconnected."""
        name = login.username
        if name is None:
            return None
        try:
            user = await self.request(lambda: self.find(login, name))
            if user is None:
                return None
            is_locked = user.password_hash is None  # it could not log in either
            return Deny("not_authorized") if is_locked else await self._allow(login, name, user)
        except BadAnswerError as error:
            return self.refused(login, error)

    async def _allow(self, login: Login, name: str, user: User) -> Allow:
        if user.is_superuser:
            return self.allowed_everything(login, name)
        rules = await self.request(lambda: self.rules(login, name))
        if rules is None:
            return Allow(self.grant_for(user=name, client_id=login.client_id))
        return self.allowed(login, name, rules)
