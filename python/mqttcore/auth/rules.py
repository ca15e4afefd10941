"""What all users of a plugin may do, with their names put into topic filters."""

import logging

from mqttcore.config import Filter
from mqttcore.plugin.answers import Grant
from mqttcore.plugin.options import PluginConfig

log = logging.getLogger(__name__)


class UserRules(PluginConfig):
    """Keys of ``[plugins.config]``: ``%u`` is the user name, ``%c`` the client identifier."""

    publish: tuple[Filter, ...] = ()
    """Topic filters that every user may publish to."""
    subscribe: tuple[Filter, ...] = ()
    """Topic filters that every user may subscribe to."""
    deny: tuple[Filter, ...] = ()
    """Topic filters that no user may touch."""


def grant_of(rules: UserRules, *, user: str, client_id: str) -> Grant:
    """The rules for one client."""
    names = {"%u": user, "%c": client_id}
    deny = filled(rules.deny, names)
    return Grant(
        publish=filled(rules.publish, names),
        subscribe=filled(rules.subscribe, names),
        # a denial that cannot be filled in denies everything, or rights would grow (abuse G16)
        deny=deny if len(deny) == len(rules.deny) else ["#"],
    )


def filled(rules: tuple[str, ...], names: dict[str, str]) -> list[str]:
    """The rules with names in them; one with a name that would change its shape is left out."""
    done = []
    for rule in rules:
        used = {mark: name for mark, name in names.items() if mark in rule}
        if any(not name or set(name) & set("+#/") for name in used.values()):
            log.warning("rule %r does not hold for %a: the name has +, # or /", rule, used)
            continue
        done.append(substituted(rule, used))
    return done


def substituted(rule: str, names: dict[str, str]) -> str:
    """Puts names in at once, so that a name with ``%c`` in it stays what it is."""
    parts = rule.split("%u") if "%u" in names else [rule]
    inner = [part.replace("%c", names["%c"]) if "%c" in names else part for part in parts]
    return names.get("%u", "").join(inner)
