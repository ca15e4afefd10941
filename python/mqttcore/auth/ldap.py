"""Users of an LDAP directory (OpenLDAP, Active Directory and others), by search and bind.

    [[plugins]]
    use = "mqttcore.auth.ldap"
    [plugins.config]
    url = "ldaps://ldap.example.com"
    bind_dn = "cn=reader,dc=example,dc=com"
    password_file = "ldap-password"
    base = "ou=people,dc=example,dc=com"
    filter = "(&(objectClass=inetOrgPerson)(uid=%u))"
    publish = ["%{departmentNumber}/%u/#"]

The broker searches the entry of a user, as ``bind_dn`` or anonymously, and then binds as that entry
with the password of the client. ``%{NAME}`` in a rule is the attribute ``NAME``, if it has one
value. A user without an entry is left to the next plugin, and so is one whose name is not exactly
a value of ``uid``: directories compare without regard to case. Referrals are not followed.
"""

import pathlib
import urllib.parse
from typing import Annotated

from mqttcore._core import Login
from mqttcore._schema import Parsed
from mqttcore.auth.backend import (
    BackendError,
    BackendPlugin,
    BadAnswerError,
    ServerConfig,
    is_local,
    secret_of,
    tls_context,
)
from mqttcore.auth.ldap_client import Address, DisconnectedError, LdapConnection
from mqttcore.auth.ldap_wire import ATTRIBUTE, Entry, Filter
from mqttcore.auth.marks import marks_of
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import Secret

PORTS = {"ldap": 389, "ldaps": 636}


class Ldap(BackendPlugin):
    """Admits the users of a directory."""

    class Config(ServerConfig):
        """Keys of ``[plugins.config]``, including those of rules and limits."""

        url: str
        """``ldaps://host``, or ``ldap://host`` without TLS; a port may follow."""
        base: str
        """The entry below which users are searched."""
        filter: Annotated[str, Parsed(Filter, "(uid=%u)")] = "(uid=%u)"
        """Filter for the entry of a user; ``%u`` is the user name, ``%c`` the client identifier."""
        username_attribute: str | None = None
        """The attribute that has exactly the user name; None: the attributes that ``filter``
        compares with ``%u`` alone."""
        bind_dn: str | None = None
        """The entry that searches are made as; None: anonymous."""
        password: Secret[str] | None = None
        """The password of ``bind_dn``."""
        password_file: pathlib.Path | None = None
        """A file with the password; relative to the configuration file."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        self._password = secret_of(config.password, config.password_file, name="password")
        if (config.bind_dn is None) != (self._password is None) or config.bind_dn == "":
            raise ValueError("bind_dn and its password must be set together")
        if "%u" not in config.filter:
            raise ValueError("filter has to name the user: %u")
        self._address = address_of(config)
        self._filter = Filter(config.filter)
        marks = marks_of([*config.publish, *config.subscribe, *config.deny])
        self._attributes = sorted({mark[2:-1] for mark in marks if mark[1] == "{"})
        for name in self._attributes:
            if not ATTRIBUTE.fullmatch(name):
                raise ValueError(f"%{{{name}}} in a rule is not an attribute")
        self._names = names_of(config, self._filter)
        self._idle: list[LdapConnection] = []

    async def start(self) -> None:
        """Connects, and tries a search.

        Raises:
            BackendError: that failed.
            AclFileError: the ACL file cannot be used.
        """
        await super().start()
        self._idle = []
        try:
            await self.request(lambda: self._find("mqttcore", "mqttcore"))
        except BadAnswerError as error:
            raise BackendError(str(error)) from None

    async def stop(self) -> None:
        """Closes the connections."""
        while self._idle:
            self._idle.pop().close()

    @hook.authenticate
    async def login(self, login: Login) -> Allow | Deny | None:
        """Admits a user with the right password; without an entry, the next plugin is asked."""
        name = login.username
        if name is None:
            return None
        if not name or not login.password:
            return Deny("bad_credentials")  # a bind without a password would be anonymous
        password = login.password
        try:
            entry = await self._entry(login, name)
            if entry is None:
                return None
            is_right = await self.request(lambda: self._is_password(entry, password))
            return self._allow(login, name, entry) if is_right else Deny("bad_credentials")
        except BadAnswerError as error:
            return self.refused(login, error)

    @hook.grant
    async def grant(self, login: Login) -> Allow | Deny | None:
        """The present rights of a connected user; a user without an entry is disconnected."""
        name = login.username
        if not name:
            return None
        try:
            entry = await self._entry(login, name)
            return None if entry is None else self._allow(login, name, entry)
        except BadAnswerError as error:
            return self.refused(login, error)

    def _allow(self, login: Login, name: str, entry: Entry) -> Allow:
        values = {}
        for attribute in self._attributes:
            found = entry.attributes.get(attribute.lower(), ())
            values[f"%{{{attribute}}}"] = found[0] if len(found) == 1 else ""
        return Allow(self.grant_for(user=name, client_id=login.client_id, values=values))

    async def _entry(self, login: Login, name: str) -> Entry | None:
        """The entry of a user, if the name is exactly one of its values."""
        entry = await self.request(lambda: self._find(name, login.client_id))
        if entry is None:
            return None
        if any(name in entry.attributes.get(one.lower(), ()) for one in self._names):
            return entry
        self.warn_of_name(login, name)
        return None

    async def _find(self, name: str, client_id: str) -> Entry | None:
        """The entry that the server finds, over a persistent connection."""
        if self._idle:
            connection = self._idle.pop()
            try:
                return await self._search(connection, name, client_id)
            except (OSError, EOFError, DisconnectedError):
                pass  # the server has ended it meanwhile
        connection = await LdapConnection.open(self._address)
        try:
            await self._bind(connection)
        except BaseException:
            connection.abort()
            raise
        return await self._search(connection, name, client_id)

    async def _bind(self, connection: LdapConnection) -> None:
        if self.config.bind_dn is None or self._password is None:
            return
        if not await connection.bind(self.config.bind_dn, self._password.encode()):
            raise BackendError("the server failed: it refuses the password of bind_dn")

    async def _search(self, connection: LdapConnection, name: str, client_id: str) -> Entry | None:
        """Searches; keeps the connection after a success."""
        try:
            entries = await connection.search(
                base=self.config.base,
                found=self._filter.encode({"%u": name, "%c": client_id}),
                attributes=sorted({*self._attributes, *self._names}),
                most=2,
                seconds=int(self.config.timeout_s) + 1,
            )
        except BaseException:
            connection.abort()
            raise
        self._idle.append(connection)
        if len(entries) > 1 or any(not entry.name for entry in entries):
            raise BadAnswerError("the filter finds more than one entry, or one without a name")
        return entries[0] if entries else None

    async def _is_password(self, entry: Entry, password: bytes) -> bool:
        """Whether an entry has this password; over a separate connection."""
        connection = await LdapConnection.open(self._address)
        try:
            return await connection.bind(entry.name, password)
        finally:
            connection.close()


def names_of(config: Ldap.Config, found: Filter) -> set[str]:
    """The attributes of which one must have exactly the user name.

    Raises:
        ValueError: there is none.
    """
    given = config.username_attribute
    if given is not None and not ATTRIBUTE.fullmatch(given):
        raise ValueError("username_attribute is not an attribute")
    names = found.attributes_of_user() if given is None else {given}
    if not names:
        raise ValueError("filter compares no attribute with %u alone: set username_attribute")
    return names


def address_of(config: Ldap.Config) -> Address:
    """The address of the server; without TLS only on this machine, unless that is allowed.

    Raises:
        ValueError: the URL cannot be used.
    """
    parts = urllib.parse.urlsplit(config.url)
    is_bare = not (parts.path.strip("/") or parts.query or parts.username or parts.password)
    if parts.scheme not in PORTS or not parts.hostname or not is_bare:
        raise ValueError("url is not like ldaps://ldap.example.com:636")
    if parts.scheme == "ldap" and not is_local(parts.hostname) and not config.plaintext:
        raise ValueError(
            f"{parts.hostname} would be reached without TLS: use ldaps, or set plaintext"
        )
    context = tls_context(config) if parts.scheme == "ldaps" else None
    return Address(parts.hostname, parts.port or PORTS[parts.scheme], context)
