"""Placeholders in rules: `%u`, `%c` and `%{NAME}`."""

import re
from collections.abc import Iterable, Mapping

from mqttcore._core import check_grant_rule
from mqttcore._placed import placed_as
from mqttcore.errors import MqttError

MARK = re.compile(r"%[uc]|%\{[^{}]+\}")


def marks_of(rules: Iterable[str]) -> list[str]:
    """The placeholders of the rules in their order; plugins have values for some of them."""
    return [mark for rule in rules for mark in MARK.findall(rule)]


def substituted(rule: str, names: Mapping[str, str]) -> str:
    """Inserts all names in one step, so that a name that contains ``%c`` is not changed."""
    return placed_as(MARK.sub(lambda mark: names.get(mark[0], mark[0]), rule), rule)


def is_rule(text: str) -> bool:
    """Whether a text is a valid rule of a grant: not too long, and encodable as UTF-8."""
    try:
        check_grant_rule(text)
    except (MqttError, UnicodeEncodeError):
        return False
    return True
