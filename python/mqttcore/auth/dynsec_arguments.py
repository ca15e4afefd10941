"""Arguments of the commands of dynamic security: names, texts, passwords, ACLs and pages."""

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast, get_args

from mqttcore.auth.dynsec_file import INTEGER_MAX, Json, topic_fault
from mqttcore.auth.dynsec_state import (
    PRIORITY,
    Acl,
    AclType,
    Client,
    Group,
    Password,
    Priorities,
    Role,
    State,
    Texts,
    acls_in_order,
)

T = TypeVar("T")

LABELS = {
    "username": "Username",
    "clientid": "Client ID",
    "groupname": "Group name",
    "rolename": "Role name",
    "topic": "Topic",
}
"""Members that are names or topics, as errors call them."""
PASSWORDS_MAX = 100
"""Maximum number of passwords in one request: each one costs as much as a login."""
PASSWORD_BYTES_MAX = 1_024
SALT_BYTES = 12


class CommandError(Exception):
    """A command is refused; the text is that of Mosquitto, if it has one."""


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """The clients, groups or roles of a state."""

    name: str
    """The field of `State`; also the member of commands with such names."""
    key: str
    """The member of a command with the name of an entry."""
    word: str
    """The name in errors."""

    def of(self, state: State) -> Mapping[str, T]:
        """All entries, by name."""
        return cast(Mapping[str, T], getattr(state, self.name))

    def put(self, state: State, name: str, row: T) -> State:
        """Returns the state with a new or changed entry."""
        field: dict[str, Any] = {self.name: {**self.of(state), name: row}}  # its type: see `of`
        return replace(state, **field)


CLIENTS: Table[Client] = Table("clients", "username", "Client")
GROUPS: Table[Group] = Table("groups", "groupname", "Group")
ROLES: Table[Role] = Table("roles", "rolename", "Role")


class Hashing:
    """Hashes the passwords of one request."""

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self._count = 0

    def password(self, text: str) -> Password:
        """A new password with a salt of its own."""
        self._count += 1
        if self._count > PASSWORDS_MAX:
            raise CommandError(f"More than {PASSWORDS_MAX} passwords in one request")
        salt = os.urandom(SALT_BYTES)
        hashed = hashlib.pbkdf2_hmac("sha512", text.encode(), salt, self._iterations)
        return Password(
            hash=base64.b64encode(hashed).decode(),
            salt=base64.b64encode(salt).decode(),
            iterations=self._iterations,
        )


class Arguments:
    """The members of a command, or of an object in it.

    Each method raises `CommandError` if the member has another type.
    """

    def __init__(self, fields: Json, hashing: Hashing) -> None:
        self._fields = fields
        self._hashing = hashing

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def take(self, key: str, kind: type[T], error: str | None = None) -> T | None:
        """A member of this type; None if it is missing."""
        found = self._fields.get(key)
        if key in self._fields and type(found) is not kind:
            raise CommandError(error or f"Invalid/missing {key}")
        return cast(T | None, found)

    def text(self, key: str, default: T) -> str | T:
        """A text; names and topics have only characters that Mosquitto allows in them."""
        found = self.take(key, str, "Invalid/missing client id" if key == "clientid" else None)
        if found is not None and key in LABELS and not all(map(is_allowed, found)):
            raise CommandError(f"{LABELS[key]} not valid UTF-8")
        return default if found is None else found

    def name(self, key: str) -> str:
        """A text that must be present and not empty."""
        found = self.text(key, "")
        if not found:
            raise CommandError(f"Invalid/missing {key}")
        return found

    def known(self, table: Table[T], state: State) -> str:
        """A name that is in the table."""
        name = self.name(table.key)
        if name not in table.of(state):
            raise CommandError(f"{table.word} not found")
        return name

    def new(self, table: Table[T], state: State) -> str:
        """A name that is not in the table."""
        name = self.name(table.key)
        if name in table.of(state):
            raise CommandError(f"{table.word} already exists")
        return name

    def priority(self, default: int) -> int:
        """The priority."""
        found = self.take("priority", int)
        if found is not None and not -INTEGER_MAX <= found <= INTEGER_MAX:
            raise CommandError("Invalid/missing priority")
        return default if found is None else found

    def flag(self, key: str) -> bool:
        """True or false; false if it is missing."""
        return bool(self.take(key, bool))

    def password(self) -> Password | None:
        """A new password, unless it is missing or empty."""
        found = self.text("password", "")
        if len(found.encode()) > PASSWORD_BYTES_MAX:
            raise CommandError("Password is too long")
        return self._hashing.password(found) if found else None

    def texts(self, texts: Texts) -> Texts:
        """Text names and descriptions; missing ones are unchanged."""
        return Texts(
            name=self.text("textname", texts.name),
            description=self.text("textdescription", texts.description),
        )

    def objects(self, key: str, error: str | None = None) -> "Iterator[Arguments]":
        """The objects of a list."""
        for found in self.take(key, list, error) or ():
            if not isinstance(found, dict):
                raise CommandError(error or f"Invalid/missing {key}")
            yield Arguments(found, self._hashing)

    def priorities(self, table: Table[T], state: State, default: Priorities) -> Priorities:
        """Names that are in the table, each with a priority."""
        if table.name not in self:
            return default
        error = f"'{table.name}' not an array or missing/invalid {table.key}"
        found = {}
        for fields in self.objects(table.name, error):
            if not fields.take(table.key, str, error):
                raise CommandError(error)
            found[fields.known(table, state)] = fields.priority(PRIORITY)
        return found

    def acl(self) -> Acl:
        """One ACL."""
        kind = self.name("acltype")
        if kind not in get_args(AclType):
            raise CommandError("Unknown acltype")
        topic = self.name("topic")
        if topic_fault(topic) is not None:
            raise CommandError("Invalid ACL topic")
        return Acl(
            kind=cast(AclType, kind),
            topic=topic,
            is_allowed=self.flag("allow"),
            priority=self.priority(0),
        )

    def acls(self) -> tuple[Acl, ...]:
        """The ACLs of a role; the first one about a topic counts."""
        found: dict[tuple[AclType, str], Acl] = {}
        for fields in self.objects("acls"):
            acl = fields.acl()
            found.setdefault((acl.kind, acl.topic), acl)
        return acls_in_order(found.values())

    def page(self, names: Mapping[str, T]) -> list[str]:
        """The names on the page that a list command asks for."""
        count, offset = self.take("count", int), self.take("offset", int)
        begin = max(0, offset or 0)
        end = None if count is None or count < 0 else begin + count
        return sorted(names)[begin:end]


def is_allowed(character: str) -> bool:
    """Whether a character is no control character and no noncharacter of Unicode."""
    code = ord(character)
    is_control = code < 0x20 or 0x7F <= code < 0xA0
    return not is_control and not 0xFDD0 <= code < 0xFDF0 and code & 0xFFFE != 0xFFFE
