"""Rules with the place where they are written, which `mqttcore acl explain` prints."""

from typing import Self


class PlacedRule(str):
    """A topic filter of a rule, and its place: file and line."""

    __slots__ = ("place",)

    place: str

    def __new__(cls, text: str, place: str, /) -> Self:
        """Makes a rule with a place."""
        made = super().__new__(cls, text)
        made.place = place
        return made


def placed_as(text: str, rule: str) -> str:
    """Returns a text that was made from a rule, with the place of the rule if it has one."""
    return PlacedRule(text, rule.place) if isinstance(rule, PlacedRule) else text
