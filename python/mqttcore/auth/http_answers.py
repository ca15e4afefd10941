"""Answers of HTTP services about clients, in the forms of EMQX and of mosquitto-go-auth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from mqttcore._placed import PlacedRule
from mqttcore.auth.backend import RULES_MAX, BadAnswerError

Says = Literal["allow", "deny", "ignore"]
Pair = tuple[str, str]
"""Access word and topic filter."""

LATEST = 253_402_300_799
"""The last second of the year 9999."""
RULE_KEYS = {"permission", "action", "topic"}
MARKS = {"${clientid}": "%c", "${username}": "%u"}
ACTIONS = {"publish": ("write",), "subscribe": ("read",), "all": ("read", "write")}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a service about a client or a topic."""

    says: Says
    is_superuser: bool = False
    rules: Sequence[Pair] | None = None
    expires_at: datetime | None = None


def go_auth_verdict(response: str, body: bytes) -> Verdict:
    """An answer of go-auth with a status of success.

    Raises:
        BadAnswerError: it is something else.
    """
    if response == "status":
        return Verdict("allow")
    if response == "text":
        return Verdict("allow" if body.strip() == b"ok" else "deny")
    found = parsed(body).get("ok")
    if not isinstance(found, bool):
        raise BadAnswerError('the answer has no "ok"')
    return Verdict("allow" if found else "deny")


def emqx_verdict(status: int, body: bytes) -> Verdict:
    """An answer of EMQX's form with a status of success.

    Raises:
        BadAnswerError: it is something else.
    """
    if status == 204:
        return Verdict("allow")
    answer = parsed(body)
    says = answer.get("result")
    if says not in ("allow", "deny", "ignore"):
        raise BadAnswerError("the answer has no result that is allow, deny or ignore")
    is_superuser = answer.get("is_superuser", False)
    if not isinstance(is_superuser, bool):
        raise BadAnswerError("is_superuser must be true or false")
    acl = answer.get("acl")
    return Verdict(
        says,
        is_superuser=is_superuser,
        rules=None if acl is None else emqx_rules(acl),
        expires_at=time_of(answer.get("expire_at")),
    )


def parsed(body: bytes) -> Mapping[str, object]:
    """The JSON object of an answer."""
    try:
        found = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise BadAnswerError("the answer is not JSON") from None
    if not isinstance(found, dict):
        raise BadAnswerError("the answer is not a JSON object")
    return cast(Mapping[str, object], found)


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object with unique keys: otherwise a name in the answer could add another result.

    Raises:
        BadAnswerError: two keys are equal.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadAnswerError("the answer has a key twice")
    return found


def time_of(value: object) -> datetime | None:
    """A time in seconds since 1970."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= cast(float, value) <= LATEST:
        raise BadAnswerError("expire_at is not a time")
    return datetime.fromtimestamp(cast(float, value), UTC)


def emqx_rules(acl: object) -> Sequence[Pair]:
    """Rules of EMQX as an access list with the same meaning.

    Raises:
        BadAnswerError: one of them is not understood, or the list has no such meaning.
    """
    if not isinstance(acl, list) or len(acl) > RULES_MAX:
        raise BadAnswerError(f"acl is not a list of at most {RULES_MAX} rules")
    rules = [emqx_rule(rule, number) for number, rule in enumerate(acl, 1)]
    reads = without_last_denials([rule for rule in rules if "read" in rule[1]])
    writes = without_last_denials([rule for rule in rules if "write" in rule[1]])
    if not any(is_denial(rule) for rule in reads):
        return as_pairs(reads, "read") + as_pairs(writes, "write")
    if not any(is_denial(rule) for rule in writes):
        return as_pairs(writes, "write") + as_pairs(reads, "read")
    if all(len(rule[1]) == 2 for rule in rules if is_denial(rule)):
        return [pair for rule in rules for word in rule[1] for pair in as_pairs([rule], word)]
    raise BadAnswerError("acl denies publish and subscribe by different rules: use all")


Rule = tuple[str, tuple[str, ...], str]
"""Permission, access words and topic filter."""


def is_denial(rule: Rule) -> bool:
    """Whether a rule denies."""
    return rule[0] == "deny"


def emqx_rule(rule: object, number: int) -> Rule:
    """One rule, the ``number``-th of the answer; unknown restrictions are refused."""
    if not isinstance(rule, dict) or set(rule) != RULE_KEYS:
        raise BadAnswerError(f"a rule of acl has other keys than {', '.join(sorted(RULE_KEYS))}")
    permission, action, topic = rule["permission"], rule["action"], rule["topic"]
    words = ACTIONS.get(action) if isinstance(action, str) else None
    if permission not in ("allow", "deny") or words is None or not isinstance(topic, str):
        raise BadAnswerError("a rule of acl has an unknown permission, action or topic")
    if topic.startswith("eq "):
        raise BadAnswerError("a rule of acl has a topic with eq")
    for name, mark in MARKS.items():
        topic = topic.replace(name, mark)
    if "${" in topic:
        raise BadAnswerError("a rule of acl has an unknown placeholder")
    return permission, words, PlacedRule(topic, f"acl of the answer, rule {number}")


def without_last_denials(rules: list[Rule]) -> list[Rule]:
    """The rules without redundant denials at the end."""
    count = len(rules)
    while count and is_denial(rules[count - 1]):
        count -= 1
    return rules[:count]


def as_pairs(rules: Sequence[Rule], word: str) -> list[Pair]:
    """Rules of one action for an access list."""
    return [("deny" if is_denial(rule) else word, rule[2]) for rule in rules]
