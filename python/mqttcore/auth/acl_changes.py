"""What another ACL file would change for the sessions of a running broker."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from mqttcore._core import TopicFilter
from mqttcore.auth.acl_file import AclFile, Rule, parse_acl_file
from mqttcore.errors import AclFileError

NOTHING: Final = "nothing"
NEW: Final = pathlib.Path("new ACL file")
"""Stands for the file in messages about a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change for a client."""

    client_id: str
    username: str | None
    action: str
    """`receive` by a subscription, or `publish`."""
    filter: str | None
    """The subscription."""
    now: str
    then: str


class Trial:
    """Compares two files for the sessions of a broker."""

    def __init__(self, users: Mapping[str, str | None], *, old: AclFile, new: AclFile) -> None:
        """``users`` is the user name of each session, by client identifier."""
        self._users = users
        self.changed: dict[str, tuple[Sequence[Rule], Sequence[Rule]]] = {}
        """Clients with other rules, and these rules: now, then."""
        for client_id, username in users.items():
            now = old.rules_of(user=username, client_id=client_id)
            then = new.rules_of(user=username, client_id=client_id)
            if now != then:
                self.changed[client_id] = now, then
        emptied = new.is_empty and not old.is_empty
        self.warnings = [f"{new.path} has no rules: a reload refuses it"] if emptied else []

    def changes(self, subscriptions: Iterable[tuple[str, str]]) -> Iterator[Change]:
        """The changes: first for publishing, then for subscriptions, given by client and filter."""
        for client_id, (now, then) in self.changed.items():
            yield from self._change(client_id, None, writing(now), writing(then))
        for client_id, held in subscriptions:
            if client_id in self.changed:
                before, after = self.changed[client_id]
                topics = TopicFilter(held)
                changed = reading(before, topics), reading(after, topics)
                yield from self._change(client_id, held, *changed)

    def _change(self, client_id: str, held: str | None, now: str, then: str) -> Iterator[Change]:
        if now != then:
            yield Change(
                client_id=client_id,
                username=self._users[client_id],
                action="publish" if held is None else "receive",
                filter=held,
                now=now,
                then=then,
            )


def try_text(
    text: str, sessions: Sequence[tuple[str, str | None, Sequence[str]]], old: AclFile
) -> dict[str, object]:
    """Compares the text of a file with the file in use; the result is for JSON.

    Each session has client identifier, user name and topic filters.
    """
    try:
        new = parse_acl_file(text, NEW)
    except AclFileError as error:
        return {"errors": str(error).split("\n"), "warnings": [], "changed": [], "changes": []}
    trial = Trial({client_id: user for client_id, user, _ in sessions}, old=old, new=new)
    held = ((client_id, one) for client_id, _, filters in sessions for one in filters)
    return {
        "errors": [],
        "warnings": trial.warnings,
        "changed": list(trial.changed),
        "changes": [asdict(change) for change in trial.changes(held)],
    }


def writing(rules: Sequence[Rule]) -> str:
    """The rules of a client for publishing, in order."""
    about = [one for one in rules if one[0] != "read"]
    return shown(about) if any(access != "deny" for access, _ in about) else NOTHING


def reading(rules: Sequence[Rule], held: TopicFilter) -> str:
    """The messages that a client receives by a subscription: all, none, or those of its rules."""
    about: list[Rule] = []
    is_decided = False
    for access, topic in rules:
        rule = TopicFilter(topic)
        if access == "write" or not rule.overlaps(held):
            continue
        about.append((access, topic))
        if is_decided := rule.covers(held):
            break
    allows = [access != "deny" for access, _ in about]
    if not any(allows):
        return NOTHING
    return "everything" if all(allows) and is_decided else shown(about)


def shown(rules: Sequence[Rule]) -> str:
    """Rules in the format of a file."""
    return ", ".join(f"{access} {topic}" for access, topic in rules)
