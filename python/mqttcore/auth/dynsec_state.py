"""Clients, groups and roles of Mosquitto's dynamic security, and the rights that they add up to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from mqttcore.auth.marks import substituted
from mqttcore.auth.rules import denials, misfit
from mqttcore.plugin.answers import Grant, OrderedRule, OrderedRules, OrderedWord

T = TypeVar("T")

AclType = Literal[
    "publishClientSend",
    "publishClientReceive",
    "subscribeLiteral",
    "subscribePattern",
    "unsubscribeLiteral",
    "unsubscribePattern",
]
"""Kinds of ACLs; lists of ACLs have this order."""
DefaultType = Literal["publishClientSend", "publishClientReceive", "subscribe", "unsubscribe"]
"""Kinds of default access, without an ACL."""

PRIORITY = -1
"""Priority of a role or group without one."""
Priorities = Mapping[str, int]
"""Names, and the priority of each; the highest one counts first, then the alphabet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule of a role."""

    kind: AclType
    topic: str
    """Topic filter; ``%u`` is the user name, ``%c`` the client identifier."""
    is_allowed: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Password:
    """A password, as PBKDF2 with SHA-512 has it."""

    hash: str
    """Base64."""
    salt: str
    """Base64."""
    iterations: int

    def __repr__(self) -> str:
        return "Password(***)"

    def __str__(self) -> str:
        """The text that `mqttcore._core.verify_password` knows."""
        return f"$7${self.iterations}${self.salt}${self.hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Text name and description."""

    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A set of ACLs."""

    texts: Texts = Texts()
    acls: tuple[Acl, ...] = ()
    """Sorted by `AclType`, then by priority, then in the order in which they were added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Clients that have roles together."""

    texts: Texts = Texts()
    roles: Priorities = field(default_factory=dict)
    clients: Priorities = field(default_factory=dict)
    """The priority that the group has for each of its clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A user name that may log in."""

    texts: Texts = Texts()
    password: Password | None = None
    """None: login is not possible."""
    client_id: str | None = None
    """The only client identifier that it may have."""
    is_disabled: bool = False
    roles: Priorities = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole state. Changes make a new one: see `dataclasses.replace`."""

    defaults: Mapping[DefaultType, bool]
    clients: Mapping[str, Client] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    anonymous_group: str | None = None

    def groups_of(self, user: str) -> Priorities:
        """The groups of a client, and their priorities."""
        return {
            name: group.clients[user]
            for name, group in self.groups.items()
            if user in group.clients
        }

    def grant_for(self, *, user: str | None, client_id: str) -> Grant:
        """The rights of a connected client; ``user`` is None for a client without user name."""
        names = {"%u": user or "", "%c": client_id}

        def rules(*kinds: AclType) -> list[OrderedRule]:
            """For each role, rules of the first kind are before those of the second."""
            lists = [(self.roles[role].acls, kind) for role in roles for kind in kinds]
            return [rule for acls, kind in lists for rule in rules_of(acls, kind, names)]

        roles = self._roles_of(user)
        return Grant(
            ordered=OrderedRules(
                publish=[SYS, *rules("publishClientSend"), *self._last("publishClientSend")],
                receive=[*rules("publishClientReceive"), *self._last("publishClientReceive")],
                subscribe=[
                    *rules("subscribeLiteral", "subscribePattern"),
                    *self._last("subscribe"),
                ],
                unsubscribe=[
                    *rules("unsubscribeLiteral", "unsubscribePattern"),
                    *self._last("unsubscribe"),
                ],
            )
        )

    def changed_users(self, before: "State") -> set[str] | None:
        """User names whose clients may have other rights than before; None: perhaps all."""
        roles = changed(before.roles, self.roles)
        groups = changed(before.groups, self.groups)
        own = changed(before.clients, self.clients)
        for state in (before, self):
            groups |= {name for name, group in state.groups.items() if roles & group.roles.keys()}
        is_anonymous = {before.anonymous_group, self.anonymous_group} & groups
        if (
            is_anonymous
            or before.defaults != self.defaults
            or before.anonymous_group != self.anonymous_group
        ):
            return None
        for state in (before, self):
            own |= {name for name, client in state.clients.items() if roles & client.roles.keys()}
            for group in groups & state.groups.keys():
                own |= state.groups[group].clients.keys()
        return own

    def _roles_of(self, user: str | None) -> list[str]:
        """The roles of a client in the order in which they count: its own ones, then by group."""
        if user is None:
            group = self.groups.get(self.anonymous_group or "")
            return [] if group is None else in_order(group.roles)
        groups = in_order(self.groups_of(user))
        own = in_order(self.clients[user].roles)
        return own + [role for name in groups for role in in_order(self.groups[name].roles)]

    def _last(self, kind: DefaultType) -> tuple[OrderedRule, ...]:
        return EVERYTHING if self.defaults[kind] else ()


SYS: OrderedRule = ("deny", "$SYS/#")
"""Publishing there is always denied."""
EVERYTHING: tuple[OrderedRule, ...] = (("deny", "$CONTROL/#"), ("allow", "#"), ("allow", "$#"))
"""Rules if the default is "allow". ``$CONTROL`` always needs an ACL."""


def changed(before: Mapping[str, T], after: Mapping[str, T]) -> set[str]:
    """The names of added, removed or changed entries."""
    return {
        name
        for name in before.keys() | after.keys()
        if before.get(name) is not after.get(name) and before.get(name) != after.get(name)
    }


def in_order(names: Priorities) -> list[str]:
    """The highest priority first, then by name."""
    return sorted(names, key=lambda name: (-names[name], name))


def acls_in_order(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    """Sorts ACLs as `Role.acls` requires."""
    kinds = get_args(AclType)
    return tuple(sorted(acls, key=lambda acl: (kinds.index(acl.kind), -acl.priority)))


def rules_of(acls: Iterable[Acl], kind: AclType, names: Mapping[str, str]) -> Iterable[OrderedRule]:
    """The rules of one kind with names inserted.

    An empty name, or one with ``+``, ``#`` or ``/``, would change the meaning of a rule: the rule
    is left out; if it denies, it is widened.
    """
    marks = dict(names)
    for acl in acls:
        if acl.kind != kind:
            continue
        fits = misfit(acl.topic, marks) is None
        if not fits and not acl.is_allowed:
            yield from (("deny", topic) for topic in denials(acl.topic, marks))
        elif fits and kind.endswith("Literal"):
            word: OrderedWord = "allow_exactly" if acl.is_allowed else "deny_exactly"
            yield word, substituted(acl.topic, marks)
        elif fits:
            yield "allow" if acl.is_allowed else "deny", substituted(acl.topic, marks)
