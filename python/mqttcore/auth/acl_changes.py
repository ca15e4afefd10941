"""What another ACL file would change for the sessions of a running broker."""

import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from mqttcore._core import TopicFilter
from mqttcore.auth.acl_file import AclFile, Rule, parse_acl_file
from mqttcore.errors import AclFileError

NOTHING: Final = "nothing"
NEW: Final = pathlib.Path("new ACL file")
"""Stands for the file in messages about a text."""
CHANGES_MAX: Final = 10_000
"""Maximum number of changes in the result for a text."""
PARSED: Final = 10_000
"""Number of rules whose filters are kept, since a client has many subscriptions."""


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
        self._filter_of = lru_cache(PARSED)(TopicFilter)
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
                is_now = reading(before, topics, self._filter_of)
                is_then = reading(after, topics, self._filter_of)
                yield from self._change(client_id, held, is_now, is_then)

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
        nothing = {"warnings": [], "changed": [], "changes": [], "has_more": False}
        return {"errors": str(error).split("\n"), **nothing}
    trial = Trial({client_id: user for client_id, user, _ in sessions}, old=old, new=new)
    held = ((client_id, one) for client_id, _, filters in sessions for one in filters)
    found = list(islice(trial.changes(held), CHANGES_MAX + 1))
    return {
        "errors": [],
        "warnings": trial.warnings,
        "changed": list(trial.changed),
        "changes": [asdict(change) for change in found[:CHANGES_MAX]],
        "has_more": len(found) > CHANGES_MAX,
    }


def writing(rules: Sequence[Rule]) -> str:
    """The rules of a client for publishing, in order."""
    about = [one for one in rules if one[0] != "read"]
    return shown(about) if any(access != "deny" for access, _ in about) else NOTHING


def reading(
    rules: Sequence[Rule],
    held: TopicFilter,
    filter_of: Callable[[str], TopicFilter] = TopicFilter,
) -> str:
    """The messages that a client receives by a subscription: all, none, or those of its rules.

    ``filter_of`` parses the topic of a rule.
    """
    about: list[Rule] = []
    is_decided = False
    for access, topic in rules:
        rule = filter_of(topic)
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
