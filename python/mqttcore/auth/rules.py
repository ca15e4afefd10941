"""Grant rules that all users of a plugin share, with the names in place of `%u` and `%c`."""

import logging
import pathlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mqttcore._placed import placed_as
from mqttcore.auth.acl_file import SHOWN_CHARS, AclFile, read_acl_file
from mqttcore.auth.marks import is_rule, marks_of, substituted
from mqttcore.config.values import GrantRule
from mqttcore.plugin.answers import Grant, OperatorScope
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.limited_log import LimitedLog
from mqttcore.plugin.options import PluginConfig

logger = logging.getLogger(__name__)
log = LimitedLog(logger)


class Rules(PluginConfig):
    """Rules with placeholders: ``%u`` is the user name, ``%c`` the client identifier."""

    publish: tuple[GrantRule, ...] = ()
    """Topic filters that every user may publish to."""
    subscribe: tuple[GrantRule, ...] = ()
    """Topic filters that every user may subscribe to."""
    deny: tuple[GrantRule, ...] = ()
    """Topic filters that no user may publish to or receive from."""
    operate: tuple[OperatorScope, ...] = ()
    """Scopes of users who log in to the HTTP API or its page; empty: none."""


class UserRules(Rules):
    """Keys of ``[plugins.config]`` of a plugin whose users all have the same rules."""

    acl_file: pathlib.Path | None = None
    """An access list in Mosquitto's format, instead of ``publish`` and ``subscribe``; relative to
    the configuration file."""
    operators: tuple[str, ...] | None = None
    """User names with ``operate``; None: all of them."""


class RulesPlugin(Plugin):
    """A plugin whose users all have the rules of its configuration, or of its ACL file."""

    class Config(UserRules):
        """The rules."""

    config: UserRules

    def __init__(self, config: UserRules, /) -> None:
        super().__init__(config)
        if config.acl_file is not None and (config.publish or config.subscribe):
            raise ValueError("acl_file replaces publish and subscribe: leave them out")
        self._acl: AclFile | None = None

    async def start(self) -> None:
        """Reads the files of the plugin, as `reload` does.

        Raises:
            AclFileError: the ACL file cannot be used; the text names the line.
        """
        await self.reload()

    async def reload(self) -> None:
        """Reads the ACL file; one without rules is used at the start only, with a warning."""
        path = self.config.acl_file
        acl = None if path is None else read_acl_file(path)
        if acl is not None and self._acl is not None:
            acl.refuse_if_emptied(self._acl)
        elif acl is not None and acl.is_empty:
            logger.warning("%s has no rules: it allows nothing", path)
        self._acl = acl

    def changed_users(self, before: Plugin, /) -> Collection[str] | None:
        """After a reload: everybody, or those for whom the ACL file says something else.

        Raises:
            AclFileError: the ACL file has no rules any more.
        """
        if self._acl is not None:
            self._acl.refuse_if_emptied(before._acl if isinstance(before, RulesPlugin) else None)
        if not isinstance(before, RulesPlugin) or shared(self.config) != shared(before.config):
            return None
        if self._acl is None or before._acl is None:
            return () if self._acl is before._acl else None
        return self._acl.changed_users(before._acl)

    def _try_acl_file(
        self, acl_file: str, sessions: Sequence[tuple[str, str | None, Sequence[str]]]
    ) -> Mapping[str, object] | None:
        """Compares the text with the ACL file in use."""
        from mqttcore.auth.acl_changes import try_text

        return None if self._acl is None else try_text(acl_file, sessions, self._acl)

    def grant_for(
        self, *, user: str | None, client_id: str, values: Mapping[str, str] | None = None
    ) -> Grant:
        """The rights of one client, from `grant_of` or the ACL file."""
        grant = grant_of(self.config, user=user or "", client_id=client_id, values=values)
        operators = self.config.operators
        if user is None or (operators is not None and user not in operators):
            grant = replace(grant, operate=())
        if self._acl is None:
            return grant
        rules = self._acl.rules_of(user=user, client_id=client_id)
        return replace(grant, access_list=rules)


def shared(config: UserRules) -> tuple[object, ...]:
    """The rules that all users have, and the names of operators."""
    return config.publish, config.subscribe, config.deny, config.operate, config.operators


def grant_of(
    rules: Rules, *, user: str, client_id: str, values: Mapping[str, str] | None = None
) -> Grant:
    """The rules for one client; ``values`` has other placeholders: ``{"%{tenant}": "a"}``."""
    names = {"%u": user, "%c": client_id, **(values or {})}
    return Grant(
        publish=filled(rules.publish, names),
        subscribe=filled(rules.subscribe, names),
        deny=[denial for rule in rules.deny for denial in denials(rule, names)],
        operate=rules.operate,
    )


def filled(rules: tuple[str, ...], names: dict[str, str]) -> list[str]:
    """The rules with names inserted; a rule is left out if a name would change its levels."""
    return [substituted(rule, names) for rule in rules if misfit(rule, names) is None]


def denials(rule: str, names: dict[str, str]) -> list[str]:
    """A rule of ``deny`` with names in it; a name that would change its shape widens the rule.

    Left out, the client would have more rights (abuse G16). Widened, the rule ends with ``#`` at
    the level of that name, which covers each topic that the rule could have meant. Where the name
    would make them begin with ``$``, which ``#`` does not cover, ``$#`` does.
    """
    mark = misfit(rule, names)
    if mark is None:
        return [substituted(rule, names)]
    level = rule[: rule.index(mark)].rfind("/") + 1
    widened = substituted(rule[:level], names) + "#"
    if not is_rule(widened):  # another name is before it, and does not fit either
        wider = ["#", "$#"]
    elif names[mark].startswith("$") and rule.startswith(mark):
        wider = [widened, "$#"]
    else:
        wider = [widened]
    return [placed_as(text, rule) for text in wider]


def misfit(rule: str, names: dict[str, str]) -> str | None:
    """The first mark in `rule` whose name would change the rule's shape, if there is one.

    If the rule is no topic filter with all names in it, too long for example, it is the first mark.
    """
    marks = [mark for mark in marks_of([rule]) if mark in names]
    for mark in marks:
        name = names[mark]
        # a first `$` would make it another kind of topic
        is_dollar = name.startswith("$") and rule.startswith(mark)
        if not name or set(name) & set("+#/") or is_dollar:
            log.warn(
                mark,
                "rule %r does not apply for %s %a: the name is empty, contains +, # or /, or"
                " begins with $",
                rule,
                mark,
                name[:SHOWN_CHARS],
            )
            return mark
    if marks and not is_rule(substituted(rule, names)):
        log.warn("length", "rule %r does not apply: with names in it, it is no topic filter", rule)
        return marks[0]
    return None
