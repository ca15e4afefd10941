"""The file of Mosquitto's dynamic security: read as a whole or not at all, replaced at once."""

import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import cast, get_args

from mqttcore._core import TopicFilter, check_password_hash
from mqttcore._placed import PlacedRule
from mqttcore._replace import replace_file
from mqttcore.auth.dynsec_state import (
    PRIORITY,
    Acl,
    AclType,
    Client,
    DefaultType,
    Group,
    Password,
    Priorities,
    Role,
    State,
    Texts,
    acls_in_order,
    in_order,
)
from mqttcore.errors import DynsecFileError, MqttError

Path = tuple[str | int, ...]
"""A place: keys and indexes from the outside."""
Json = dict[str, object]

DEFAULTS: Mapping[DefaultType, bool] = {
    "publishClientSend": False,
    "publishClientReceive": True,
    "subscribe": False,
    "unsubscribe": True,
}
"""Defaults of a file without ``defaultACLAccess``."""
FAULTS_MAX = 20
INTEGER_MAX = 2**31 - 1
SPACE = re.compile(r"\s*")
ACL_KEY = re.compile(r'"acltype"\s*:', re.IGNORECASE)


class StateFile:
    """The file, and a check for changes by another program."""

    def __init__(self, path: pathlib.Path, /) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()

    def read(self) -> State:
        """Reads it.

        Raises:
            DynsecFileError: it cannot be used; the text names file and line of each fault.
        """
        try:
            stamp = stamp_of(self._path)
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DynsecFileError(f"{self._path}: cannot be read: {error}") from error
        state = state_of(text, str(self._path))
        self._stamp = stamp
        return state

    def write(self, state: State) -> State:
        """Replaces it; its mode is 0600 then. Returns the state with the places of its ACLs.

        Raises:
            DynsecFileError: somebody else has changed it since it was read.
            OSError: it is unchanged.
        """
        if stamp_of(self._path) != self._stamp:
            raise DynsecFileError(f"{self._path} was changed outside: reload the broker first")
        text = text_of(state)
        replace_file(self._path, text, is_private=True)
        self._stamp = stamp_of(self._path)
        return placed(state, places_of(text, str(self._path)))


def stamp_of(path: pathlib.Path) -> tuple[int, ...]:
    """A stamp that changes with the file."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def placed(state: State, places: Iterator[str]) -> State:
    """The state with the places of its ACLs, in the order of a file that is written."""
    roles = {
        name: replace(
            role,
            acls=tuple(
                replace(acl, topic=PlacedRule(acl.topic, next(places, ""))) for acl in role.acls
            ),
        )
        for name, role in sorted(state.roles.items())
    }
    return replace(state, roles=roles)


# --- writing


def text_of(state: State) -> str:
    """The file, as Mosquitto reads and writes it."""
    document: Json = {
        "defaultACLAccess": dict(state.defaults),
        "clients": [client_json(name, one) for name, one in sorted(state.clients.items())],
        "groups": [group_json(name, one) for name, one in sorted(state.groups.items())],
    }
    if state.anonymous_group is not None:
        document["anonymousGroup"] = state.anonymous_group
    document["roles"] = [role_json(name, role) for name, role in sorted(state.roles.items())]
    return json.dumps(document, indent="\t", ensure_ascii=False) + "\n"


def client_json(name: str, client: Client) -> Json:
    """A client with its secrets."""
    found: Json = {"username": name}
    if client.client_id is not None:
        found["clientid"] = client.client_id
    found |= texts_json(client.texts)
    if client.is_disabled:
        found["disabled"] = True
    found["roles"] = priorities_json("rolename", client.roles)
    if (password := client.password) is not None:
        found |= {
            "password": password.hash,
            "salt": password.salt,
            "iterations": password.iterations,
        }
    return found


def group_json(name: str, group: Group) -> Json:
    """A group with its clients."""
    return {
        "groupname": name,
        **texts_json(group.texts),
        "roles": priorities_json("rolename", group.roles),
        "clients": priorities_json("username", dict(sorted(group.clients.items()))),
    }


def role_json(name: str, role: Role) -> Json:
    """A role with its ACLs."""
    return {
        "rolename": name,
        **texts_json(role.texts),
        "acls": [acl_json(one) for one in role.acls],
    }


def acl_json(acl: Acl) -> Json:
    """One ACL."""
    return {
        "acltype": acl.kind,
        "topic": acl.topic,
        "priority": acl.priority,
        "allow": acl.is_allowed,
    }


def texts_json(texts: Texts) -> Json:
    """The texts that are set."""
    found = {"textname": texts.name, "textdescription": texts.description}
    return {key: text for key, text in found.items() if text is not None}


def priorities_json(key: str, names: Priorities) -> list[Json]:
    """Names in their order, with their priorities if any is set."""
    return [
        {key: name} if names[name] == PRIORITY else {key: name, "priority": names[name]}
        for name in (in_order(names) if key != "username" else names)
    ]


# --- reading


def state_of(text: str, name: str) -> State:
    """The state in the file.

    Raises:
        DynsecFileError: as `StateFile.read` does.
    """
    try:
        document = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except json.JSONDecodeError as error:
        raise DynsecFileError(f"{name}:{error.lineno}: no JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise DynsecFileError(f"{name}: no JSON: {error}") from None
    faults: list[tuple[Path, str]] = []
    state = read(Fields(document, (), faults), places_of(text, name))
    if faults:
        lines = [f"{name}:{line_of(text, path)}: {fault}" for path, fault in faults[:FAULTS_MAX]]
        raise DynsecFileError("\n".join(lines))
    return state


def unique(pairs: list[tuple[str, object]]) -> Json:
    """An object; Mosquitto does not distinguish ``textName`` and ``textname``."""
    found = {key.lower(): value for key, value in pairs}
    if len(found) < len(pairs):
        raise ValueError(f"a key is there twice: {', '.join(key for key, _ in pairs)[:200]}")
    return found


def no_constant(word: str) -> object:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{word} is not JSON")


class Fields:
    """The members of one object of the file. Faults are added to ``faults``."""

    def __init__(self, found: object, path: Path, faults: list[tuple[Path, str]]) -> None:
        self.path = path
        self._faults = faults
        self._found: Json = cast(Json, found) if isinstance(found, dict) else {}
        self._known: set[str] = set()
        if not isinstance(found, dict):
            self.fault("an object is expected")

    def fault(self, text: str, key: str | None = None) -> None:
        """Adds a fault, of the object or of one of its members."""
        path = self.path if key is None or key not in self._found else (*self.path, key)
        self._faults.append((path, text))

    def take(self, key: str, kind: type, expected: str) -> object:
        """A member of this type; None if it is missing."""
        self._known.add(key)
        found = self._found.get(key)
        if found is None and key not in self._found:
            return None
        if type(found) is not kind:
            self.fault(f"{key} must be {expected}", key)
            return None
        return found

    def text(self, key: str) -> str | None:
        """A text; None if it is missing."""
        found = cast(str | None, self.take(key, str, "a text"))
        if found is not None and not is_utf8(found):
            self.fault(f"{key} is no UTF-8", key)
        return found

    def name(self, key: str) -> str:
        """A text that must be present and not empty."""
        found = self.text(key)
        if not found:
            self.fault(f"{key} is missing or empty", key)
        return found or ""

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        found = self.take(key, bool, "true or false")
        return default if found is None else bool(found)

    def number(self, key: str, default: int) -> int:
        """An integer of 32 bits."""
        found = cast(int | None, self.take(key, int, "an integer"))
        if found is not None and not -INTEGER_MAX <= found <= INTEGER_MAX:
            self.fault(f"{key} is out of range", key)
        return default if found is None else found

    def object(self, key: str) -> "Fields | None":
        """An object; None if it is missing."""
        found = self.take(key, dict, "an object")
        return None if found is None else Fields(found, (*self.path, key), self._faults)

    def objects(self, key: str) -> "Iterator[Fields]":
        """The objects of a list; a missing list is empty."""
        found = cast(list[object] | None, self.take(key, list, "a list"))
        for index, one in enumerate(found or ()):
            yield Fields(one, (*self.path, key, index), self._faults)

    def named(self, key: str, name: str) -> "Iterator[tuple[str, Fields]]":
        """The objects of a list and their names, which must be unique."""
        seen = set()
        for one in self.objects(key):
            found = one.name(name)
            if found in seen:
                one.fault(f"{name} {found!r} is there twice", name)
            seen.add(found)
            yield found, one

    def priorities(self, key: str, name: str, known: Callable[[str], bool]) -> Priorities:
        """Names with priorities; ``known`` says whether such a name exists."""
        found = {}
        for one, fields in self.named(key, name):
            if one and not known(one):
                fields.fault(f"there is no {name} {one!r}", name)
            found[one] = fields.number("priority", PRIORITY)
            fields.finish()
        return found

    def texts(self) -> Texts:
        """Text names and descriptions."""
        return Texts(name=self.text("textname"), description=self.text("textdescription"))

    def finish(self) -> None:
        """Refuses members that were not read."""
        for key in self._found.keys() - self._known:
            self.fault(f"unknown key {key!r}", key)


def read(fields: Fields, places: Iterator[str]) -> State:
    """The whole file; ``places`` are those of its ACLs."""
    defaults = read_defaults(fields.object("defaultaclaccess"))
    roles = {name: read_role(one, places) for name, one in fields.named("roles", "rolename")}
    clients = {name: read_client(one, roles) for name, one in fields.named("clients", "username")}
    groups = {
        name: read_group(one, roles, clients) for name, one in fields.named("groups", "groupname")
    }
    anonymous = fields.text("anonymousgroup")
    if anonymous is not None and anonymous not in groups:
        fields.fault(f"there is no groupname {anonymous!r}", "anonymousgroup")
    fields.finish()
    return State(
        defaults=defaults, clients=clients, groups=groups, roles=roles, anonymous_group=anonymous
    )


def read_defaults(fields: Fields | None) -> Mapping[DefaultType, bool]:
    """Reads the default access without an ACL."""
    if fields is None:
        return DEFAULTS
    found = {kind: fields.flag(kind.lower(), default=DEFAULTS[kind]) for kind in DEFAULTS}
    fields.finish()
    return found


def read_role(fields: Fields, places: Iterator[str]) -> Role:
    """A role."""
    acls = [read_acl(one, next(places, "")) for one in fields.objects("acls")]
    role = Role(texts=fields.texts(), acls=acls_in_order(acls))
    fields.finish()
    return role


def read_acl(fields: Fields, place: str) -> Acl:
    """An ACL."""
    kind, topic = fields.name("acltype"), fields.name("topic")
    if kind and kind not in get_args(AclType):
        fields.fault(f"acltype is {kind!r}: one of {', '.join(get_args(AclType))}", "acltype")
        kind = get_args(AclType)[0]
    if topic and (fault := topic_fault(topic)):
        fields.fault(fault, "topic")
    acl = Acl(
        kind=cast(AclType, kind or get_args(AclType)[0]),
        topic=PlacedRule(topic, place),
        is_allowed=fields.flag("allow", default=False),
        priority=fields.number("priority", 0),
    )
    fields.finish()
    return acl


def topic_fault(topic: str) -> str | None:
    """The fault of a topic in an ACL; None if it is valid."""
    if topic == "$share" or topic.startswith("$share/"):
        return "an ACL is about the filter of a shared subscription, without $share/GROUP/"
    try:
        TopicFilter(topic)
    except (MqttError, UnicodeEncodeError) as error:
        return f"topic is no topic filter: {error}"
    return None


def read_client(fields: Fields, roles: Mapping[str, Role]) -> Client:
    """A client."""
    client = Client(
        texts=fields.texts(),
        password=read_password(fields),
        client_id=fields.text("clientid") or None,
        is_disabled=fields.flag("disabled", default=False),
        roles=fields.priorities("roles", "rolename", roles.__contains__),
    )
    fields.finish()
    return client


def read_password(fields: Fields) -> Password | None:
    """A password: all of its members, or none."""
    hashed, salt = fields.text("password"), fields.text("salt")
    iterations = fields.number("iterations", 0)
    if hashed is None and salt is None and not iterations:
        return None
    password = Password(hash=hashed or "", salt=salt or "", iterations=iterations)
    try:
        check_password_hash(str(password))
    except MqttError as error:
        fields.fault(f"password, salt and iterations: {error}", "password")
    return password


def read_group(fields: Fields, roles: Mapping[str, Role], clients: Mapping[str, Client]) -> Group:
    """A group."""
    group = Group(
        texts=fields.texts(),
        roles=fields.priorities("roles", "rolename", roles.__contains__),
        clients=fields.priorities("clients", "username", clients.__contains__),
    )
    fields.finish()
    return group


def is_utf8(text: str) -> bool:
    """Whether a text is valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def places_of(text: str, name: str) -> Iterator[str]:
    """File and line of each ACL in a text that is JSON: all of them have this key."""
    line = at = 0
    for found in ACL_KEY.finditer(text):
        line += text.count("\n", at, found.start())
        at = found.start()
        yield f"{name}:{line + 1}"


def line_of(text: str, path: Path) -> int:
    """The line of a place in JSON text."""
    at = 0
    for step in path:
        at = member_at(text, at, step)
    return text.count("\n", 0, skip(text, at)) + 1


def member_at(text: str, at: int, step: str | int) -> int:
    """The position of the member of an object, or of the element of a list."""
    decoder = json.JSONDecoder()
    at = skip(text, skip(text, at) + 1)
    count = 0
    while True:
        if isinstance(step, str):
            key, at = decoder.raw_decode(text, at)
            at = skip(text, skip(text, at) + 1)  # behind the colon
            if key.lower() == step:
                return at
        elif count == step:
            return at
        _, at = decoder.raw_decode(text, at)
        at = skip(text, skip(text, at) + 1)  # behind the comma
        count += 1


def skip(text: str, at: int) -> int:
    """The next character that is not white space."""
    found = SPACE.match(text, at)
    return at if found is None else found.end()
