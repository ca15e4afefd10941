"""Rules that know where they are written: `mqttcore acl explain` says it."""

from typing import Self


class PlacedRule(str):
    """A topic filter of a rule, and its place: file and line."""

    __slots__ = ("place",)

    place: str

    def __new__(cls, text: str, place: str, /) -> Self:
        """Makes one."""
        made = super().__new__(cls, text)
        made.place = place
        return made


def placed_as(text: str, rule: str) -> str:
    """A text that was made of a rule, with the place of that rule if it has one."""
    return PlacedRule(text, rule.place) if isinstance(rule, PlacedRule) else text
