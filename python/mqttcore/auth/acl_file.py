"""Access lists of Mosquitto's `acl_file`, evaluated as Mosquitto does.

    topic read news/#               # before the first user: clients without user name
    user joe
    topic readwrite joe/#
    topic deny joe/secret
    pattern write device/%c/state   # all clients; %u is the user name, %c the client identifier

Each plugin of this package with rules takes such a file as `acl_file`, in place of `publish` and
`subscribe`. A client may subscribe to everything; a message that it may not read is dropped at
delivery. Of the rules for its user, and then of the patterns, those that deny come first; the first
rule that names topic and action decides, and without one it is denied; so a file without rules
denies everything, with a warning at the start, and a reload refuses it. If a name has ``+`` or
``#``, or makes a pattern longer than a topic filter may be, no pattern applies to its client.
"""

import logging
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from mqttcore._core import TopicFilter, TopicFilterError
from mqttcore._placed import PlacedRule
from mqttcore.auth.marks import is_rule, substituted
from mqttcore.errors import AclFileError
from mqttcore.plugin.answers import AccessWord
from mqttcore.plugin.limited_log import LimitedLog

log = LimitedLog(logging.getLogger(__name__))
SHOWN_CHARS = 120
"""Maximum number of characters of a name in a log line."""

Rule = tuple[AccessWord, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFile:
    """The rules of a file."""

    path: pathlib.Path = field(compare=False)
    users: Mapping[str | None, tuple[Rule, ...]]
    """Rules by user name, those that deny first; None: clients without user name."""
    patterns: tuple[Rule, ...]
    """Rules for all clients, with ``%u`` and ``%c`` in them; those that deny first."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no rules, and so allows nothing."""
        return not self.users and not self.patterns

    def refuse_if_emptied(self, before: "AclFile | None") -> None:
        """Refuses to replace other rules with none, which is more often a mistake (abuse G04).

        Raises:
            AclFileError: it has no rules, and ``before`` is not a file without rules.
        """
        if self.is_empty and (before is None or not before.is_empty):
            raise AclFileError(
                f"{self.path}: it has no rules; to deny everything, restart the broker with it; a"
                " rule is: topic readwrite a/#"
            )

    def changed_users(self, before: "AclFile") -> set[str] | None:
        """Users with other rules than before; None: everybody, or clients without user name."""
        if self.patterns != before.patterns or self.users.get(None) != before.users.get(None):
            return None
        names = self.users.keys() | before.users.keys()
        return {
            name
            for name in names
            if name is not None and self.users.get(name) != before.users.get(name)
        }

    def rules_of(self, *, user: str | None, client_id: str) -> tuple[Rule, ...]:
        """The access list of one client."""
        own = self.users.get(user, ())
        if self.patterns and any(set(name) & set("+#") for name in (user or "", client_id)):
            text = "no pattern applies to client %a of user %a: + or # in it"
            log.warn("names", text, client_id[:SHOWN_CHARS], user and user[:SHOWN_CHARS])
            return own
        marks = {"%c": client_id} if user is None else {"%c": client_id, "%u": user}
        rules = tuple(filled(self.patterns, marks))
        if not all(is_rule(topic) for _, topic in rules):
            text = "no pattern applies to client %a: with names in it, one is too long"
            log.warn("length", text, client_id[:SHOWN_CHARS])
            return own
        return (*own, *rules)


def filled(patterns: Iterable[Rule], marks: Mapping[str, str]) -> Iterable[Rule]:
    """Patterns with names inserted; without a user name, patterns with ``%u`` are left out."""
    for access, pattern in patterns:
        if "%u" in pattern and "%u" not in marks:
            continue
        text = substituted(pattern, marks)
        # a pattern that does not begin with `$` is for no topic that does
        if not text.startswith("$") or pattern.startswith("$"):
            yield access, text


def read_acl_file(path: pathlib.Path) -> AclFile:
    """Reads a file.

    Raises:
        AclFileError: it cannot be read, or a line is wrong; with all such lines.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AclFileError(f"{path}: cannot be read: {error}") from error
    return parse_acl_file(text, path)


def parse_acl_file(text: str, path: pathlib.Path) -> AclFile:
    """Parses the text of a file; ``path`` is its name in messages.

    Raises:
        AclFileError: a line is wrong; with all such lines.
    """
    reading = Reading()
    faults = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            reading.take(line, f"{path}:{number}")
        except (ValueError, TopicFilterError) as error:
            faults.append(f"{path}:{number}: {error}")
    if faults:
        raise AclFileError("\n".join(faults))
    return AclFile(
        path=path,
        users={user: denials_first(rules) for user, rules in reading.users.items()},
        patterns=denials_first(reading.patterns),
    )


class Reading:
    """A file while it is read."""

    def __init__(self) -> None:
        self.users: dict[str | None, list[Rule]] = {}
        self.patterns: list[Rule] = []
        self._user: str | None = None

    def take(self, line: str, place: str) -> None:
        """Adds one line; ``place`` is file and number.

        Raises:
            ValueError: what is wrong with it.
            TopicFilterError: its topic is not a topic filter.
        """
        if line.startswith("#") or not line.strip():
            return
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == "user":
            if not rest:
                raise ValueError("the user name is missing")
            self._user = rest
        elif word == "topic":
            self.users.setdefault(self._user, []).append(rule_of(rest, place))
        elif word == "pattern":
            self.patterns.append(rule_of(rest, place))
        else:
            raise ValueError(f"unknown word {word[:40]!r}; allowed: topic, user, pattern")


def rule_of(text: str, place: str) -> Rule:
    """A rule: an access word and a topic, or a topic alone, which may be read and written."""
    word, space, topic = text.partition(" ")
    if not space:
        word, topic = "readwrite", text
    if not topic:
        raise ValueError("the topic is missing")
    if word not in get_args(AccessWord):
        raise ValueError(
            f"unknown access {word[:40]!r}; allowed: {', '.join(get_args(AccessWord))}"
        )
    topic = topic.strip()
    TopicFilter(topic)
    return cast(AccessWord, word), PlacedRule(topic, place)


def denials_first(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules with denials first."""
    return tuple(sorted(rules, key=lambda rule: rule[0] != "deny"))
