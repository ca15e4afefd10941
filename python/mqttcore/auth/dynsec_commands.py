"""The commands of Mosquitto's dynamic security: each one makes a new state, or an error."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast, get_args

from mqttcore.auth.dynsec_arguments import (
    CLIENTS,
    GROUPS,
    ROLES,
    Arguments,
    CommandError,
    Hashing,
    Table,
)
from mqttcore.auth.dynsec_file import Json, acl_json, is_utf8, priorities_json, texts_json
from mqttcore.auth.dynsec_state import (
    PRIORITY,
    AclType,
    Client,
    DefaultType,
    Group,
    Priorities,
    Role,
    State,
    Texts,
    acls_in_order,
)

T = TypeVar("T")
R = TypeVar("R", Client, Group)

NO_COMMAND = "Unknown command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a request."""

    state: State
    responses: list[Json]
    done: list[str]
    """Each change in one line, for the log."""

    def answer(self) -> bytes:
        """The bytes for the client."""
        return answer_of(self.responses)


def answer_of(responses: list[Json]) -> bytes:
    """An answer with these responses."""
    text = json.dumps({"responses": responses}, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def run(state: State, payload: bytes, *, iterations: int) -> Outcome:
    """Runs all commands of a request, one after another; refused ones change nothing."""
    try:
        request = json.loads(payload, object_pairs_hook=lowered, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return refused(state, "Payload not valid JSON")
    commands = request.get("commands") if isinstance(request, dict) else None
    if not isinstance(commands, list):
        return refused(state, "Invalid/missing commands")
    hashing = Hashing(iterations)
    responses, done = [], []
    for found in commands:
        before = state
        response, state = one(state, found, hashing)
        responses.append(response)
        if state is not before:
            done.append(line_of(str(response["command"]), found))
    return Outcome(state=state, responses=responses, done=done)


def refused(state: State, error: str) -> Outcome:
    """A request without commands."""
    response: Json = {"command": NO_COMMAND, "error": error}
    return Outcome(state=state, responses=[response], done=[])


def lowered(pairs: list[tuple[str, object]]) -> Json:
    """An object; Mosquitto does not distinguish small and capital letters in keys.

    Raises:
        ValueError: a text in it is not UTF-8; an answer or the file could not contain it.
    """
    if not all(is_utf8(text) for pair in pairs for text in pair if isinstance(text, str)):
        raise ValueError("no UTF-8")
    return {key.lower(): value for key, value in pairs}


def refuse_constant(word: str) -> object:
    """NaN and Infinity are not JSON."""
    raise ValueError(word)


def line_of(command: str, fields: Json) -> str:
    """Describes a completed command: its names, and no secrets."""
    shown = ("username", "groupname", "rolename", "acltype", "topic", "priority", "allow")
    return command + "".join(f" {key}={fields[key]!a}" for key in shown if key in fields)


def one(state: State, found: object, hashing: Hashing) -> tuple[Json, State]:
    """Runs one command; returns its response and the new state."""
    if not isinstance(found, dict):
        return {"command": NO_COMMAND, "error": "Command not an object"}, state
    name = found.get("command")
    if not isinstance(name, str):
        return {"command": NO_COMMAND, "error": "Missing command"}, state
    name, command = COMMANDS.get(name.lower(), (name, None))
    response: Json = {"command": name}
    correlation = found.get("correlationdata")
    if "correlationdata" in found and not isinstance(correlation, str):
        response["error"] = "Invalid correlationData data type."
        return response, state
    try:
        if command is None:
            raise CommandError("Unknown command")
        done = command(state, Arguments(found, hashing))
        if isinstance(done, State):
            state = done
        else:
            response["data"] = done
    except CommandError as error:
        response["error"] = str(error)
    if correlation is not None:
        response["correlationData"] = correlation
    return response, state


# --- clients


def create_client(state: State, args: Arguments) -> State:
    """Makes a client."""
    name = args.new(CLIENTS, state)
    client = changed_client(state, args, Client())
    return in_groups(CLIENTS.put(state, name, client), args, name)


def modify_client(state: State, args: Arguments) -> State:
    """Changes the given members of a client."""
    name = args.known(CLIENTS, state)
    client = changed_client(state, args, state.clients[name])
    return in_groups(CLIENTS.put(state, name, client), args, name)


def changed_client(state: State, args: Arguments, client: Client) -> Client:
    """Returns a client with the members of the command."""
    client_id = args.text("clientid", client.client_id)
    return replace(
        client,
        texts=args.texts(client.texts),
        client_id=client_id or None,
        roles=args.priorities(ROLES, state, client.roles),
        password=args.password() or client.password,
    )


def in_groups(state: State, args: Arguments, name: str) -> State:
    """The state in which a client is in the groups that the command names, and in no others."""
    if "groups" not in args:
        return state
    wanted = args.priorities(GROUPS, state, {})
    groups = without_member(state.groups, "clients", name)
    for group, priority in wanted.items():
        groups[group] = replace(groups[group], clients={**groups[group].clients, name: priority})
    return replace(state, groups=groups)


def delete_client(state: State, args: Arguments) -> State:
    """Removes a client."""
    name = args.known(CLIENTS, state)
    groups = without_member(state.groups, "clients", name)
    return replace(state, clients=without(state.clients, name), groups=groups)


def set_client_password(state: State, args: Arguments) -> State:
    """Changes a password."""
    args.name("username")
    if args.take("password", str) is None:
        raise CommandError("Invalid/missing password")
    if not args.text("password", ""):
        raise CommandError("Empty password is not allowed")
    name = args.known(CLIENTS, state)
    password = args.password()
    return CLIENTS.put(state, name, replace(state.clients[name], password=password))


def set_client_id(state: State, args: Arguments) -> State:
    """Sets the client identifier that a client must have."""
    args.name("username")
    args.take("clientid", str, "Invalid/missing client ID")
    client_id = args.text("clientid", "") or None
    name = args.known(CLIENTS, state)
    return CLIENTS.put(state, name, replace(state.clients[name], client_id=client_id))


def disabled(state: State, args: Arguments, *, is_disabled: bool) -> State:
    """Returns a state in which a client is disabled or enabled."""
    name = args.known(CLIENTS, state)
    return CLIENTS.put(state, name, replace(state.clients[name], is_disabled=is_disabled))


def client_view(state: State, name: str) -> Json:
    """A client without its password."""
    client = state.clients[name]
    found: Json = {"username": name}
    if client.client_id is not None:
        found["clientid"] = client.client_id
    found |= texts_json(client.texts)
    if client.is_disabled:
        found["disabled"] = True
    found["roles"] = priorities_json("rolename", client.roles)
    found["groups"] = priorities_json("groupname", state.groups_of(name))
    return found


# --- groups


def create_group(state: State, args: Arguments) -> State:
    """Makes a group."""
    name = args.new(GROUPS, state)
    return GROUPS.put(state, name, changed_group(state, args, Group()))


def modify_group(state: State, args: Arguments) -> State:
    """Changes the given members of a group."""
    name = args.known(GROUPS, state)
    return GROUPS.put(state, name, changed_group(state, args, state.groups[name]))


def changed_group(state: State, args: Arguments, group: Group) -> Group:
    """Returns a group with the members of the command."""
    return Group(
        texts=args.texts(group.texts),
        roles=args.priorities(ROLES, state, group.roles),
        clients=args.priorities(CLIENTS, state, group.clients),
    )


def delete_group(state: State, args: Arguments) -> State:
    """Removes a group."""
    name = args.known(GROUPS, state)
    anonymous = None if state.anonymous_group == name else state.anonymous_group
    return replace(state, groups=without(state.groups, name), anonymous_group=anonymous)


def group_view(state: State, name: str) -> Json:
    """A group and the names of its clients."""
    group = state.groups[name]
    return {
        "groupname": name,
        **texts_json(group.texts),
        "clients": [{"username": client} for client in sorted(group.clients)],
        "roles": priorities_json("rolename", group.roles),
    }


def set_anonymous_group(state: State, args: Arguments) -> State:
    """Sets the group of clients without user name."""
    name = args.text("groupname", None)
    if name is None:
        raise CommandError("Invalid/missing groupname")
    if name not in state.groups:
        raise CommandError("Group not found")
    return replace(state, anonymous_group=name)


def get_anonymous_group(state: State, _: Arguments) -> Json:
    """Shows the group of clients without user name."""
    return {"group": {"groupname": state.anonymous_group or ""}}


# --- roles


def create_role(state: State, args: Arguments) -> State:
    """Makes a role."""
    name = args.new(ROLES, state)
    return ROLES.put(state, name, Role(texts=args.texts(Texts()), acls=args.acls()))


def modify_role(state: State, args: Arguments) -> State:
    """Changes the given members of a role."""
    name = args.name("rolename")
    if name not in state.roles:
        raise CommandError("Role does not exist")
    role = state.roles[name]
    acls = args.acls() if "acls" in args else role.acls
    return ROLES.put(state, name, Role(texts=args.texts(role.texts), acls=acls))


def delete_role(state: State, args: Arguments) -> State:
    """Removes a role, also from all clients and groups."""
    name = args.known(ROLES, state)
    return replace(
        state,
        roles=without(state.roles, name),
        clients=without_member(state.clients, "roles", name),
        groups=without_member(state.groups, "roles", name),
    )


def add_role_acl(state: State, args: Arguments) -> State:
    """Adds an ACL to a role."""
    name = args.known(ROLES, state)
    acl, role = args.acl(), state.roles[name]
    if any((one.kind, one.topic) == (acl.kind, acl.topic) for one in role.acls):
        raise CommandError("ACL with this topic already exists")
    return ROLES.put(state, name, replace(role, acls=acls_in_order([*role.acls, acl])))


def remove_role_acl(state: State, args: Arguments) -> State:
    """Removes an ACL from a role."""
    name = args.known(ROLES, state)
    kind, role = args.name("acltype"), state.roles[name]
    if kind not in get_args(AclType):
        raise CommandError("Unknown acltype")
    topic = args.name("topic")
    left = tuple(acl for acl in role.acls if (acl.kind, acl.topic) != (kind, topic))
    if len(left) == len(role.acls):
        raise CommandError("ACL not found")
    return ROLES.put(state, name, replace(role, acls=left))


def role_view(state: State, name: str) -> Json:
    """A role with its ACLs."""
    role = state.roles[name]
    acls = [acl_json(acl) for acl in role.acls]
    return {"rolename": name, **texts_json(role.texts), "acls": acls}


# --- roles of clients and groups, clients of groups


@dataclass(frozen=True, slots=True)
class Membership:
    """Roles of clients or groups, or clients of groups."""

    member: Table[Any]  # of whatever type: only its names are read
    place: Table[Any]
    """The table that members belong to."""
    owner: Table[Any]
    """``member`` or ``place``: the table whose rows list names of the other one."""

    def add(self, state: State, args: Arguments) -> State:
        """Adds a member, for example a role to a client."""
        return self._change(state, args, is_added=True)

    def remove(self, state: State, args: Arguments) -> State:
        """Removes a member, if it is there."""
        return self._change(state, args, is_added=False)

    def _change(self, state: State, args: Arguments, *, is_added: bool) -> State:
        both = (self.member, self.place)
        for table in both:
            args.name(table.key)
        names = {table: args.known(table, state) for table in both}
        listed = self.place if self.owner is self.member else self.member
        owner, name = self.owner.of(state)[names[self.owner]], names[listed]
        before = getattr(owner, listed.name)
        if not is_added:
            after = without(before, name)
        elif name in before:
            raise CommandError(f"{self.member.word} is already in this {self.place.word.lower()}")
        else:
            after = {**before, name: args.priority(PRIORITY)}
        return self.owner.put(state, names[self.owner], with_members(owner, listed.name, after))


CLIENT_ROLES = Membership(CLIENTS, ROLES, owner=CLIENTS)
GROUP_ROLES = Membership(GROUPS, ROLES, owner=GROUPS)
GROUP_CLIENTS = Membership(CLIENTS, GROUPS, owner=GROUPS)


# --- lists of clients, groups and roles


@dataclass(frozen=True, slots=True)
class View:
    """Shows clients, groups or roles."""

    table: Table[Any]  # of whatever type: `show` reads it
    show: Callable[[State, str], Json]

    def get(self, state: State, args: Arguments) -> Json:
        """Shows one client, group or role."""
        return {self.table.word.lower(): self.show(state, args.known(self.table, state))}

    def list(self, state: State, args: Arguments) -> Json:
        """Lists names; with all their members if the command asks for it."""
        found = self.table.of(state)
        names = args.page(found)
        shown = [self.show(state, name) for name in names] if args.flag("verbose") else names
        return {"totalCount": len(found), self.table.name: shown}


CLIENT_VIEW = View(CLIENTS, client_view)
GROUP_VIEW = View(GROUPS, group_view)
ROLE_VIEW = View(ROLES, role_view)


# --- defaults


def set_default_acl_access(state: State, args: Arguments) -> State:
    """Sets the default access, which applies if no ACL matches."""
    if "acls" not in args:
        raise CommandError("Missing/invalid actions array")
    defaults = dict(state.defaults)
    for fields in args.objects("acls", "Missing/invalid actions array"):
        kind = fields.name("acltype")
        if kind not in get_args(DefaultType):
            raise CommandError("Unknown acltype")
        defaults[cast(DefaultType, kind)] = default_of(fields)
    return replace(state, defaults=defaults)


def default_of(fields: Arguments) -> bool:
    """Reads a default. `mosquitto_ctrl` 2.0 sends a word, which its broker ignores."""
    word = fields.text("access", None)
    if word in {"allow", "deny"}:
        return word == "allow"
    found = fields.take("allow", bool)
    if found is None:
        raise CommandError("Invalid/missing allow")
    return found


def get_default_acl_access(state: State, _: Arguments) -> Json:
    """Shows the default access."""
    kinds = get_args(DefaultType)
    return {"acls": [{"acltype": kind, "allow": state.defaults[kind]} for kind in kinds]}


def without(found: Mapping[str, T], name: str) -> dict[str, T]:
    """Returns all entries except one."""
    return {key: value for key, value in found.items() if key != name}


def without_member(rows: Mapping[str, R], field: str, name: str) -> dict[str, R]:
    """Returns clients or groups without this name in their lists."""
    return {
        key: with_members(row, field, without(getattr(row, field), name))
        for key, row in rows.items()
    }


def with_members(row: R, field: str, members: Priorities) -> R:
    """A client or group with another list of names."""
    fields: dict[str, Any] = {field: members}  # mypy compares it with the types of all fields
    return replace(row, **fields)


Command = Callable[[State, Arguments], State | Json]
COMMANDS: Mapping[str, tuple[str, Command]] = {
    name.lower(): (name, command)
    for name, command in cast(
        tuple[tuple[str, Command], ...],
        (
            ("createClient", create_client),
            ("modifyClient", modify_client),
            ("deleteClient", delete_client),
            ("setClientPassword", set_client_password),
            ("setClientId", set_client_id),
            ("enableClient", partial(disabled, is_disabled=False)),
            ("disableClient", partial(disabled, is_disabled=True)),
            ("addClientRole", CLIENT_ROLES.add),
            ("removeClientRole", CLIENT_ROLES.remove),
            ("getClient", CLIENT_VIEW.get),
            ("listClients", CLIENT_VIEW.list),
            ("createGroup", create_group),
            ("modifyGroup", modify_group),
            ("deleteGroup", delete_group),
            ("addGroupClient", GROUP_CLIENTS.add),
            ("removeGroupClient", GROUP_CLIENTS.remove),
            ("addGroupRole", GROUP_ROLES.add),
            ("removeGroupRole", GROUP_ROLES.remove),
            ("getGroup", GROUP_VIEW.get),
            ("listGroups", GROUP_VIEW.list),
            ("setAnonymousGroup", set_anonymous_group),
            ("getAnonymousGroup", get_anonymous_group),
            ("createRole", create_role),
            ("modifyRole", modify_role),
            ("deleteRole", delete_role),
            ("addRoleACL", add_role_acl),
            ("removeRoleACL", remove_role_acl),
            ("getRole", ROLE_VIEW.get),
            ("listRoles", ROLE_VIEW.list),
            ("setDefaultACLAccess", set_default_acl_access),
            ("getDefaultACLAccess", get_default_acl_access),
        ),
    )
}
"""Names and functions of the commands, by their names in small letters."""
