"""The commands of Mosquitto's dynamic security: each one makes a new state, or an error."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast, get_args

from mqttcore.auth.dynsec_arguments import Arguments, CommandError, Hashing
from mqttcore.auth.dynsec_file import Json, acl_json, is_utf8, priorities_json, texts_json
from mqttcore.auth.dynsec_state import (
    PRIORITY,
    AclType,
    Client,
    DefaultType,
    Group,
    Role,
    State,
    Texts,
    acls_in_order,
)

T = TypeVar("T")

NO_COMMAND = "Unknown command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a request has come to."""

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
    """Does all commands of a request, one after another; those that are refused change nothing."""
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
        ValueError: a text in it is no UTF-8, so that neither an answer nor the file can have it.
    """
    if not all(is_utf8(text) for pair in pairs for text in pair if isinstance(text, str)):
        raise ValueError("no UTF-8")
    return {key.lower(): value for key, value in pairs}


def refuse_constant(word: str) -> object:
    """NaN and Infinity are not JSON."""
    raise ValueError(word)


def line_of(command: str, fields: Json) -> str:
    """A command that was done: its names, and no secrets."""
    shown = ("username", "groupname", "rolename", "acltype", "topic", "priority", "allow")
    return command + "".join(f" {key}={fields[key]!a}" for key in shown if key in fields)


def one(state: State, found: object, hashing: Hashing) -> tuple[Json, State]:
    """Does one command; its response, and the state after it."""
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
    name = args.name("username")
    if name in state.clients:
        raise CommandError("Client already exists")
    client = changed_client(state, args, Client())
    return in_groups(with_client(state, name, client), args, name)


def modify_client(state: State, args: Arguments) -> State:
    """Changes what the command names."""
    name = args.known("username", state.clients, "Client")
    client = changed_client(state, args, state.clients[name])
    return in_groups(with_client(state, name, client), args, name)


def changed_client(state: State, args: Arguments, client: Client) -> Client:
    """A client with what the command names."""
    client_id = args.text("clientid", client.client_id)
    texts = args.texts(client.texts)
    roles = args.roles(state) if "roles" in args else client.roles
    return replace(
        client,
        texts=texts,
        client_id=client_id or None,
        roles=roles,
        password=args.password() or client.password,
    )


def in_groups(state: State, args: Arguments, name: str) -> State:
    """The state in which a client is in the groups that the command names, and in no others."""
    if "groups" not in args:
        return state
    wanted = args.priorities("groups", "groupname", state.groups, "Group")
    groups = {
        group: replace(found, clients=without(found.clients, name) | {name: wanted[group]})
        if group in wanted
        else replace(found, clients=without(found.clients, name))
        for group, found in state.groups.items()
    }
    return replace(state, groups=groups)


def delete_client(state: State, args: Arguments) -> State:
    """Removes a client."""
    name = args.known("username", state.clients, "Client")
    groups = {
        group: replace(found, clients=without(found.clients, name))
        for group, found in state.groups.items()
    }
    return replace(state, clients=without(state.clients, name), groups=groups)


def set_client_password(state: State, args: Arguments) -> State:
    """Changes a password."""
    name = args.name("username")
    if args.take("password", str) is None:
        raise CommandError("Invalid/missing password")
    if name not in state.clients:
        raise CommandError("Client not found")
    password = args.password()
    if password is None:
        raise CommandError("Empty password is not allowed")
    return with_client(state, name, replace(state.clients[name], password=password))


def set_client_id(state: State, args: Arguments) -> State:
    """Changes the client identifier that a client has to have."""
    name = args.known("username", state.clients, "Client")
    client_id = args.text("clientid", "") or None
    return with_client(state, name, replace(state.clients[name], client_id=client_id))


def enable_client(state: State, args: Arguments) -> State:
    """Lets a client log in again."""
    return disabled(state, args, is_disabled=False)


def disable_client(state: State, args: Arguments) -> State:
    """Lets a client not log in."""
    return disabled(state, args, is_disabled=True)


def disabled(state: State, args: Arguments, *, is_disabled: bool) -> State:
    """A state in which a client may log in, or may not."""
    name = args.known("username", state.clients, "Client")
    return with_client(state, name, replace(state.clients[name], is_disabled=is_disabled))


def add_client_role(state: State, args: Arguments) -> State:
    """Gives a client a role."""
    args.name("username")
    args.name("rolename")
    name = args.known("username", state.clients, "Client")
    role = args.known("rolename", state.roles, "Role")
    client = state.clients[name]
    if role in client.roles:
        raise CommandError("Client is already in this role")
    roles = {**client.roles, role: args.priority(PRIORITY)}
    return with_client(state, name, replace(client, roles=roles))


def remove_client_role(state: State, args: Arguments) -> State:
    """Takes a role from a client."""
    args.name("username")
    args.name("rolename")
    name = args.known("username", state.clients, "Client")
    role = args.known("rolename", state.roles, "Role")
    client = state.clients[name]
    return with_client(state, name, replace(client, roles=without(client.roles, role)))


def get_client(state: State, args: Arguments) -> Json:
    """Shows a client."""
    return {"client": client_view(state, args.known("username", state.clients, "Client"))}


def list_clients(state: State, args: Arguments) -> Json:
    """Lists clients."""
    names = args.page(state.clients)
    shown = [client_view(state, name) for name in names] if is_verbose(args) else names
    return {"totalCount": len(state.clients), "clients": shown}


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
    name = args.name("groupname")
    if name in state.groups:
        raise CommandError("Group already exists")
    return with_group(state, name, changed_group(state, args, Group()))


def modify_group(state: State, args: Arguments) -> State:
    """Changes what the command names."""
    name = args.known("groupname", state.groups, "Group")
    return with_group(state, name, changed_group(state, args, state.groups[name]))


def changed_group(state: State, args: Arguments, group: Group) -> Group:
    """A group with what the command names."""
    texts = args.texts(group.texts)
    roles = args.roles(state) if "roles" in args else group.roles
    clients = group.clients
    if "clients" in args:
        clients = args.priorities("clients", "username", state.clients, "Client")
    return Group(texts=texts, roles=roles, clients=clients)


def delete_group(state: State, args: Arguments) -> State:
    """Removes a group."""
    name = args.known("groupname", state.groups, "Group")
    anonymous = None if state.anonymous_group == name else state.anonymous_group
    return replace(state, groups=without(state.groups, name), anonymous_group=anonymous)


def add_group_client(state: State, args: Arguments) -> State:
    """Puts a client into a group."""
    args.name("username")
    args.name("groupname")
    client = args.known("username", state.clients, "Client")
    name = args.known("groupname", state.groups, "Group")
    group = state.groups[name]
    if client in group.clients:
        raise CommandError("Client is already in this group")
    clients = {**group.clients, client: args.priority(PRIORITY)}
    return with_group(state, name, replace(group, clients=clients))


def remove_group_client(state: State, args: Arguments) -> State:
    """Takes a client out of a group."""
    args.name("username")
    args.name("groupname")
    client = args.known("username", state.clients, "Client")
    name = args.known("groupname", state.groups, "Group")
    group = state.groups[name]
    return with_group(state, name, replace(group, clients=without(group.clients, client)))


def add_group_role(state: State, args: Arguments) -> State:
    """Gives a group a role."""
    args.name("groupname")
    args.name("rolename")
    name = args.known("groupname", state.groups, "Group")
    role = args.known("rolename", state.roles, "Role")
    group = state.groups[name]
    if role in group.roles:
        raise CommandError("Group is already in this role")
    roles = {**group.roles, role: args.priority(PRIORITY)}
    return with_group(state, name, replace(group, roles=roles))


def remove_group_role(state: State, args: Arguments) -> State:
    """Takes a role from a group."""
    args.name("groupname")
    args.name("rolename")
    name = args.known("groupname", state.groups, "Group")
    role = args.known("rolename", state.roles, "Role")
    group = state.groups[name]
    return with_group(state, name, replace(group, roles=without(group.roles, role)))


def get_group(state: State, args: Arguments) -> Json:
    """Shows a group."""
    return {"group": group_view(state, args.known("groupname", state.groups, "Group"))}


def list_groups(state: State, args: Arguments) -> Json:
    """Lists groups."""
    names = args.page(state.groups)
    shown = [group_view(state, name) for name in names] if is_verbose(args) else names
    return {"totalCount": len(state.groups), "groups": shown}


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
    """Says which group clients without user name are in."""
    name = args.text("groupname", None)
    if name is None:
        raise CommandError("Invalid/missing groupname")
    if name not in state.groups:
        raise CommandError("Group not found")
    return replace(state, anonymous_group=name)


def get_anonymous_group(state: State, _: Arguments) -> Json:
    """Shows that group."""
    return {"group": {"groupname": state.anonymous_group or ""}}


# --- roles


def create_role(state: State, args: Arguments) -> State:
    """Makes a role."""
    name = args.name("rolename")
    if name in state.roles:
        raise CommandError("Role already exists")
    return with_role(state, name, Role(texts=args.texts(Texts()), acls=args.acls()))


def modify_role(state: State, args: Arguments) -> State:
    """Changes what the command names."""
    name = args.name("rolename")
    if name not in state.roles:
        raise CommandError("Role does not exist")
    role = state.roles[name]
    acls = args.acls() if "acls" in args else role.acls
    return with_role(state, name, Role(texts=args.texts(role.texts), acls=acls))


def delete_role(state: State, args: Arguments) -> State:
    """Removes a role from wherever it is."""
    name = args.known("rolename", state.roles, "Role")
    return replace(
        state,
        roles=without(state.roles, name),
        clients={
            key: replace(client, roles=without(client.roles, name))
            for key, client in state.clients.items()
        },
        groups={
            key: replace(group, roles=without(group.roles, name))
            for key, group in state.groups.items()
        },
    )


def add_role_acl(state: State, args: Arguments) -> State:
    """Adds an ACL to a role."""
    name = args.known("rolename", state.roles, "Role")
    acl, role = args.acl(), state.roles[name]
    if any((one.kind, one.topic) == (acl.kind, acl.topic) for one in role.acls):
        raise CommandError("ACL with this topic already exists")
    return with_role(state, name, replace(role, acls=acls_in_order([*role.acls, acl])))


def remove_role_acl(state: State, args: Arguments) -> State:
    """Removes an ACL from a role."""
    name = args.known("rolename", state.roles, "Role")
    kind, role = args.name("acltype"), state.roles[name]
    if kind not in get_args(AclType):
        raise CommandError("Unknown acltype")
    topic = args.name("topic")
    left = tuple(acl for acl in role.acls if (acl.kind, acl.topic) != (kind, topic))
    if len(left) == len(role.acls):
        raise CommandError("ACL not found")
    return with_role(state, name, replace(role, acls=left))


def get_role(state: State, args: Arguments) -> Json:
    """Shows a role."""
    return {"role": role_view(state, args.known("rolename", state.roles, "Role"))}


def list_roles(state: State, args: Arguments) -> Json:
    """Lists roles."""
    names = args.page(state.roles)
    shown = [role_view(state, name) for name in names] if is_verbose(args) else names
    return {"totalCount": len(state.roles), "roles": shown}


def role_view(state: State, name: str) -> Json:
    """A role with its ACLs."""
    role = state.roles[name]
    acls = [acl_json(acl) for acl in role.acls]
    return {"rolename": name, **texts_json(role.texts), "acls": acls}


def is_verbose(args: Arguments) -> bool:
    """Whether a list should have more than names."""
    return args.flag("verbose")


# --- defaults


def set_default_acl_access(state: State, args: Arguments) -> State:
    """Says what happens without an ACL."""
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
    """What a default becomes. `mosquitto_ctrl` 2.0 sends a word, which its broker ignores."""
    word = fields.text("access", None)
    if word in {"allow", "deny"}:
        return word == "allow"
    found = fields.take("allow", bool)
    if found is None:
        raise CommandError("Invalid/missing allow")
    return found


def get_default_acl_access(state: State, _: Arguments) -> Json:
    """Shows that."""
    kinds = get_args(DefaultType)
    return {"acls": [{"acltype": kind, "allow": state.defaults[kind]} for kind in kinds]}


# --- states with one thing changed


def without(found: Mapping[str, T], name: str) -> dict[str, T]:
    """All but one."""
    return {key: value for key, value in found.items() if key != name}


def with_client(state: State, name: str, client: Client) -> State:
    """The state with a client, new or changed."""
    return replace(state, clients={**state.clients, name: client})


def with_group(state: State, name: str, group: Group) -> State:
    """The state with a group, new or changed."""
    return replace(state, groups={**state.groups, name: group})


def with_role(state: State, name: str, role: Role) -> State:
    """The state with a role, new or changed."""
    return replace(state, roles={**state.roles, name: role})


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
            ("enableClient", enable_client),
            ("disableClient", disable_client),
            ("addClientRole", add_client_role),
            ("removeClientRole", remove_client_role),
            ("getClient", get_client),
            ("listClients", list_clients),
            ("createGroup", create_group),
            ("modifyGroup", modify_group),
            ("deleteGroup", delete_group),
            ("addGroupClient", add_group_client),
            ("removeGroupClient", remove_group_client),
            ("addGroupRole", add_group_role),
            ("removeGroupRole", remove_group_role),
            ("getGroup", get_group),
            ("listGroups", list_groups),
            ("setAnonymousGroup", set_anonymous_group),
            ("getAnonymousGroup", get_anonymous_group),
            ("createRole", create_role),
            ("modifyRole", modify_role),
            ("deleteRole", delete_role),
            ("addRoleACL", add_role_acl),
            ("removeRoleACL", remove_role_acl),
            ("getRole", get_role),
            ("listRoles", list_roles),
            ("setDefaultACLAccess", set_default_acl_access),
            ("getDefaultACLAccess", get_default_acl_access),
        ),
    )
}
"""Names and functions of the commands, by their names in small letters."""
