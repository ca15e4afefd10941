"""Arguments of the commands of dynamic security: names, texts, passwords, ACLs and pages."""

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast, get_args

from mqttcore.auth.dynsec_file import INTEGER_MAX, Json, topic_fault
from mqttcore.auth.dynsec_state import (
    PRIORITY,
    Acl,
    AclType,
    Password,
    Priorities,
    State,
    Texts,
    acls_in_order,
)

T = TypeVar("T")

PASSWORDS_MAX = 100
"""Of one request: each one costs as much as a login."""
PASSWORD_BYTES_MAX = 1_024
SALT_BYTES = 12


class CommandError(Exception):
    """Why a command is refused, in Mosquitto's words where it has some."""


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
        """A member of this type; None if it is not there."""
        found = self._fields.get(key)
        if key in self._fields and type(found) is not kind:
            raise CommandError(error or f"Invalid/missing {key}")
        return cast(T | None, found)

    def text(self, key: str, default: T) -> str | T:
        """A text."""
        found = self.take(key, str, "Invalid/missing client id" if key == "clientid" else None)
        return default if found is None else found

    def name(self, key: str) -> str:
        """A text that has to be there, and not to be empty."""
        found = self.text(key, "")
        if not found:
            raise CommandError(f"Invalid/missing {key}")
        return found

    def known(self, key: str, known: Mapping[str, object], what: str) -> str:
        """A name of something that there is."""
        name = self.name(key)
        if name not in known:
            raise CommandError(f"{what} not found")
        return name

    def priority(self, default: int) -> int:
        """The priority."""
        found = self.take("priority", int)
        if found is not None and not -INTEGER_MAX <= found <= INTEGER_MAX:
            raise CommandError("Invalid/missing priority")
        return default if found is None else found

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        return bool(self.take(key, bool))

    def password(self) -> Password | None:
        """A new password, unless it is missing or empty."""
        found = self.text("password", "")
        if len(found.encode()) > PASSWORD_BYTES_MAX:
            raise CommandError("Password is too long")
        return self._hashing.password(found) if found else None

    def texts(self, texts: Texts) -> Texts:
        """What people call it; what is not there stays."""
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

    def priorities(self, key: str, name: str, known: Mapping[str, object], what: str) -> Priorities:
        """Names of things that there are, each with a priority."""
        error = f"'{key}' not an array or missing/invalid {name}"
        found = {}
        for fields in self.objects(key, error):
            if not fields.take(name, str, error):
                raise CommandError(error)
            found[fields.known(name, known, what)] = fields.priority(PRIORITY)
        return found

    def roles(self, state: State) -> Priorities:
        """Roles of a client or group."""
        return self.priorities("roles", "rolename", state.roles, "Role")

    def acl(self) -> Acl:
        """One ACL."""
        kind, topic = self.name("acltype"), self.name("topic")
        if kind not in get_args(AclType):
            raise CommandError("Unknown acltype")
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
        """The names on the page that a command for a list wants."""
        count, offset = self.take("count", int), self.take("offset", int)
        begin = max(0, offset or 0)
        end = None if count is None or count < 0 else begin + count
        return sorted(names)[begin:end]
